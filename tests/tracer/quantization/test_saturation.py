"""When onnxruntime's own figures may be worse than ours."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest

import tracer
from tests.graphs import parse
from tracer.quantization.options import QuantizationOptions as Options
from tracer.quantization.quantizer import saturation_note


@pytest.mark.parametrize(
    ("flags", "options", "warned"),
    [
        (("avx2",), Options(), True),
        (("avx2", "avx512bw"), Options(activation_type="int8"), True),
        (("avx2", "avx512_vnni"), Options(), False),
        (("avx2", "avx_vnni"), Options(), False),
        (("asimd",), Options(), False),
        ((), Options(), False),
        (("avx2",), Options(reduce_range=True), False),
        (("avx2",), Options(weight_type="uint8"), False),
        (("avx2",), Options(weight_type="int16"), False),
        (("avx2",), Options(activation_type="uint16"), False),
    ],
)
def test_a_processor_without_vnni_is_told(flags, options, warned):
    note = saturation_note(options, flags)
    assert (note is not None) == warned
    assert not warned or "--reduce-range" in str(note)


@pytest.mark.parametrize(("flags", "is_measured"), [(("avx2",), True), (("avx_vnni",), False)])
def test_what_saturates_is_measured_in_onnxruntime(tmp_path, monkeypatch, flags, is_measured):
    """The mean square of the error of onnxruntime's outputs, beside that of exact sums."""
    monkeypatch.setattr("tracer.records.environment.cpu_flags", lambda: flags)
    random = np.random.default_rng(0)
    weights = random.uniform(0.5, 1, (64, 8)).astype(np.float32)
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[N,64] x) => (float[N,8] y) '
    model = parse(text + "{ y = MatMul(x, w) }", w=weights)
    x = random.uniform(0.8, 1, (32, 64)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    call = {"calibrate": tmp_path / "x.npz", "metric": "mse", "in_process": True}
    result = tracer.quantize(model, output=tmp_path / "q.onnx", **call)
    if not is_measured:
        assert result.accuracy.here is None
        return
    y = ort.InferenceSession(str(tmp_path / "q.onnx")).run(None, {"x": x})[0]
    assert result.accuracy.here == pytest.approx(((y - x @ weights) ** 2).mean(), rel=1e-3)
    assert "in onnxruntime on this processor: " in str(result._repr_html_())
