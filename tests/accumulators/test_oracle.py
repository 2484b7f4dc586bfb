"""A few of the random nodes of `python -m tests.accumulators.oracle`."""

import numpy as np
import pytest

from tests.accumulators.oracle import drawn
from tracer.interpreter.numeric import parallel


@pytest.mark.parametrize("threads", [1, 2])
def test_random_nodes_are_those_of_the_definition(threads):
    with parallel.threads(threads):
        overflowing = sum(drawn(np.random.default_rng((0, number))).check() for number in range(20))
    assert overflowing > 5
