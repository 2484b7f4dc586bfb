"""Tolerances and errors as shares of a tensor's scale, against numpy and known tensors."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tracer.support.tolerance import Precision, Tolerance, compare, rms, rounding

EXACT = Tolerance(0, 0)
NUMBERS = st.floats(-1e100, 1e100).filter(lambda x: x == 0 or abs(x) > 1e-100)
VECTORS = arrays.arrays(np.float64, 8, elements=NUMBERS)
FLOATS = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]


@given(VECTORS, VECTORS)
def test_errors_are_those_of_numpy(ours, theirs):
    difference = compare(ours, theirs, EXACT)
    error = ours - theirs
    assert difference.max_abs == np.abs(error).max()
    scale = np.abs(theirs).max()
    if not scale:
        assert difference.max_share == (math.inf if ours.any() else 0)
        return
    ratio = np.sqrt(np.mean((error / scale) ** 2)) / np.sqrt(np.mean((theirs / scale) ** 2))
    assert difference.rms_share == pytest.approx(ratio)
    assert difference.max_share == pytest.approx(np.abs(error).max() / scale)
    if ours.any():
        a, b = ours / np.abs(ours).max(), theirs / scale
        angle = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        assert difference.cosine == pytest.approx(angle, abs=1e-12)


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_default_grows_with_the_rounding_of_the_type_and_the_root_of_the_depth(dtype):
    kind = np.dtype(dtype)
    one = Precision.of(kind)
    assert rounding(kind) == float(np.nextafter(kind.type(1), kind.type(2))) - 1
    assert one.share == rounding(kind) * (1024 if kind.itemsize > 2 else 8)
    deep = Tolerance().share(kind, Precision(one.share, 100))
    assert deep == 10 * Tolerance().share(kind, one)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_every_element_may_differ_by_a_share_of_the_largest(dtype, factor):
    theirs = np.array([-64.0, 0.0, 1.0, 2.0, 3.0, 4.0]).astype(dtype)
    shift = 0.25 * 64 * factor
    for place in range(6):
        ours = theirs.astype(float)
        ours[place] += shift
        fault = compare(ours.astype(dtype), theirs, Tolerance(0.25, 0)).fault
        assert ("the largest error is 0.2" in fault) == (factor > 1)


def test_an_error_of_every_element_is_found_beside_one_large_value():
    theirs = np.zeros(10_000)
    theirs[0] = 1
    ours = theirs + 5e-4
    assert compare(ours, theirs, Tolerance(1e-3, 0)).fault.startswith("the RMS error is 0.05 of")


def test_integers_must_be_equal_or_some_steps_apart():
    whole = np.array([100, 3], np.int8)
    assert compare(whole + np.int8(1), whole, Tolerance(1e-2)).fault
    assert not compare(whole + np.int8(1), whole, Tolerance(), Precision(steps=1)).fault
    assert compare(whole + np.int8(2), whole, Tolerance(), Precision(steps=1)).fault


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_is_not_finite_must_be_equal(dtype):
    theirs = np.array([np.inf, np.nan, 1.0, 1.0]).astype(dtype)
    ours = np.array([np.inf, np.nan, np.inf, np.nan]).astype(dtype)
    assert compare(theirs, theirs.copy(), EXACT).fault == ""
    difference = compare(ours, theirs, Tolerance(1, 1))
    assert difference.fault.startswith("2 of 4 values are NaN or infinite")
    assert difference.max_abs == difference.max_share == difference.rms_share == math.inf


def test_maps_are_compared_by_their_values():
    theirs = [{0: 0.25, 1: 0.75}, {0: 1.0, 1: 0.0}]
    ours = [{1: np.float32(0.75), 0: np.float32(0.25)}, {0: np.float32(1 + 2**-20), 1: 0.0}]
    difference = compare(ours, theirs, Tolerance())
    assert (difference.max_abs, difference.max_share, difference.fault) == (2**-20, 2**-20, "")
    assert compare(ours, theirs, EXACT).fault
    assert compare([{0: 0.5, 2: 0.75}, theirs[1]], theirs, Tolerance()).fault
    assert compare({"a": "b"}, {"a": "c"}, Tolerance()).fault
    assert not compare({"a": "b"}, {"a": "b"}, Tolerance()).fault


@pytest.mark.filterwarnings("error")
def test_the_mean_square_of_an_infinity_is_infinite():
    values = np.array([1, -np.inf, 2])
    assert rms(values) == np.sqrt(np.mean(values**2)) == np.inf
