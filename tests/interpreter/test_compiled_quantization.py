"""Large tensors quantised and back by the compiled kernels, against onnxruntime bit for bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interpreter.models import agree, quick, single
from tracer.interpreter.numeric import compiled

KINDS = (np.uint8, np.int8)


def floats(seed, scale):
    """Values of all sizes, ties among them, and those beyond every range."""
    random = np.random.default_rng(seed)
    x = random.normal(0, 90 * scale, (3, 7000)).astype(np.float32)
    x[1] = random.integers(-600, 600, 7000) * np.float32(scale / 2)
    x[2, :6] = [np.inf, -np.inf, 1e30, -1e30, -0.0, 3e9]
    return x


@quick
@given(
    st.sampled_from(KINDS),
    st.integers(0, 127),
    st.floats(2**-13, 50, width=32),
    st.integers(0, 99),
)
def test_quantised_as_by_onnxruntime(kind, zero, scale, seed):
    x = floats(seed, scale)
    feeds = {"x": x, "s": np.asarray(scale, np.float32), "z": np.asarray(zero, kind)}
    assert compiled.takes_quantization(x, feeds["s"], feeds["z"], np.dtype(kind))
    agree(single("QuantizeLinear", feeds), feeds, rtol=0, atol=0)


@quick
@given(st.sampled_from(KINDS), st.integers(0, 127), st.floats(2**-13, 50, width=32))
def test_dequantised_as_by_onnxruntime(kind, zero, scale):
    x = np.arange(1 << 15).astype(kind).reshape(8, -1)
    feeds = {"x": x, "s": np.asarray(scale, np.float32), "z": np.asarray(zero, kind)}
    assert compiled.takes_quantization(x, feeds["s"], feeds["z"], np.dtype(np.float32))
    agree(single("DequantizeLinear", feeds), feeds, rtol=0, atol=0)


@pytest.mark.parametrize("kind", [*KINDS, np.int16])
@pytest.mark.parametrize("size", [3, 1 << 14])
def test_nan_is_quantised_as_by_onnxruntime(kind, size):
    x = np.full(size, np.nan, np.float32)
    feeds = {"x": x, "s": np.asarray(0.1, np.float32), "z": np.asarray(3, kind)}
    with np.errstate(all="ignore"):
        agree(single("QuantizeLinear", feeds), feeds, rtol=0, atol=0)


def test_one_scale_for_each_channel_is_left_to_numpy():
    x, scales = np.zeros((3, 7000), np.float32), np.ones(3, np.float32)
    assert not compiled.takes_quantization(x, scales, None, np.dtype(np.uint8))
    assert not compiled.takes_quantization(
        x.astype(np.float16), scales[:1], None, np.dtype(np.uint8)
    )
