"""Tolerances: numpy's formula, and the one that follows from the largest value of a tensor."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tracer.support.tolerance import Tolerance

VECTORS = arrays.arrays(np.float32, 8, elements=st.floats(width=32))


@given(VECTORS, VECTORS)
def test_with_an_absolute_tolerance_it_is_numpys_isclose(ours, theirs):
    close = np.isclose(ours.astype(float), theirs.astype(float), 1e-3, 1e-5, equal_nan=True)
    assert (Tolerance(1e-3, 1e-5).exceeded(ours, theirs) == ~close).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_without_one_every_element_may_differ_by_a_share_of_the_largest(dtype):
    theirs = np.array([-64.0, 0.0, 1.0, 2.0, 3.0, 4.0]).astype(dtype)
    allowed = 64 * max(1e-2, 8 * float(ml_dtypes.finfo(dtype).eps))
    moved = np.array([0, 0.9, 1.1, -0.9, -1.1, 2.0]) * allowed
    ours = (theirs.astype(float) + moved).astype(dtype)
    expected = [False, False, True, False, True, True]
    assert Tolerance(1e-2, None).exceeded(ours, theirs).tolist() == expected


def test_integers_and_what_is_not_finite_must_be_equal():
    whole = np.array([100, 3], np.int8)
    assert Tolerance(1e-2, None).exceeded(whole + np.int8(1), whole).all()
    theirs = np.array([np.inf, np.nan, 1.0, 1.0])
    ours = np.array([np.inf, np.nan, np.inf, np.nan])
    result = Tolerance(1e-2, None).exceeded(ours, theirs)
    assert result.tolist() == [False, False, True, True]
