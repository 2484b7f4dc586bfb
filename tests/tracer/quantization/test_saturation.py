"""When onnxruntime's own figures may be worse than ours."""

from __future__ import annotations

import pytest

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
