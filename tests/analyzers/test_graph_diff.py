"""What changed between two graphs, found without names: planted changes, and optimised graphs."""

import importlib
import random

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

import tracer
from models import families
from tests.examples import at_night
from tests.nets import Builder
from tracer.analyzers import graph_diff
from tracer.errors import InputError, UsageError
from tracer.quantization.options import QuantizationOptions

calls = importlib.import_module("tracer.api.diff")  # the function has the name of its module
MODELS = ("lenet/lenet", "resnet_cifar/resnet20", "transformer/transformer", "gpt/gpt",
          "lenet/lenet.int8")  # fmt: skip


def path_of(name):
    return families.FOLDER / f"{name}.onnx"


def scrambled(proto, seed=0, names=None):
    """The same graph with other names, in another order that runs, without metadata.

    `names` gets the new names of tensors, by the old.
    """
    own, random_ = onnx.ModelProto.FromString(proto.SerializeToString()), random.Random(seed)
    graph, names = own.graph, {} if names is None else names
    names[""] = ""

    def renamed(name):
        return names.setdefault(name, f"{random_.randrange(10**9)}_{len(names)}")

    del graph.value_info[:]
    for each in (*graph.input, *graph.output, *graph.initializer):
        each.name = renamed(each.name)
    for node in graph.node:
        node.name = f"n{random_.randrange(10**9)}"
        node.input[:], node.output[:] = map(renamed, node.input), map(renamed, node.output)
        del node.metadata_props[:]
    known = {"", *(each.name for each in (*graph.input, *graph.initializer))}
    left, order = list(graph.node), []
    while left:
        node = random_.choice([each for each in left if known.issuperset(each.input)])
        left.remove(node)
        order.append(onnx.NodeProto.FromString(node.SerializeToString()))
        known.update(node.output)
    del graph.node[:]
    graph.node.extend(order)
    return own


def found(first, second, folder):
    """The changes from a file to a model."""
    onnx.save(second, folder / "second.onnx")
    return tracer.diff(first, folder / "second.onnx", in_process=True)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", at_night(MODELS, but=["lenet/lenet.int8", "gpt/gpt"]))
def test_other_names_and_another_order_are_no_change(name, tmp_path):
    result = found(path_of(name), scrambled(onnx.load(path_of(name))), tmp_path)
    assert result.changes == ()
    assert len(result.same) == result.nodes[0] == result.nodes[1]
    assert {pair.reading for pair in result.tensors} == {"equal"}


def other_weight(graph):
    """One number of a convolution's weights."""
    node = next(n for n in graph.node if n.op_type == "Conv" and "311" in n.name)
    weights = next(w for w in graph.initializer if w.name == node.input[1])
    values = numpy_helper.to_array(weights).copy()
    values.flat[7] += 1.0
    weights.CopyFrom(numpy_helper.from_array(values, weights.name))
    return "changed", (node.name,), "W: 1 of 512 differ, by 1 at most"


def other_attribute(graph):
    node = next(n for n in graph.node if n.op_type == "BatchNormalization")
    next(a for a in node.attribute if a.name == "epsilon").f = 0.5
    return "changed", (node.name,), "epsilon"


def other_operator(graph):
    node = [n for n in graph.node if n.op_type == "Relu"][5]
    node.op_type = "Sigmoid"
    return "became", (node.name,), "Relu → Sigmoid"


def new_node(graph):
    node = [n for n in graph.node if n.op_type == "Conv"][3]
    added = helper.make_node("Tanh", ["before"], [node.output[0]], "added")
    node.output[0] = "before"
    nodes = [*graph.node]
    nodes.insert(nodes.index(node) + 1, added)
    nodes = [onnx.NodeProto.FromString(each.SerializeToString()) for each in nodes]
    del graph.node[:]
    graph.node.extend(nodes)
    return "new", (), "Tanh"


def gone_node(graph):
    node = [n for n in graph.node if n.op_type == "Relu"][4]
    for each in graph.node:
        read = [*each.input]
        each.input[:] = [node.input[0] if x == node.output[0] else x for x in read]
    graph.node.remove(node)
    return "gone", (node.name,), "Relu"


def other_input(graph):
    """A convolution that skips the one before it."""
    convs = [n for n in graph.node if n.op_type == "Conv"]
    convs[4].input[0] = convs[3].input[0]
    return "changed", (convs[4].name,), "X is '"


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "plant",
    at_night(
        [other_weight, other_attribute, other_operator, new_node, gone_node, other_input],
        but=[other_weight, new_node, other_input],
    ),
)
def test_a_planted_change_is_found_and_nothing_else(plant, tmp_path):
    first = path_of("resnet_cifar/resnet20")
    proto = onnx.load(first)
    kind, before, what = plant(proto.graph)
    result = found(first, scrambled(proto, 3), tmp_path)
    (change,) = result.changes
    assert (change.kind, change.before) == (kind, before)
    assert what in change.what
    assert len(result.same) >= result.nodes[0] - 1
    readings = {pair.reading for pair in result.tensors}
    assert readings == {"equal", "other values"}  # before and behind the change


def test_weights_that_no_input_of_the_run_reaches_are_compared(tmp_path):
    first = path_of("gpt/gpt")
    proto = onnx.load(first)
    table = next(w for w in proto.graph.initializer if "position" in w.name or "wpe" in w.name)
    values = numpy_helper.to_array(table).copy()
    values[-1] += 1  # of the last position, which short inputs do not have
    table.CopyFrom(numpy_helper.from_array(values, table.name))
    (change,) = found(first, proto, tmp_path).changes
    assert "other weights" in change.what or "differ" in change.what


def moving(graph):
    """The tensors of nodes that depend on the values of an input, and not on its shape alone."""
    found = {value.name for value in graph.input} - {each.name for each in graph.initializer}
    inputs = set(found)
    for node in graph.node:
        if node.op_type != "Shape" and found.intersection(node.input):
            found.update(node.output)
    return found - inputs


@pytest.mark.one_in(5)
@pytest.mark.parametrize("level", at_night(["BASIC", "EXTENDED", "ALL"], but=["ALL"]))
@pytest.mark.parametrize("name", MODELS)
def test_tensors_that_keep_their_names_in_an_optimised_graph_are_mapped(name, level, tmp_path):
    """onnxruntime keeps the names of the tensors that stay: they tell what is right."""
    options, path = ort.SessionOptions(), tmp_path / "second.onnx"
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    options.optimized_model_filepath, options.log_severity_level = str(path), 4
    ort.InferenceSession(path_of(name), options, providers=["CPUExecutionProvider"])
    result = tracer.diff(path_of(name), path, in_process=True)
    mapped = {pair.after: pair.before for pair in result.tensors}
    kept = moving(onnx.load(path_of(name)).graph) & moving(onnx.load(path).graph)
    assert kept
    assert {name: mapped.get(name) for name in kept} == {name: name for name in kept}
    keys = [key for change in result.changes for key in change.before]
    assert len(keys) + len(result.same) == result.nodes[0]  # each node has one fate
    assert not any(change.kind == "gone" for change in result.changes)


def test_a_float_type_an_opset_and_a_folded_normalisation(tmp_path):
    net = Builder("net", x=("N", 3, 8, 8))
    net.node("Conv", "c", "x", net.weight("w", 4, 3, 3, 3))
    scales = [net.constant(n, np.abs(net.rng.normal(1, 0.1, 4)).astype(np.float32)) for n in "sbmv"]
    net.node("BatchNormalization", "n", "c", *scales)
    net.node("Relu", "r", "n")
    proto = net.model("r")
    onnx.save(proto, tmp_path / "first.onnx")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(tmp_path / "folded.onnx")
    ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    folded = onnx.load(tmp_path / "folded.onnx")
    (change,) = found(tmp_path / "first.onnx", folded, tmp_path).changes
    assert (change.kind, change.what) == ("became", "Conv + BatchNormalization → Conv")
    proto.opset_import[0].version += 1
    (change,) = found(tmp_path / "first.onnx", proto, tmp_path).changes
    assert change.what.startswith("opset ")


def test_an_attribute_that_becomes_an_input_and_an_input_that_goes(tmp_path):
    net = Builder("net", x=("N", 3, 8, 8))
    net.node("Conv", "c", "x", net.weight("w", 4, 3, 3, 3), net.weight("b", 4))
    net.node("ReduceMean", "m", "c", axes=[2, 3])
    proto = net.model("m")
    del proto.opset_import[:]
    proto.opset_import.add(version=17)
    onnx.save(proto, tmp_path / "first.onnx")
    second = onnx.version_converter.convert_version(proto, 18)
    del next(node for node in second.graph.node if node.op_type == "Conv").input[2]
    result = found(tmp_path / "first.onnx", second, tmp_path)
    told = {change.after: change.what for change in result.changes if change.has_nodes}
    assert sorted(told.values()) == ["B is gone", "axes is an input, no attribute"]
    assert "; 2 changed" in result.save(tmp_path / "d.md").read_text()


@pytest.mark.nightly
@pytest.mark.parametrize(("axis", "changes"), [(-2, 0), (3, 0), (-1, 1), (1, 1)])
def test_axes_that_are_counted_from_the_end_are_no_change(tmp_path, axis, changes):
    """numpy says whether both are one axis: of attributes and of inputs, of inputs and outputs."""

    def graph(axis):
        text = f"""<ir_version: 8, opset_import: ["": 18]> g (float[2,1,3,1,1] x) => (float[M] y)
        <int64[1] axes = {{{axis}}}, int64[1] flat = {{-1}}>
        {{ a = Squeeze (x, axes) b = Unsqueeze (a, axes) c = Softmax <axis = {axis}> (b)
           d = ReduceSum (c, axes) y = Reshape (d, flat) }}"""
        return onnx.parser.parse_model(text)

    assert (np.lib.array_utils.normalize_axis_index(axis, 5) != 3) == bool(changes)
    onnx.save(graph(3), tmp_path / "first.onnx")
    result = found(tmp_path / "first.onnx", graph(axis), tmp_path)
    assert bool(result.changes) == bool(changes)


def test_traces_of_both_give_times_and_a_report_shows_both(tmp_path):
    first, second = tmp_path / "a.onnx", tmp_path / "b.onnx"
    onnx.save(onnx.load(path_of("lenet/lenet")), first)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(second)
    ort.InferenceSession(first, options)
    traces = [tracer.profile(path, runs=3, in_process=True) for path in (first, second)]
    files = [tmp_path / f"{name}.trace" for name in "ab"]
    for trace, file in zip(traces, files, strict=True):
        trace.save(file)
    result = tracer.diff(first, second, traces=files, in_process=True)
    for side, trace in enumerate(traces):
        rows = trace.to_pandas().set_index("node")["time_us"].dropna()
        assert result.times[side] == rows.to_dict()
        for change in result.changes:
            keys = (change.before, change.after)[side]
            own = [rows[key] for key in keys if key in rows]
            seen = (change.before_us, change.after_us)[side]
            assert seen == pytest.approx(sum(own)) if own else np.isnan(seen)
    result.save(tmp_path / "diff.html")
    page = (tmp_path / "diff.html").read_text()
    fused = next(change for change in result.changes if change.kind == "became")
    assert fused.what in page
    with pytest.raises(UsageError, match=r"a\.trace is not of .*b\.onnx"):
        tracer.diff(second, first, traces=files, in_process=True)
    with pytest.raises(UsageError, match="1 trace for two models"):
        tracer.diff(first, second, traces=files[:1], in_process=True)


def test_other_inputs_are_refused(tmp_path):
    with pytest.raises(InputError, match="inputs"):
        tracer.diff(path_of("lenet/lenet"), path_of("gpt/gpt"), in_process=True)


def sized(size, activation, path):
    """Two convolutions of an image of this size, with `activation` between them."""
    net = Builder("sized", x=(1, 3, size, size))
    net.node(activation, "middle", net.conv("a", "x", 3, 4))
    onnx.save(net.model(net.conv("b", "middle", 4, 5)), path)
    return path


def test_models_whose_inputs_have_other_shapes_are_compared_by_structure(tmp_path):
    """One input does not fit both: onnxruntime refused the second model."""
    small = sized(8, "Relu", tmp_path / "small.onnx")
    large = sized(12, "Relu", tmp_path / "large.onnx")
    other = sized(12, "Tanh", tmp_path / "other.onnx")
    same = tracer.diff(small, large, in_process=True)
    assert len(same.same) == 5
    assert [change.what for change in same.changes] == [
        "input 'x': float32[1,3,8,8] → float32[1,3,12,12]"
    ]
    assert "dimension 2 is fixed at 12, not 8" in same.notes[0]
    changed = tracer.diff(small, other, in_process=True)
    assert [change.what for change in changed.changes][1:] == ["Relu → Tanh"]
    values = {"x": np.zeros((1, 3, 8, 8), np.float32)}
    np.savez(tmp_path / "x.npz", **values)
    with pytest.raises(InputError, match="Expected: 12"):
        tracer.diff(small, large, inputs=tmp_path / "x.npz", in_process=True)


def calibration_of(proto, folder):
    """A file of noise for each input of a model."""
    values, random_ = {}, np.random.default_rng(0)
    for value in proto.graph.input:
        kind = value.type.tensor_type
        shape = [each.dim_value or 8 for each in kind.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        drawn = random_.integers(0, 60, shape) if dtype.kind == "i" else random_.normal(size=shape)
        values[value.name] = drawn.astype(dtype)
    np.savez(folder / "inputs.npz", **values)
    return folder / "inputs.npz"


def test_tensors_of_a_quantised_model_are_mapped_to_their_dequantised_ones(tmp_path):
    """onnxruntime's quantiser names what it inserts after the tensor that it rounds."""
    first, second = path_of("lenet/lenet"), tmp_path / "b.onnx"
    inputs = calibration_of(onnx.load(first), tmp_path)
    tracer.quantize(first, inputs, output=second, in_process=True)
    pairs = tracer.diff(first, second, in_process=True).tensors
    floats = {name for node in onnx.load(first).graph.node for name in node.output}
    inserted = {name for node in onnx.load(second).graph.node for name in node.output}
    named = {(name, f"{name}_DequantizeLinear_Output", "quantised") for name in floats}
    want = {each for each in named if each[1] in inserted}
    assert len(want) == 7
    assert want <= {(pair.before, pair.after, pair.reading) for pair in pairs}


FLOATS = ("lenet/lenet", "resnet_cifar/resnet20", "lenet/lenet_chainer", "gpt/gpt",
          "resnet_cifar/resnet20_chainer", "transformer/transformer", "llama/llama")  # fmt: skip
QUANTISED = [(name, form) for name in FLOATS for form in ("qdq", "qoperator")]
QUANTISED += [("llama/llama", "int4")]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("name", "form"), at_night(QUANTISED, but=QUANTISED[:4]))
def test_tensors_that_survive_quantisation_are_mapped(name, form, tmp_path):
    """Ranges of noise leave no value alike; a Relu that they cut off has the tensor it read."""
    first, second = onnx.load(path_of(name)), tmp_path / "b.onnx"
    inputs = calibration_of(first, tmp_path)
    if form == "int4":
        second = path_of(f"{name}.int4")
    else:
        options = QuantizationOptions(format=form)
        tracer.quantize(path_of(name), inputs, output=second, options=options, in_process=True)
    names, quantised = {}, onnx.load(second)
    result = found(path_of(name), scrambled(quantised, 1, names), tmp_path)
    mapped = {pair.after: pair.before for pair in result.tensors}
    alike = {name: {name} for name in moving(first.graph)}
    for node in first.graph.node:
        if node.op_type == "Relu":
            alike[node.output[0]].add(node.input[0])
            alike[node.input[0]].add(node.output[0])
    suffixes = "", "_quantized", "_QuantizeLinear_Output", "_DequantizeLinear_Output"
    rounded = {name + suffix: name for name in alike for suffix in suffixes}
    kept = rounded.keys() & moving(quantised.graph)
    assert len(kept) > len(alike) / 3
    right = [each for each in kept if mapped.get(names[each]) in alike[rounded[each]]]
    assert len(right) >= 0.99 * len(kept)
    for side, nodes in enumerate(result.nodes):  # each node has one fate
        keys = [key for each in result.changes for key in (each.before, each.after)[side]]
        assert len(keys) + len(result.same) == len({*keys}) + len(result.same) == nodes


@pytest.mark.parametrize(
    ("form", "want"),
    [
        ("qdq", {"Conv + BatchNormalization → Conv", "Relu → QuantizeLinear + DequantizeLinear"}),
        ("qoperator", {"Conv + BatchNormalization + Relu → QLinearConv"}),
    ],
)
def test_what_quantisation_folds_is_a_part_of_the_convolution(form, want, tmp_path):
    net = Builder("net", x=("N", 3, 8, 8))
    net.node("Conv", "c", "x", net.weight("w", 4, 3, 3, 3))
    scales = net.rng.normal(1, 0.2, (4, 4)).astype(np.float32)
    scales[0, ::2] *= -1  # a factor of a channel may be negative
    scales = [net.constant(n, values) for n, values in zip("sbmv", scales, strict=True)]
    net.node("BatchNormalization", "n", "c", *scales)
    net.node("Relu", "r", "n")
    onnx.save(net.model("r"), tmp_path / "first.onnx")
    inputs = calibration_of(net.model("r"), tmp_path)
    options = QuantizationOptions(format=form)
    path = tmp_path / "quantised.onnx"
    tracer.quantize(tmp_path / "first.onnx", inputs, output=path, options=options, in_process=True)
    result = found(tmp_path / "first.onnx", scrambled(onnx.load(path)), tmp_path)
    assert {change.what for change in result.changes if change.kind == "became"} == want


@pytest.fixture
def apart(tmp_path):
    """Two copies of a model whose weights, one of which is transposed, are in files beside them."""
    random_ = np.random.default_rng(0)
    net = Builder("apart", x=("N", 64))
    net.node("Transpose", "t", net.constant("w", random_.normal(0, 1, (64, 64)).astype(np.float32)))
    net.node("MatMul", "m", "x", "t")
    net.node("Add", "y", "m", net.weight("b", 64))
    paths = [tmp_path / side / "m.onnx" for side in "ab"]
    for path in paths:
        path.parent.mkdir()
        onnx.save(net.model("y"), path, save_as_external_data=True, location="w", size_threshold=0)
    return paths


def test_models_of_the_same_bytes_run_once_and_their_weights_are_not_compared(apart, monkeypatch):
    ran, run = [], calls._tensors
    monkeypatch.setattr(calls, "_tensors", lambda *given: ran.append(0) or run(*given))
    monkeypatch.setattr(graph_diff, "_of_weights", lambda *given: pytest.fail("they are compared"))
    for first, second in (apart, apart[:1] * 2):
        ran.clear()
        result = tracer.diff(first, second, in_process=True)
        assert result.changes == () and len(result.same) == 2
        assert len(ran) == 2  # on two sets of inputs


def test_a_weight_in_a_file_beside_the_model_is_compared_by_its_bytes(apart):
    data = apart[1].with_name("w")
    stored = bytearray(data.read_bytes())
    stored[3] ^= 0x40  # of the exponent of a number
    data.write_bytes(stored)
    (change,) = tracer.diff(*apart, in_process=True).changes
    assert change.before == change.after and "1 of 4,096 differ" in change.what


def test_what_both_models_note_stands_once(tmp_path):
    node = helper.make_node("Relu", ["x"], ["y"])
    values = [
        helper.make_tensor_value_info(name, 1, shape)
        for name, shape in (("x", [0, 4]), ("y", None))
    ]
    opsets = [helper.make_opsetid("", 17)]
    file, graph = tmp_path / "m.onnx", helper.make_graph([node], "g", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), file)
    result = tracer.diff(file, file, in_process=True)
    assert len(set(result.notes)) == len(result.notes)
    assert any("declares size 0" in note for note in result.notes)
