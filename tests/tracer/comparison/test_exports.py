"""Two files of one network: their layers are other ones, and compute the same."""

import io

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

import tracer
from tracer.analyzers.compare.views.tables import numbers_table
from tracer.analyzers.options import ViewOptions
from tracer.api.compare import SideSettings, naming, running, values
from tracer.support.tolerance import Tolerance

SETTINGS = SideSettings(threads=1)


def compared(*paths):
    """The numbers of the second file against those of the first."""
    sides = running.open_sides([str(path) for path in paths], SETTINGS)
    arrays = naming.shared_inputs(sides, SETTINGS)
    (numbers,), notes = values.compare_values(sides, arrays, SETTINGS, Tolerance())
    assert not notes
    return numbers


def outputs(path, level="ORT_ENABLE_ALL"):
    """The outputs of onnxruntime on one random input."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    session = onnxruntime.InferenceSession(path, options)
    (declared,) = session.get_inputs()
    x = np.random.default_rng(0).standard_normal(declared.shape).astype(np.float32)
    return session.run(None, {declared.name: x})


def agree(*paths):
    """Whether onnxruntime computes the same of both, within rounding."""
    pairs = zip(*map(outputs, paths), strict=True)
    return all(np.allclose(a, b, 1e-4, 1e-5) for a, b in pairs)


def optimised(path, level="ORT_ENABLE_EXTENDED"):
    """The file that onnxruntime writes of its optimised graph."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(path.with_suffix(f".{level}.onnx"))
    onnxruntime.InferenceSession(path, options)
    return path.with_suffix(f".{level}.onnx")


def changed(path, change):
    """A copy of a file in which `change` altered the graph."""
    model = onnx.load(path)
    change(model.graph)
    onnx.save(model, path.with_suffix(".changed.onnx"))
    return path.with_suffix(".changed.onnx")


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """A small vision transformer as both exporters of torch write it."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = torch.nn.Conv2d(3, 16, 4, 4)
            self.token = torch.nn.Parameter(torch.randn(1, 1, 16))
            layer = torch.nn.TransformerEncoderLayer(16, 2, 32, activation="gelu", batch_first=True)
            self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = torch.nn.Linear(16, 5)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
            return self.head(self.encoder(x)[:, 0])

    torch.manual_seed(0)
    net, folder = Net().eval(), tmp_path_factory.mktemp("exports")
    x = torch.randn(1, 3, 16, 16)
    files = {}
    for name, dynamo in (("script", False), ("dynamo", True)):
        made, files[name] = io.BytesIO(), folder / f"{name}.onnx"
        torch.onnx.export(net, (x,), made, dynamo=dynamo, opset_version=18)
        files[name].write_bytes(made.getvalue())
    files["optimised"] = optimised(files["script"])
    return files


@pytest.mark.parametrize(
    ("first", "second"),
    [("script", "optimised"), ("optimised", "script"), ("script", "dynamo"), ("dynamo", "script")],
)
def test_exports_of_one_network_compute_the_same(exports, first, second):
    paths = exports[first], exports[second]
    assert agree(*paths)
    numbers = compared(*paths)
    assert not numbers.differ and numbers.first_divergence is None
    assert numbers.is_isolated and len(numbers.layers) > 30


def epsilon(graph):
    node = [node for node in graph.node if node.op_type.endswith("LayerNormalization")][1]
    next(each for each in node.attribute if each.name == "epsilon").f = 0.01
    return node.name


def weight(graph):
    """Changes an output of the last layer."""
    node = [node for node in graph.node if node.op_type == "Gemm"][-1]
    (stored,) = (each for each in graph.initializer if each.name == node.input[1])
    array = numpy_helper.to_array(stored).copy()
    array[0] *= 1.1
    stored.CopyFrom(numpy_helper.from_array(array, stored.name))
    return node.name


@pytest.mark.parametrize("second", ["script", "optimised", "dynamo"])
@pytest.mark.parametrize("change", [epsilon, weight])
def test_a_layer_that_was_changed_in_one_export_is_named(exports, change, second):
    names = []
    path = changed(exports[second], lambda graph: names.append(change(graph)))
    numbers = compared(exports["script"], path)
    assert numbers.differ
    faulty = numbers.layers[numbers.layers["own_fault"] != ""]
    assert faulty["layer_b"].iloc[0] == names[0]


def convolutions(fold=None):
    """Two convolutions, each with a normalisation; of the first, `fold` has it in the weights."""
    chance = np.random.default_rng(1)
    nodes, stored, x = [], [], "x"
    for index in range(2):
        kernel = chance.standard_normal((4, 4, 3, 3)).astype(np.float32) / 6
        scale, bias = chance.uniform(2, 3, (2, 4)).astype(np.float32)
        mean, variance = np.zeros(4, np.float32), np.ones(4, np.float32)
        is_folded = index == 0 and fold
        if is_folded:
            kernel = kernel * (scale / np.sqrt(variance + np.float32(1e-5)))[:, None, None, None]
        arrays = {"w": kernel, "s": scale, "b": bias, "m": mean, "v": variance}
        stored += [numpy_helper.from_array(a, f"{name}{index}") for name, a in arrays.items()]
        bias_input = [f"b{index}"] if is_folded else []
        nodes.append(
            helper.make_node(
                "Conv", [x, f"w{index}", *bias_input], [f"conv{index}"], f"Conv{index}",
                pads=[1, 1, 1, 1],
            )
        )  # fmt: skip
        x = f"conv{index}"
        if not is_folded:
            read = [x, *(f"{name}{index}" for name in "sbmv")]
            nodes.append(helper.make_node("BatchNormalization", read, [f"bn{index}"], f"Bn{index}"))
            x = f"bn{index}"
        nodes.append(helper.make_node("Relu", [x], [f"relu{index}"], f"Relu{index}"))
        x = f"relu{index}"
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4, 8, 8]) for n in ("x", x)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_folded_normalisation_is_no_difference_though_the_convolution_keeps_its_name(tmp_path):
    paths = tmp_path / "a.onnx", tmp_path / "b.onnx"
    for path, fold in zip(paths, (False, True), strict=True):
        onnx.save(convolutions(fold), path)
    assert agree(*paths)
    for pair in (paths, paths[::-1]):
        assert not compared(*pair).differ

    def pads(graph):
        node = next(node for node in graph.node if node.name == "Conv1")
        node.attribute[0].ints[:] = [2, 2, 0, 0]

    numbers = compared(paths[0], changed(paths[1], pads))
    assert (numbers.differ, numbers.first_divergence) == (True, "Conv1")


def test_bits_of_graphs_without_a_common_name_say_so(tmp_path):
    paths = tmp_path / "a.onnx", tmp_path / "b.onnx"
    for path, prefix in zip(paths, ("", "other_"), strict=True):
        model = convolutions()
        for node in model.graph.node:
            for names in (node.input, node.output):
                names[:] = [name if name == "x" else prefix + name for name in names]
        for named in (*model.graph.initializer, *model.graph.output):
            named.name = prefix + named.name
        onnx.save(model, path)
    result = tracer.compare_bits(paths, settings=SETTINGS)
    assert result.is_equal
    (side,) = result.sides
    assert side.sentence == (
        "1 output of equal bits; no node is compared, as none is the same on both sides"
    )


class Calibration(CalibrationDataReader):
    """Random inputs."""

    def __init__(self):
        chance = np.random.default_rng(2)
        self.left = [{"x": chance.standard_normal((1, 4, 8, 8), np.float32)} for _ in range(4)]

    def get_next(self):
        """Returns the next feeds."""
        return self.left.pop() if self.left else None


def test_both_forms_of_a_quantised_model_compute_the_same(tmp_path):
    """QLinear operators against operators between quantisers, which onnxruntime makes the same."""
    onnx.save(convolutions(), tmp_path / "m.onnx")
    source = optimised(tmp_path / "m.onnx", "ORT_ENABLE_BASIC")  # onnxruntime folds BatchNorm first
    paths = []
    for form in (QuantFormat.QDQ, QuantFormat.QOperator):
        paths.append(tmp_path / f"{form.name}.onnx")
        options = {"OpTypesToExcludeOutputQuantization": []}
        quantize_static(source, paths[-1], Calibration(), form, extra_options=options)
    first, second = map(outputs, paths)
    assert np.abs(first[0] - second[0]).max() <= 0.05 * np.abs(first[0]).max()
    for pair in (paths, paths[::-1]):
        numbers = compared(*pair)
        assert not numbers.no_verdict and not numbers.differ
        assert len(numbers.layers) >= 3


def detector(path, threshold, inner="boxes"):
    """Candidates whose number depends on data, and what follows from them."""
    graph = onnx.parser.parse_graph(
        f"""g (float[1,24,4] {inner}, float[1,1,24] scores) => (float[1,1,24] y)
        <float limit = {{{threshold}}}, float overlap = {{0.5}}, int64 most = {{24}}> {{
          kept = NonMaxSuppression ({inner}, scores, most, overlap, limit)
          values = GatherND (scores, kept)
          roots = Sqrt (values)
          mean = ReduceMean <keepdims = 0> (roots)
          y = Mul (scores, mean)
        }}"""
    )
    for node, name in zip(graph.node, ("nms", "gather", "sqrt", "mean", "mul"), strict=True):
        node.name = name
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


def all_tensors(path, feeds):
    """What onnxruntime computes in every node."""
    proto = onnx.load(path)
    names = [name for node in proto.graph.node for name in node.output]
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    fed = zip((each.name for each in session.get_inputs()), feeds, strict=True)
    return dict(zip(names, session.run(None, dict(fed)), strict=True))


def test_nodes_of_which_data_tell_the_size_are_compared_by_name_and_operator(tmp_path):
    paths = detector(tmp_path / "a.onnx", 0.1), detector(tmp_path / "b.onnx", 0.4)
    sides = running.open_sides([str(path) for path in paths], SETTINGS)
    feeds = naming.shared_inputs(sides, SETTINGS)
    ours, theirs = (all_tensors(path, feeds) for path in paths)
    assert 0 < len(theirs["kept"]) < len(ours["kept"])
    numbers = compared(*paths)
    layers = numbers.layers.set_index("layer")
    assert layers.index.tolist() == ["nms", "gather", "sqrt", "mean", "mul"]
    few, many = theirs["kept"].shape, ours["kept"].shape
    told = f"int64[{few[0]},{few[1]}] is not int64[{many[0]},{many[1]}]"
    assert layers.loc["nms", ["fault", "own_fault"]].tolist() == [told, told]
    sizes = f"float32[{len(theirs['roots'])}] is not float32[{len(ours['roots'])}]"
    assert layers.loc[["gather", "sqrt"], "fault"].tolist() == [sizes, sizes]
    assert (layers.drop("nms")["own_fault"] == "").all()  # on the boxes of the first
    assert layers.loc["mean", "max_abs"] == pytest.approx(abs(ours["mean"] - theirs["mean"]))
    assert numbers.differ
    assert numbers.first_divergence == "nms"
    shown = numbers_table(numbers, ViewOptions()).lines
    assert f"3 layers differ in size or text, first 'nms': {told}" in shown


def test_nodes_of_one_size_are_compared_by_their_values_though_data_tell_it(tmp_path):
    paths = [detector(tmp_path / f"{name}.onnx", 0.1) for name in "ab"]
    numbers = compared(*paths)
    assert (len(numbers.layers), numbers.differ) == (5, False)
    assert (numbers.layers["max_abs"] == 0).all()


def test_nodes_of_another_size_that_read_tensors_of_other_names_are_no_pair(tmp_path):
    paths = detector(tmp_path / "a.onnx", 0.1), detector(tmp_path / "b.onnx", 0.4, "corners")
    assert "nms" not in set(compared(*paths).layers["layer"])
