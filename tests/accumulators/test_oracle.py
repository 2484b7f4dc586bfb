"""A few of the random nodes of `python -m tests.accumulators.oracle`."""

import pytest

from tests.accumulators.oracle import drawn
from tests.accumulators.random_rules import SHAPED_ALIKE
from tests.examples import at_night
from tracer.interpreter.numeric import parallel


@pytest.mark.parametrize("count", at_night([8, 20], but=[8]))
def test_random_nodes_are_those_of_the_definition(count):
    step = SHAPED_ALIKE + 1  # another operator, and each fifth time floats
    with parallel.threads(2):
        overflowing = sum(drawn(3, number).check() for number in range(0, count * step, step))
    assert overflowing > count // 4
