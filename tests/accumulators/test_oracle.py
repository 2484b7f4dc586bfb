"""A few of the random nodes of `python -m tests.accumulators.oracle`."""

from tests.accumulators.oracle import ALIKE, drawn
from tracer.interpreter.numeric import parallel


def test_random_nodes_are_those_of_the_definition():
    with parallel.threads(2):
        overflowing = sum(drawn(3, number).check() for number in range(0, 20 * ALIKE, ALIKE))
    assert overflowing > 5
