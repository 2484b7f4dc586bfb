"""The compiled element-wise and row-wise kernels against numpy, float64 and onnxruntime."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interpreter.models import agree, normal, quick, single
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.numeric import compiled, parallel

_SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -104.5, 3e38], np.float32)
_UFUNCS = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}


def _with_special_values(x):
    x.reshape(-1)[: len(_SPECIAL)] = _SPECIAL
    return x


@quick
@given(
    st.sampled_from(list(_UFUNCS)),
    st.integers(1, 90),
    st.sampled_from([(), (1,), (7,), (1, 7), (33, 7), (300, 33, 7)]),
    st.booleans(),
)
def test_arithmetic_has_the_bits_of_numpy(name, images, shape, swapped):
    a = _with_special_values(normal(*(images + 40, 33, 7)))
    b = normal(*(shape if len(shape) < 3 else a.shape), seed=1)
    b = np.asarray(b, np.float32)
    feeds = {"a": b, "b": a} if swapped else {"a": a, "b": b}
    result = Interpreter(single(name, feeds), threads=2).run(None, feeds)[0]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(result, _UFUNCS[name](*feeds.values()))


@quick
@given(st.integers(1, 70), st.integers(1, 3000), st.sampled_from([0.1, 3.0, 200.0]))
def test_softmax_is_that_of_float64(rows, size, scale):
    x = normal(rows, size) * np.float32(scale)
    wide = np.exp((x - x.max(axis=-1, keepdims=True)).astype(np.float64))
    with parallel.threads(2):
        result = compiled.softmax(x)
    np.testing.assert_allclose(
        result, wide / wide.sum(axis=-1, keepdims=True), rtol=5e-7, atol=1e-44
    )


def test_softmax_of_rows_that_are_not_finite_is_that_of_numpy():
    x = normal(5, 4096)
    x[0, 17], x[1, 4095], x[2, :], x[3, 5] = np.nan, np.inf, -np.inf, -np.inf
    with np.errstate(all="ignore"):
        wide = np.exp(x - x.max(axis=-1, keepdims=True))
        expected = wide / wide.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(compiled.softmax(x), expected, rtol=1e-6, atol=1e-44)


@quick
@given(st.integers(1, 40), st.integers(1, 2000), st.booleans(), st.floats(-50, 50))
def test_layer_normalization_agrees_with_onnxruntime(rows, size, biased, offset):
    feeds = {
        "x": normal(rows + 10, size + 800) + np.float32(offset),
        "scale": normal(size + 800, seed=1),
        "bias": normal(size + 800, seed=2) if biased else None,
    }
    agree(single("LayerNormalization", feeds, opset=17), feeds, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_statistics_of_layer_normalization_are_outputs(axis):
    shape = (9, 40, 60)
    feeds = {"x": normal(*shape), "scale": normal(*shape[axis:], seed=1)}
    model = single("LayerNormalization", feeds, outputs=3, opset=17, axis=axis)
    agree(model, feeds)


def test_erf_is_that_of_the_standard_library():
    x = np.linspace(-6, 6, 20_001, dtype=np.float32)[None]
    x[0, :3] = np.nan, np.inf, -np.inf
    assert compiled.takes_elements(x)
    result = Interpreter(single("Erf", {"x": x}), threads=2).run(None, {"x": x})[0]
    expected = np.array([[math.erf(value) for value in x[0]]])
    np.testing.assert_allclose(result, expected, rtol=1e-6)
