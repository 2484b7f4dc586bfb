"""Networks that are made to fit, against their stored integers, onnxruntime, and saturation."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

import tracer
from models import families
from tests import graphs
from tests.nets import Builder
from tests.tracer.narrowing.oracle import Stored, overflows_on_worst_inputs
from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.spec.policy import as_policy
from tracer.errors import ModelError, UsageError
from tracer.graph import loading
from tracer.inputs.datasets.opening import open_dataset
from tracer.interpreter.interpreter import Interpreter
from tracer.quantization.options import QuantizationOptions

LENET = families.FOLDER / "lenet" / "lenet.int8.onnx"


def worst_sums(proto):
    """The largest and smallest sum that any input can reach, by node."""
    stored = Stored(proto)
    return {name: stored.worst(name) for name in stored.layers}


@pytest.fixture(scope="module")
def sixteen(tmp_path_factory):
    path = tmp_path_factory.mktemp("narrow") / "acc16.onnx"
    return path, tracer.narrow(LENET, "16", "digits", output=path)


def test_no_input_of_the_stored_weights_needs_more(sixteen):
    path, result = sixteen
    before, after = worst_sums(onnx.load(LENET)), worst_sums(onnx.load(path))
    assert len(after) == 5
    for node in result.nodes:
        top, bottom = after[node.node]
        assert top < 1 << 15 and bottom >= -(1 << 15)
        assert node.guaranteed == 16 or top < 1 << node.guaranteed - 1
        top, bottom = before[node.node]
        assert not (top < 1 << 15 and bottom >= -(1 << 15))
        assert node.guaranteed_before > 16


def test_worst_inputs_of_every_channel_do_not_overflow(sixteen):
    path, _ = sixteen
    stored = Stored(onnx.load(path))
    assert len(stored.layers) == 5
    assert not any(overflows_on_worst_inputs(stored, name, 16) for name in stored.layers)


def test_it_loses_at_most_a_point_where_saturation_loses_most(sixteen):
    _, result = sixteen
    assert result.score == pytest.approx(98.33, abs=0.01)
    assert result.scores.narrowed >= result.score - 1
    assert result.scores.saturated < 50
    assert all(node.fits for node in result.nodes)


def test_onnxruntime_computes_the_same_bit_for_bit(sixteen):
    path, _ = sixteen
    model = loading.load(path)
    emulation = AccumulatorEmulation(model, as_policy("16(overflow=error)"))
    ours = Interpreter(model, wrap_kernel=emulation.wrap, fuse=emulation.fuse)
    theirs = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    for batch in open_dataset("digits", model).batches(90):
        (want,) = theirs.run(None, dict(batch.inputs))
        assert np.array_equal(ours.run(None, batch.inputs)[0], want)


def test_layers_keep_module_source_and_names(sixteen):
    path, _ = sixteen
    before, after = (
        {node.key: (node.module, node.source) for node in loading.load(each).nodes}
        for each in (LENET, path)
    )
    kept = {key: value for key, value in before.items() if key in after}
    assert {key: after[key] for key in kept} == kept
    assert {"node_Conv_22", "node_Conv_23", "node_linear"} <= set(kept)


@pytest.mark.nightly
def test_of_several_widths_the_narrowest_within_the_budget_is_kept():
    result = tracer.narrow(LENET, "6:16:10", "digits", limit=64, test_limit=200, budget=30)
    assert [each.bits for each in result.curve] == [6, 16]
    within = [e.bits for e in result.curve if e.narrowed >= result.score - 30]
    assert result.bits == within[0]
    assert all(each.narrowed >= each.saturated for each in result.curve)
    top = max(max(top, -bottom - 1) for top, bottom in worst_sums(result.proto).values())
    assert top < 1 << result.bits - 1


def test_patterns_set_widths_by_node():
    result = tracer.narrow(LENET, "conv1=24,Gemm=14", "digits", limit=64, test_limit=100)
    pinned = tracer.narrow(LENET, "conv1=6,Conv=24", "digits", limit=64, test_limit=100)
    assert pinned.score == result.score  # of the model before, in wide accumulators throughout
    assert pinned.nodes[0].observed_before == result.nodes[0].observed_before
    bits = {node.node: (node.bits, node.guaranteed, node.measure) for node in result.nodes}
    assert set(bits) == {"node_Conv_22", "node_linear", "node_linear_1", "node_linear_2"}
    assert bits["node_Conv_22"] == (24, 22, "")
    assert all(g <= 14 for node, (_, g, _) in bits.items() if node != "node_Conv_22")


def grouped(tmp_path):
    """Grouped and depthwise convolutions, a product of a matrix, and inputs of both signs."""
    net = Builder("grouped", x=("N", 4, 8, 8))
    net.node("Conv", "g", "x", net.weight("gw", 6, 2, 3, 3), group=2, strides=[2, 2], pads=[1] * 4)
    net.node("Conv", "d", "g", net.weight("dw", 6, 1, 3, 3), net.weight("db", 6), group=6,
             dilations=[1, 1], pads=[1, 1, 1, 1])  # fmt: skip
    net.node("Flatten", "f", "d", axis=1)
    net.node("MatMul", "m", "f", net.weight("mw", 96, 5))
    path = tmp_path / "grouped.onnx"
    onnx.save(net.model("m"), path)
    random = np.random.default_rng(5)
    x = random.normal(0, 1, (120, 4, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x)
    return path, tmp_path / "data.npz"


def test_groups_products_and_inputs_of_both_signs(tmp_path):
    path, data = grouped(tmp_path)
    result = tracer.narrow(path, "16", data, output=tmp_path / "n.onnx", metric="noise", budget=100)
    assert len(result.nodes) == 3
    worst = worst_sums(onnx.load(tmp_path / "n.onnx"))
    assert all(top < 1 << 15 and bottom >= -(1 << 15) for top, bottom in worst.values())
    session = ort.InferenceSession(tmp_path / "n.onnx", providers=["CPUExecutionProvider"])
    x = np.load(data)["x"]
    (narrowed,) = session.run(None, {"x": x})
    (wide,) = ort.InferenceSession(path).run(None, {"x": x})
    assert 10 * np.log10((wide**2).sum() / ((wide - narrowed) ** 2).sum()) > 22


@pytest.mark.nightly
def test_activations_of_16_bits_become_bytes(tmp_path):
    path, data = grouped(tmp_path)
    wide = tmp_path / "wide.onnx"
    options = QuantizationOptions(activation_type="uint16")
    tracer.quantize(path, data, output=wide, options=options, metric="noise")
    tracer.narrow(wide, "18", data, output=tmp_path / "n.onnx", metric="noise", budget=100)
    worst = worst_sums(onnx.load(tmp_path / "n.onnx"))
    assert all(top < 1 << 17 and bottom >= -(1 << 17) for top, bottom in worst.values())


@pytest.fixture(scope="module")
def transformer(tmp_path_factory):
    path = tmp_path_factory.mktemp("narrow") / "acc16.onnx"
    model = families.FOLDER / "transformer" / "transformer.int8.onnx"
    return path, tracer.narrow(model, "16", "digits", limit=64, test_limit=40, output=path)


@pytest.mark.nightly
def test_products_of_activations_fit_by_fewer_steps_of_both(transformer):
    path, result = transformer
    assert all(node.fits for node in result.nodes)
    changed = {node.node: node for node in result.nodes if node.measure == "operands"}
    assert len(changed) == 4  # both products of attention, in two layers
    proto = onnx.load(path)
    stored = Stored(proto)
    products = [node for node in proto.graph.node if node.name in changed]
    for node, depth in zip(products, depths(proto, products), strict=True):
        assert depth * np.prod([np.abs(stored.range(n)).max() for n in node.input]) < 1 << 15


def depths(proto, nodes):
    """The number of terms of products, from onnxruntime."""
    for node in nodes:
        value = helper.make_tensor_value_info(node.input[0], onnx.TensorProto.FLOAT, None)
        proto.graph.output.append(value)
    session = ort.InferenceSession(proto.SerializeToString())
    batch = next(open_dataset("digits", loading.load(LENET)).batches(2))
    (x,) = session.get_inputs()
    (fed,) = batch.inputs.values()
    return [y.shape[-1] for y in session.run([n.input[0] for n in nodes], {x.name: fed})]


@pytest.mark.nightly
def test_a_pooling_reads_so_few_steps_that_all_of_them_fit():
    model = families.FOLDER / "resnet_cifar" / "resnet20.int8.onnx"
    result = tracer.narrow(model, "AveragePool=10", "digits", limit=64, test_limit=40)
    (node,) = result.nodes
    assert (node.measure, node.guaranteed) == ("operands", 10)
    assert node.guaranteed_before == 15


UPSAMPLED = """<ir_version: 9, opset_import: ["": 20]>
g (float[N,4,3,3] x) => (float[N,3,6,6] y) {
  xq = QuantizeLinear (x, s, z)  xd = DequantizeLinear (xq, s, z)
  wd = DequantizeLinear (w, s, z)  c = Conv (xd, wd)
  cq = QuantizeLinear (c, t, z)  cd = DequantizeLinear (cq, t, z)
  vd = DequantizeLinear (v, s, z)  y = ConvTranspose <strides = [2,2]> (cd, vd) }"""


@pytest.mark.parametrize(("bits", "is_named"), [("16", True), ("20", False)])
def test_a_transposed_convolution_that_does_not_fit_is_named(tmp_path, bits, is_named):
    random = np.random.default_rng(3)
    stored = {"w": (8, 4, 1, 1), "v": (8, 3, 2, 2)}
    weights = {n: random.integers(-127, 128, shape).astype(np.int8) for n, shape in stored.items()}
    proto = graphs.parse(UPSAMPLED, s=np.float32(0.05), t=np.float32(0.5), z=np.int8(0), **weights)
    onnx.save(proto, tmp_path / "up.onnx")
    np.savez(tmp_path / "data.npz", x=random.normal(0, 3, (20, 4, 3, 3)).astype(np.float32))
    result = tracer.narrow(
        tmp_path / "up.onnx", bits, tmp_path / "data.npz", metric="noise", budget=100
    )
    row = next(each for each in result.nodes if each.op_type == "ConvTranspose")
    most = 128 * np.abs(weights["v"].astype(int)).sum(0).max()
    assert row.guaranteed == row.guaranteed_before == int(most).bit_length() + 1 > 16
    named = "tracer narrow does not change ConvTranspose, and its sums need more bits"
    assert any(named in note for note in result.notes) is is_named


@pytest.mark.parametrize(
    ("bits", "reason"),
    [
        ("conv1=12:14,*=12:16", "both have several widths"),
        ("conv1=x", "no width and no range"),
        ("1", "Widths from 2 to 64"),
        ("nothing=16", "'nothing=16' matches no node"),
    ],
)
def test_widths_that_cannot_be(bits, reason):
    with pytest.raises(UsageError, match=reason):
        tracer.narrow(LENET, bits, "digits", test_limit=10, limit=10)


def test_weights_in_blocks_are_told_as_such():
    text = """<ir_version: 10, opset_import: ["": 21]> g (float[N, 16] x) => (float[N, 4] y)
        <float s = {0.1}, uint8 z = {0}> {
        x_q = QuantizeLinear(x, s, z)
        x_d = DequantizeLinear(x_q, s, z)
        w_d = DequantizeLinear<axis = 0, block_size = 8>(w, scales)
        y = MatMul(x_d, w_d)
    }"""
    proto = onnx.parser.parse_model(text)
    stored = {"w": np.ones((16, 4), np.int8), "scales": np.ones((2, 4), np.float32)}
    proto.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in stored.items())
    data = {"x": np.ones((4, 16), np.float32)}
    plain = ort.SessionOptions()  # a fused kernel of onnxruntime fails on scales of blocks
    plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(proto.SerializeToString(), plain)
    assert np.allclose(session.run(None, data)[0], 16)
    with pytest.raises(ModelError, match="in blocks, each with a scale of its own"):
        tracer.narrow(proto, 16, data)


def test_a_model_without_layers_in_qdq_form_is_refused(tmp_path):
    net = Builder("no", x=("N", 3))
    net.node("Relu", "y", "x")
    onnx.save(net.model("y"), tmp_path / "no.onnx")
    np.savez(tmp_path / "d.npz", x=np.ones((4, 3), np.float32))
    with pytest.raises(ModelError, match="no layer can be narrowed: it has no convolution"):
        tracer.narrow(tmp_path / "no.onnx", "16", tmp_path / "d.npz", metric="noise")
    tracer.quantize(
        families.FOLDER / "lenet" / "lenet.onnx", "digits", output=tmp_path / "q.onnx", limit=20,
        test_limit=10, options=QuantizationOptions(format="qoperator"),
    )  # fmt: skip
    with pytest.raises(ModelError, match=r"q\.onnx: no layer can be narrowed"):
        tracer.narrow(tmp_path / "q.onnx", "16", "digits", test_limit=10)


@pytest.mark.nightly
def test_a_float_model_that_quantising_ruins_is_told(tmp_path):
    """A detour of logits by way of 10,000 leaves eight bits nothing of them."""
    proto = onnx.load(families.FOLDER / "lenet" / "lenet.onnx")
    logits = proto.graph.output[0].name
    proto.graph.node[-1].output[0] = "short"
    far = onnx.numpy_helper.from_array(np.array(1e4, np.float32), "far")
    proto.graph.initializer.append(far)
    proto.graph.node.extend([
        helper.make_node("Add", ["short", "far"], ["away"], "away"),
        helper.make_node("Sub", ["away", "far"], [logits], "back"),
    ])  # fmt: skip
    onnx.save(proto, tmp_path / "detour.onnx")
    few = {"limit": 16, "test_limit": 32}
    told = tracer.narrow(tmp_path / "detour.onnx", 22, "digits", **few).notes
    (note,) = (note for note in told if note.startswith("quantising alone cost more"))
    assert "tracer quantize --nodes MatMul" in note
    fine = tracer.narrow(families.FOLDER / "lenet" / "lenet.onnx", 22, "digits", **few).notes
    assert not any("quantising alone" in note for note in fine)


def test_biases_may_be_floats_as_other_quantisers_store_them(sixteen, tmp_path):
    """NNCF and Brevitas keep them beside stored integers; onnxruntime computes the same."""
    proto = onnx.load(LENET)
    weights = {each.name: onnx.numpy_helper.to_array(each) for each in proto.graph.initializer}
    made = {node.output[0]: node for node in proto.graph.node}
    for node in list(proto.graph.node):
        source = made.get(node.input[2]) if len(node.input) > 2 else None
        if source is not None and source.op_type == "DequantizeLinear":
            value = weights[source.input[0]] * weights[source.input[1]]
            stored = onnx.numpy_helper.from_array(value.astype(np.float32), source.output[0])
            proto.graph.initializer.append(stored)
            proto.graph.node.remove(source)
    onnx.save(proto, tmp_path / "floats.onnx")
    _, before = sixteen
    path = tmp_path / "narrow.onnx"
    result = tracer.narrow(tmp_path / "floats.onnx", "16", "digits", output=path)
    assert [each.guaranteed for each in result.nodes] == [16] * 5
    assert not any(overflows_on_worst_inputs(Stored(onnx.load(path)), each.node, 16)
                   for each in result.nodes)  # fmt: skip
    assert abs(result.scores.narrowed - before.scores.narrowed) <= 1
