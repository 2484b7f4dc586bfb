"""Each change: a model where it applies and one where it does not, and what it makes."""

import ast
import json
import shlex
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from tests.graphs import embedding, parse, residual
from tests.tracer.tuning.told import CPU, findings, machine, timed
from tracer.analyzers.advice import QUANTISING
from tracer.containment.activity import silent
from tracer.errors import ModelError, TracerError, UsageError
from tracer.executors.onnxruntime import feeding
from tracer.executors.settings import SessionSettings
from tracer.records import environment
from tracer.tuning import changes
from tracer.tuning import setup as machines
from tracer.tuning.candidates import OnnxruntimeBench
from tracer.tuning.setup import Setup

BENCH = OnnxruntimeBench(0, silent)


def draw(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


PRODUCT = """
<ir_version: 8, opset_import: ["": 17]>
g (float[N,64] x) => (float[N,64] y) { m = MatMul (x, w)  y = Relu (m) }
"""
BRANCHED = """
<ir_version: 8, opset_import: ["": 17]>
g (float[8,64] x) => (float[8,64] y) { a = MatMul (x, w)  b = MatMul (x, v)  y = Max (a, b) }
"""
ELEMENTWISE = """
<ir_version: 8, opset_import: ["": 17]>
g (float[8] x) => (float[8] y) { a = Sin (x)  y = Cos (a) }
"""
ONE_NODE = """
<ir_version: 8, opset_import: ["": 17]>
g (float[8] x) => (float[8] y) { y = Sin (x) }
"""
MANY_BYTES = """
<ir_version: 8, opset_import: ["": 17]>
g (float[8] x) => (float[300000] y) {
  shape = Constant <value_ints = [300000]> ()
  n = ReduceSum <keepdims = 0> (x)
  y = Expand (n, shape)
}
"""
COMPUTED_SHAPE = """
<ir_version: 8, opset_import: ["": 17]>
g (float[N,4,6] x) => (float[N,24] y) {
  s = Shape <start = 0, end = 1> (x)
  rest = Constant <value_ints = [-1]> ()
  to = Concat <axis = 0> (s, rest)
  r = Reshape (x, to)
  y = Relu (r)
}
"""
OLD = """
<ir_version: 6, opset_import: ["": 11]>
g (float[8,64] x) => (float[8,64] y) { m = MatMul (x, w)  y = Softmax <axis = 1> (m) }
"""


def product(text=PRODUCT, **weights):
    return parse(text, w=draw(64, 64), **weights)


def attention():
    """An encoder as exporters write it: attention of operators, no Attention."""
    return onnx.load("models/transformer/transformer.onnx")


def why(name, found):
    return changes.find(name).applies(found)


def made(name, found, value=None):
    change = changes.find(name)
    value = value or change.values(found)[0]
    return change.apply(found.setup, value)


def outputs(found, setup):
    """The outputs of the unchanged setup, and of `setup`, by onnxruntime."""
    return BENCH.outputs(found.setup), BENCH.outputs(setup)


def test_every_change_has_its_tests_here():
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {change.name for change in changes.changes()} <= tested


def test_threads():
    found = timed(findings(product()))
    assert "50% of the time is spent in products" in why("threads", found)
    assert changes.find("threads").values(found) == ["1", "2", "3"]  # 4 are the default
    assert made("threads", found, "2").settings.threads == 2
    large = timed(findings(product(), on=machine(64)))
    assert changes.find("threads").values(large) == ["1", "2", "4", "8", "16", "32"]
    assert why("threads", timed(findings(product(), on=machine(1)))) is None


def test_spinning():
    assert "4 threads spin" in why("spinning", findings(product()))
    assert made("spinning", findings(product())).session.entries == {
        "session.intra_op.allow_spinning": "0"
    }
    assert why("spinning", findings(product(), threads=1)) is None


def test_parallel():
    branched = timed(findings(product(BRANCHED, v=draw(64, 64))))
    assert "33% of the time" in why("parallel", branched)  # one of two products of three kernels
    session = made("parallel", branched, "2").session
    assert session.parallel and session.inter_op_threads == 2
    assert why("parallel", timed(findings(product()))) is None


def test_optimization():
    slow = findings(residual(), optimization="none")
    assert "the level is none, and 8 kernels run" in why("optimization", slow)
    assert changes.find("optimization").values(slow) == ["extended", "all"]
    assert made("optimization", slow, "all").settings.optimization == "all"
    assert "left" in why("optimization", findings(residual()))
    assert why("optimization", findings(parse(ONE_NODE))) is None


def test_layout():
    name, found = "layout", findings(parse(ELEMENTWISE))
    assert why(name, found) is None
    blocked = findings(residual())
    if not blocked.operators["ReorderOutput"]:
        pytest.skip("onnxruntime has no blocked layout on this processor")
    assert "1 change of layout takes" in why(name, blocked)
    setup = made(name, blocked)
    assert setup.session.disabled == ("NchwcTransformer", "NhwcTransformer")
    again = findings(residual(), session=setup.session)
    assert why(name, again) is None
    before, after = outputs(blocked, setup)
    assert np.allclose(before[0], after[0], rtol=1e-4)


def test_memory_pattern():
    assert "tensors" in why("memory_pattern", findings(product()))
    assert not made("memory_pattern", findings(product())).session.memory_pattern
    assert why("memory_pattern", findings(parse(ONE_NODE))) is None


def test_arena():
    assert "the arena keeps" in why("arena", findings(parse(MANY_BYTES)))
    assert not made("arena", findings(parse(MANY_BYTES))).session.arena
    assert why("arena", findings(parse(ELEMENTWISE))) is None


def test_binding():
    found = findings(parse(MANY_BYTES))
    assert "1,200,000 bytes of outputs are copied" in why("binding", found)
    setup = made("binding", found)
    before, after = outputs(found, setup)
    assert np.array_equal(before[0], after[0])
    assert why("binding", findings(parse(ELEMENTWISE))) is None


@pytest.mark.skipif(
    not feeding.can_flush_denormals(), reason="the control register is not known here"
)
def test_denormals():
    tiny = findings(parse(PRODUCT, w=np.full((64, 64), 1e-39, np.float32)))
    assert "numbers in weights and tensors are denormal" in why("denormals", tiny)
    before, after = outputs(tiny, made("denormals", tiny))
    assert np.abs(before[0]).max() > 0 == np.abs(after[0]).max()
    assert why("denormals", findings(product())) is None


def test_fast_math():
    arm = machine(flags=("asimddp", "bf16"), architecture="aarch64")
    assert "multiplies bfloat16" in why("fast_math", timed(findings(product(), on=arm)))
    found = timed(findings(product()))
    assert why("fast_math", found) is None
    assert made("fast_math", found).session.entries == {
        "mlas.enable_gemm_fastmath_arm64_bfloat16": "1"
    }


def test_a_processor_of_arm_with_bfloat16_is_known(monkeypatch):
    features = "fp asimd evtstrm aes asimddp sve bf16 i8mm"  # a Graviton3
    monkeypatch.setattr(environment, "_cpuinfo", lambda field: features * (field == "Features"))
    monkeypatch.setattr(machines.platform, "machine", lambda: "aarch64")
    here = machines.Machine.this()
    assert {"bf16", "i8mm", "asimddp"} <= here.flags and not here.saturates
    assert "multiplies bfloat16" in why("fast_math", timed(findings(product(), on=here)))


def test_provider():
    on = machine(providers=("OpenVINOExecutionProvider", "AzureExecutionProvider", CPU))
    found = findings(product(), on=on)
    assert why("provider", found) == "the installed onnxruntime also has openvino"
    assert made("provider", found).settings.provider == "openvino"
    assert why("provider", findings(product())) is None


def test_fixed_dimensions():
    found = findings(parse(COMPUTED_SHAPE), batch=3)
    assert "N is open" in why("fixed_dimensions", found)
    assert kernels_with_fixed_dimensions(found) < len(found.kernels)
    setup = made("fixed_dimensions", found)
    assert setup.session.dims == {"N": 3}
    before, after = outputs(found, setup)
    assert np.array_equal(before[0], after[0])
    assert why("fixed_dimensions", findings(parse(ELEMENTWISE))) is None
    found = findings(product(), batch=3)
    assert found.setup.open_dims == {"N": 3}
    assert kernels_with_fixed_dimensions(found) == len(found.kernels)
    assert why("fixed_dimensions", found) is None


def kernels_with_fixed_dimensions(found):
    """How many kernels run in a session of onnxruntime that knows all sizes when it opens."""
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = tempfile.mkdtemp() + "/"
    for name, size in found.setup.open_dims.items():
        options.add_free_dimension_override_by_name(name, size)
    session = ort.InferenceSession(
        found.model.proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    session.run(None, found.feedset.feeds)
    events = json.loads(Path(session.end_profiling()).read_text())
    return sum(event["name"].endswith("_kernel_time") for event in events)


def test_folding():
    found = timed(findings(parse(COMPUTED_SHAPE), batch=2))
    assert "2 kernels compute shapes" in why("folding", found)
    setup = made("folding", found)
    assert [node.op_type for node in setup.model.graph.node][-2:] == ["Reshape", "Relu"]
    assert len(setup.model.graph.node) == len(found.model.graph.node) - 2
    onnx.checker.check_model(setup.model.proto)
    before, after = outputs(found, setup)
    assert np.array_equal(before[0], after[0])
    session = ort.InferenceSession(
        setup.model.proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    feeds = {name: np.concatenate([x, x]) for name, x in found.feedset.feeds.items()}
    with pytest.raises(Exception, match="invalid dimensions"):  # its constants are of a batch of 2
        session.run(None, feeds)
    assert why("folding", timed(findings(product(), batch=2))) is None


def test_unlisted_weights():
    listed = product()
    listed.graph.input.append(
        onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [64, 64])
    )
    found = findings(listed, batch=2)
    assert why("unlisted_weights", found).startswith("1 weight is listed among the inputs")
    setup = made("unlisted_weights", found)
    assert [value.name for value in setup.model.graph.input] == ["x"]
    before, after = outputs(found, setup)
    assert np.allclose(before[0], after[0], rtol=1e-5, atol=1e-5)
    assert why("unlisted_weights", findings(product(), batch=2)) is None


def test_batch():
    found = findings(product(), batch=2, goal="throughput")
    assert "the batch of 2 is open" in why("batch", found)
    assert changes.find("batch").goals == ("throughput",)
    setup = made("batch", found, "8")
    assert (setup.samples, setup.feedset.batch) == (4, 8)
    before, after = outputs(found, setup)
    assert np.allclose(np.concatenate([before[0]] * 4), after[0], rtol=1e-5)
    assert why("batch", findings(product(BRANCHED, v=draw(64, 64)), goal="throughput")) is None


def test_opset():
    found = findings(product(OLD))
    assert "the model has opset 11" in why("opset", found)
    setup = made("opset", found)
    assert setup.model.opsets[""] == 17
    before, after = outputs(found, setup)
    assert np.allclose(before[0], after[0], rtol=1e-5)
    assert why("opset", findings(product())) is None


@pytest.mark.nightly
def test_fusions():
    found = timed(findings(attention()))
    assert "none is fused to Attention" in why("fusions", found)
    kinds = changes.find("fusions").values(found)
    fused = [setup for kind in kinds if (setup := fused_as(kind, found)) is not None]
    for setup in fused:
        before, after = outputs(found, setup)
        assert np.allclose(before[0], after[0], atol=1e-3)
    assert fused
    assert why("fusions", timed(findings(product()))) is None


def fused_as(kind, found):
    try:
        return made("fusions", found, kind)
    except ModelError:
        return None


@pytest.mark.nightly
def test_dynamic_int8():
    found = timed(findings(product()))
    assert "adds products of bytes in 32 bits" in why("dynamic_int8", found)
    setup = made("dynamic_int8", found)
    assert "MatMulInteger" in {node.op_type for node in setup.model.graph.node}
    before, after = outputs(found, setup)
    assert 0 < np.abs(before[0] - after[0]).max() < 0.1 * np.abs(before[0]).max()
    old = timed(findings(product(), on=machine(flags=("avx2",))))
    assert changes.find("dynamic_int8").values(old) == ["uint8"]
    assert why("dynamic_int8", timed(findings(parse(ELEMENTWISE)))) is None


@pytest.mark.parametrize(
    ("flags", "architecture", "values"),
    [(("avx2", "avx512_vnni"), "x86_64", ["u8s8", "s8s8"]),
     (("avx2",), "x86_64", ["u8u8", "u8s8 narrowed", "u8s8"]),
     (("asimddp",), "aarch64", ["s8s8", "u8s8"])],
)  # fmt: skip
def test_the_types_of_8_bits_are_those_that_the_processor_multiplies(flags, architecture, values):
    found = timed(findings(residual(), on=machine(flags=flags, architecture=architecture)))
    assert changes.find("static_int8").values(found) == values


def test_advice_allows_what_quantises():
    assert {each.name for each in changes.changes() if each.effect == "quantize"} == QUANTISING


@pytest.mark.nightly
def test_static_int8():
    found = timed(findings(residual()))
    assert "products take" in why("static_int8", found)
    for value, stored in (("u8s8", onnx.TensorProto.INT8), ("u8u8", onnx.TensorProto.UINT8)):
        setup = made("static_int8", found, value)
        weights = [w for w in setup.model.graph.initializer if w.name.endswith("_quantized")]
        assert stored in {w.data_type for w in weights if len(w.dims) == 4}
        before, after = outputs(found, setup)
        assert 0 < np.abs(before[0] - after[0]).max() < 0.3 * np.abs(before[0]).max()
    quantised = findings(setup.model.proto)
    assert why("static_int8", timed(quantised)) is None
    assert why("static_int8", timed(findings(parse(ELEMENTWISE)))) is None


def test_weights_4bit():
    found = timed(findings(product()))
    assert "MatMul with 16,384 bytes of weights take 50% of the time" in why("weights_4bit", found)
    setup = made("weights_4bit", found, "level 4")
    (node,) = [n for n in setup.model.graph.node if n.op_type == "MatMulNBits"]
    assert {a.name: a.i for a in node.attribute}["accuracy_level"] == 4
    before, after = outputs(found, setup)
    assert 0 < np.abs(before[0] - after[0]).max() < 0.3 * np.abs(before[0]).max()
    assert why("weights_4bit", timed(findings(residual()))) is None


def test_what_cannot_be_made_is_an_error_of_one_sentence():
    no_shape = findings(product(), batch=2)
    with pytest.raises(ModelError, match="no node computes a shape"):
        made("folding", no_shape)
    with pytest.raises(TracerError, match="no batch of 3"):
        made("batch", no_shape, "3")
    nothing = findings(parse(ELEMENTWISE))
    with pytest.raises(ModelError, match=r"patterns of bert|cannot fuse"):
        made("fusions", nothing, "bert")
    with pytest.raises(ModelError):
        made("weights_4bit", nothing, "level 0")


def test_a_changed_model_keeps_its_name_and_settings():
    found = findings(product(), threads=2, session=SessionSettings(arena=False))
    setup = made("opset", findings(product(OLD), threads=2), "17")
    assert setup.model.name == "<model in memory>" and setup.settings.threads == 2
    assert isinstance(setup, Setup)
    assert numpy_helper.to_array(setup.model.graph.initializer[0]).shape == (64, 64)
    assert made("spinning", found).session.arena is False


def test_steps_are_read_as_they_are_written():
    written = changes.parsed(["threads=2", "folding=shapes"])
    assert [str(step) for step in written] == ["folding=shapes", "threads=2"]
    for wrong in ("threads", "threads=", "warp=9"):
        with pytest.raises(UsageError, match=r"is no change and its form|no change 'warp'"):
            changes.parsed([wrong])


def test_whose_threads_spin():
    assert findings(product()).setup.spins
    assert not findings(product(), threads=1).setup.spins
    assert not made("spinning", findings(product())).spins
    branched = findings(product(BRANCHED, v=draw(64, 64)), threads=1)
    assert made("parallel", branched, "2").spins


@pytest.mark.nightly
def test_commands_name_the_file():
    for change in changes.changes():
        if change.command is not None:
            found = timed(findings(product(OLD), dims=None))
            name = "it's my net.onnx"
            command = change.command(found.setup, change.values(found)[0], name)
            if command.startswith("onnx"):
                words = [n.value for n in ast.walk(ast.parse(command)) if type(n) is ast.Constant]
            else:
                words = shlex.split(command)
            assert {name, "tuned.onnx"} <= {*words}, change.name


def test_embeddings_have_nothing_to_fold_where_no_shape_is_computed():
    assert why("folding", timed(findings(embedding(), dims={"sequence": 4}))) is None
