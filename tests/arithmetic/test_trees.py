"""Orders of additions that are found are those of the sums, which numpy and loops add."""

import math

import numpy as np
import pytest

from tracer.arithmetic import trees
from tracer.arithmetic.kernel import NotKnown
from tracer.arithmetic.sums import products


def sequential(terms):
    return np.add.accumulate(terms)[-1]


def backwards(terms):
    return sequential(terms[::-1])


def chunks(terms):
    return sequential(np.array([sequential(terms[i : i + 8]) for i in range(0, len(terms), 8)]))


def lanes(terms):
    return sequential(np.add.accumulate(terms.reshape(-1, 4), 0)[-1])


def pairs(terms):
    while len(terms) > 1:
        terms = np.append(
            terms[: len(terms) // 2 * 2].reshape(-1, 2).sum(1), terms[len(terms) // 2 * 2 :]
        )
    return terms[0]


@pytest.mark.parametrize("add", [sequential, backwards, chunks, lanes, pairs, np.add.reduce])
@pytest.mark.parametrize("seed", range(3))
def test_the_program_adds_as_the_sum_does(add, seed):
    program = trees.find_program(lambda terms: add(terms), 64, seed)
    values = np.random.default_rng(seed).standard_normal((200, 64)).astype(np.float32)
    facts = {"program": program, "fused": False, "from_zero": False}
    replayed = products(facts, values, np.ones((64, 1), np.float32))[:, 0]
    np.testing.assert_array_equal(replayed, [add(row) for row in values])


def test_the_order_is_told_in_words():
    told = [trees.describe(trees.find_program(add, 64)) for add in (sequential, chunks, lanes)]
    assert told == [
        "one after the other",
        "in blocks, each one after the other (8 of 8), then the blocks",
        "in lanes, each of every 4th term (4 of 16)",
    ]


def test_a_sum_that_is_rounded_once_has_no_order():
    with pytest.raises(NotKnown, match="do not"):
        trees.find_program(lambda terms: math.fsum(terms), 30)
