"""The definition that random nodes are held against, on sums that are added by hand."""

import numpy as np
import pytest

from tests.accumulators.definition import Register, outermost, rounded, sums


def summed(terms, **words):
    ones = np.ones((1, len(terms)), np.int64)
    column = np.array(terms, np.int64)[:, None]
    result = sums(ones, column, np.zeros(1, np.int64), (len(terms), 1, 1, 1), Register(**words))
    return int(result.values[0, 0]), int(result.events[0, 0])


@pytest.mark.parametrize(
    ("words", "expected"),
    [({}, (-23, 1)), ({"overflow": "wrap"}, (50, 2)), ({"overflow": "zero"}, (0, 2)),
     ({"overflow": "symmetric"}, (-23, 1)), ({"order": "sorted"}, (50, 0)),
     ({"order": "tiles(2:7)"}, (-1, 3)), ({"convention": "unsigned"}, (50, 0)),
     ({"order": "tiles(spill=1:5:>>4:truncate)", "convention": "magnitude"}, (32, 0)),
     ({"product_bits": 6}, (30, 0)), ({"product_shift": 3}, (-25, 1))],
)  # fmt: skip
def test_sums_by_hand(words, expected):
    """100 + 100 - 150: see the page on accumulators."""
    terms = [100, 100, -150]
    assert summed(terms, bits=8, **words) == expected


def test_orders_are_trees_of_products():
    def spelled(tree):
        return [each if isinstance(each, int) else spelled(each) for each in tree.terms]

    assert spelled(outermost("lanes(2)", (5, 1, 1, 1))) == [[0, 2, 4], [1, 3]]
    assert spelled(outermost("tree", (5, 1, 1, 1))) == [[[0, 1], [2, 3]], [[4]]]
    assert spelled(outermost("channelwise", (2, 1, 1, 2))) == [[0, 1], [2, 3]]
    assert spelled(outermost("nest(kx,ic)", (2, 1, 1, 2))) == [0, 2, 1, 3]
    assert spelled(outermost("nest(kx:parallel,ic)", (2, 1, 1, 2))) == [[0, 2], [1, 3]]
    # loops that are cut off take the tree of those that are not
    nest = outermost("nest(kx:2,ic:all:9,kx,tree)", (2, 1, 1, 3))
    assert spelled(nest) == [[[0, 1], [3, 4]], [[2, 5]]]
    assert spelled(outermost("tiles(2x2)", (5, 1, 1, 1))) == [[0, 2], [1, 3], [4]]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("floor", [-2, -1, 0, 1]), ("truncate", [-1, 0, 0, 1]), ("half-up", [-1, 0, 1, 2]),
     ("half-away", [-2, -1, 1, 2]), ("half-even", [-2, 0, 0, 2])],
)  # fmt: skip
def test_roundings_of_halves(rule, expected):
    assert rounded(np.array([-3, -1, 1, 3]), 1, rule, 0).tolist() == expected
