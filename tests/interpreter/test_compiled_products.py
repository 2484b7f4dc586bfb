"""Compiled products and convolutions against numpy, on integers, which floats multiply exactly."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tracer.interpreter.numeric import compiled, parallel


def integers(seed, *shape):
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(np.float32)


@examples(60)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 30), st.integers(1, 60), st.integers(1, 150)),
    st.integers(1, 2),
)
def test_stacks_of_matrices(shape, threads):
    count, rows, depth, columns = shape
    a, b = integers(1, count, rows, depth), integers(2, count, depth, columns)
    out = np.full((count, rows, columns), np.nan, np.float32)
    with parallel.threads(threads):
        compiled.matmul(a, b, out)
    np.testing.assert_array_equal(out, a @ b)


def test_many_terms_and_rows():
    a, b = integers(1, 1, 300, 1000), integers(2, 1, 1000, 130)
    out = np.empty((1, 300, 130), np.float32)
    with parallel.threads(2):
        compiled.matmul(a, b, out)
    np.testing.assert_array_equal(out, a @ b)
