"""Faults of releases of onnxruntime that others reported, extracted from longer models."""

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from onnx import numpy_helper

import tracer
from tests.graphs import parse
from tests.releases import run_script
from tracer.errors import InputError
from tracer.executors.releases import Release

REPORTED = {
    # what was reported of releases: nodes between two chains, the release, the fault, what is left
    "pad": ("float[1,3,9,9]", "p = Pad (h, pads) o = AveragePool <kernel_shape = [3,3], "
            "pads = [1,1,1,1]> (p)", 17, "1.20.1", "wrong", ["Pad", "AveragePool"]),
    "transpose": ("float[3,4]", "t = Transpose <perm = [0,1]> (w) o = Gemm (h, t, b)", 17, "1.27.0",
                  "wrong", ["Transpose", "Gemm"]),
    "same": ("float[1,1,6,2]", 'o = AveragePool <kernel_shape = [5,1], auto_pad = "SAME_LOWER", '
             "count_include_pad = 1> (h)", 19, "1.22.1", "wrong", ["AveragePool"]),
    "sum": ("float[1,16,2,2]", "o = com.microsoft.FusedConv (h, k, z, x)", 17, "1.20.1", "wrong",
            ["FusedConv"]),
    "skip": ("float[2,3,4]", "r = Add (h, x) o = LayerNormalization (r, g, g)", 17, "1.20.1",
             "crash", ["Add", "LayerNormalization"]),
    "clip": ("double[3,5]", "r = Relu (h) o = Clip (r, low)", 17, "", "crash", ["Relu", "Clip"]),
}  # fmt: skip


def reported(name):
    """A model with a fault that was reported, and what there is to know of it."""
    kind, part, opset, *known = REPORTED[name]
    proto = onnx.parser.parse_model(f"""
    <ir_version: 9, opset_import: ["": {opset}, "com.microsoft": 1]>
    g ({kind} x) => ({kind} y) {{
      a = Neg (x) c = Abs (a) d = Sqrt (c) h = Neg (d) {part} e = Neg (o) f = Abs (e) y = Neg (f)
    }}
    """)
    random, stored = np.random.default_rng(0), {"pads": np.array([0, 0, 1, 1] * 2), "low": -0.5}
    shapes = {"w": (4, 4), "b": (4,), "k": (16, 16, 1, 1), "z": (16,), "g": (1, 1, 4)}
    stored |= {n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    read = {each for node in proto.graph.node for each in node.input}
    arrays = [numpy_helper.from_array(np.asarray(v), n) for n, v in stored.items() if n in read]
    proto.graph.initializer.extend(arrays)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    return proto, *known


@pytest.mark.nightly
@pytest.mark.parametrize("name", REPORTED)
def test_a_fault_that_was_reported_is_what_was_reported(name, tmp_path):
    """Where a release is there: this downloads none."""
    proto, release, fault, operators = reported(name)
    folders = [Release(release).folder] if release else []
    if not all(folder.exists() for folder in folders):
        pytest.skip(f"onnxruntime {release} is not installed")
    onnx.save(proto, tmp_path / "m.onnx")
    against = "interpreter" if name == "same" else None
    target, options = tmp_path / "fault.py", {"fault": fault, "ort": release or None}
    result = tracer.extract(tmp_path / "m.onnx", [target], against=against, **options)
    assert result.nodes == len(operators)
    assert all(operator in result.report for operator in operators)
    assert result.data_bytes <= 4096
    assert run_script(target, *folders) == 1
    if folders:
        assert run_script(target) == 0


def test_a_model_that_fails_where_it_should_be_wrong_is_told_to_be_a_crash(tmp_path):
    onnx.save(reported("clip")[0], tmp_path / "m.onnx")
    with pytest.raises(InputError, match=r"does not run in .* .level all.*fault crash"):
        tracer.extract(tmp_path / "m.onnx", [tmp_path / "fault.py"], fault="wrong")


def test_a_model_that_does_not_run_is_refused_in_the_words_of_the_runtime(tmp_path):
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[2] y) {
      [rows] y = Gather (x, places) }"""
    proto = parse(text, places=np.array([3, 14]))
    onnx.save(proto, tmp_path / "m.onnx")
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with pytest.raises(Exception, match="idx=14") as raised:
        session.run(None, {"x": np.zeros(4, np.float32)})
    with pytest.raises(InputError) as refused:
        tracer.extract(tmp_path / "m.onnx", [tmp_path / "fault.py"], fault="wrong")
    assert str(raised.value).partition("Status Message: ")[2] in refused.value.what
