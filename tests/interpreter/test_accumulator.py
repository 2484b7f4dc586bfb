"""The definition of a narrow accumulator, by examples worked out by hand."""

import numpy as np
import pytest

from tracer.accumulators.engine import oracle
from tracer.accumulators.spec.accumulator import Accumulator, needed
from tracer.accumulators.spec.orders import Terms, named
from tracer.errors import UsageError


def emulated(products: list[int], accumulator: Accumulator, bias: int = 0) -> int:
    left, right = np.array([products]), np.ones((len(products), 1), np.int64)
    clipped = oracle.emulate(left, right, np.array([bias]), Terms(len(products)), accumulator)
    return int(clipped.values[0, 0])


def observed(products: list[int]) -> tuple[int, int, int]:
    left, right = np.array([products]), np.ones((len(products), 1), np.int64)
    seen = oracle.observe(left, right, None, Terms(len(products)), Accumulator(8))
    return int(seen.low[0, 0]), int(seen.high[0, 0]), int(seen.final[0, 0])


@pytest.mark.parametrize(
    ("products", "overflow", "expected"),
    [
        ([100, 100, -150], "saturate", -23),
        ([100, -150, 100], "saturate", 50),
        ([100, 100, -150], "wrap", 50),
        ([100, -150, 100], "wrap", 50),
        ([-100, -100, 150], "saturate", 22),
        ([-100, -100, 150], "symmetric", 23),
        ([100, 100, -50], "zero", -50),
    ],
)
def test_a_sum_is_brought_back_at_every_step(products, overflow, expected):
    assert emulated(products, Accumulator(8, overflow)) == expected


@pytest.mark.parametrize(("bias", "expected"), [("first", 107), ("last", 117)])
def test_the_bias_is_met_first_or_last(bias, expected):
    assert emulated([10, -20], Accumulator(8, bias=bias), bias=127) == expected


def test_the_range_of_exact_sums_holds_the_start():
    assert observed([100, 100, -150]) == (0, 200, 50)


def test_sorted_meets_terms_against_the_sign_of_the_sum():
    products = np.array([[[100, 100, -150]]])
    arranged = named("sorted").arrange(products, np.zeros((1, 1), np.int64))
    assert arranged.ravel().tolist() == [100, -150, 100]


@pytest.mark.parametrize(("weights", "expected"), [(127, 32767), (-128, -32768)])
def test_maddubs_saturates_pairs_in_16_bits(weights, expected):
    left, right = np.array([[weights, weights]]), np.array([[255], [255]])
    accumulator = Accumulator(32, order=named("maddubs"))
    clipped = oracle.emulate(left, right, None, Terms(2), accumulator)
    assert clipped.values.item() == expected


def test_products_have_a_width_of_their_own():
    assert emulated([100, -90], Accumulator(8, product_bits=7)) == 63 - 64


@pytest.mark.parametrize(
    ("spelling", "sums"),
    [
        ("sequential", [[[0, 1, 2, 3, 4, 5]]]),
        ("channelwise", [[[0, 1, 2], [3, 4, 5]], [[0, 1]]]),
        ("chunked(4)", [[[0, 1, 2, 3], [4, 5, -1, -1]], [[0, 1]]]),
        ("tree", [[[0, 1], [2, 3], [4, 5]], [[0, 1], [2, -1]], [[0, 1]]]),
        ("lanes(4)", [[[0, 4], [1, 5], [2, -1], [3, -1]], [[0, 1, 2, 3]]]),
        ("positionwise", [[[0, 3, 1, 4, 2, 5]]]),
        ("positionwise(1)", [[[0, 1, 2, 3, 4, 5]]]),
        ("nest(kx,ic:parallel)", [[[0, 3], [1, 4], [2, 5]], [[0, 1, 2]]]),
        ("nest(kx:2,ic:all:9,kx)", [[[0, 1, 3, 4], [2, 5, -1, -1]], [[0, 1]]]),
        ("nest(ic:parallel,kx)", [[[0, 1, 2], [3, 4, 5]], [[0, 1]]]),
        ("nest(ic:all:9,kx)", [[[0, 1, 2, 3, 4, 5]], [[0]]]),
        (
            "nest(ic:parallel,kx,tree)",
            [[[0, 1], [2, -1], [3, 4], [5, -1]], [[0, 1], [2, 3]], [[0, 1]]],
        ),
        ("positionwise(9,tiles(2:16,2))", [[[0, 3], [1, 4], [2, 5]], [[0, 1], [2, -1]], [[0, 1]]]),
        ("maddubs(2)", [[[0, 1], [2, 3], [4, 5]], [[0, 2], [1, -1]], [[0, 1]]]),
    ],
)
def test_an_order_says_what_is_added_to_what(spelling, sums):
    order = named(spelling)
    assert [stage.groups.tolist() for stage in order.stages(Terms(2, (3,)))] == sums
    assert named(str(order)) == order


@pytest.mark.parametrize(
    "spelling",
    ["", "foo", "chunked", "chunked(0)", "tree(2)", "chunked(-1)", "positionwise(0)",
     "positionwise(sorted)", "positionwise(2,)", "positionwise(2,tree,tree)",
     "positionwise(positionwise)", "nest", "nest(ky,kx)", "nest(ic,kw)", "nest(ic:0)",
     "nest(ic,kx,ic)", "nest(tree,ic)", "nest(ic,channelwise)", "nest(ic:2x4)",
     "nest(oc:4:16,ic)", "nest(ic:4:99)", "nest(kx:all:20:>>2,ic:2:parallel,ic)",
     "nest(ic,ic:4:parallel,tiles(spill=4:12))"],
)  # fmt: skip
def test_what_is_not_an_order_is_refused(spelling):
    with pytest.raises(UsageError):
        named(spelling)


@pytest.mark.parametrize(
    ("bits", "convention", "expected"),
    [(8, "twos-complement", (-128, 127)), (18, "magnitude", (-262144, 262143))],
)
def test_ranges(bits, convention, expected):
    assert Accumulator(bits, convention=convention).range == expected


@pytest.mark.parametrize("arguments", [{"bits": 1}, {"bits": 65}, {"bits": 8, "overflow": "clip"},
                                       {"bits": 64, "convention": "magnitude"},
                                       {"bits": 8, "product_bits": 1}, {"bits": 18.0},
                                       {"bits": "18"}, {"bits": True}, {"bits": None},
                                       {"bits": 8, "product_bits": 9.5},
                                       {"bits": 8, "overflow": None}, {"bits": 8, "bias": 1},
                                       {"bits": 8, "order": "trees"}, {"bits": 8, "order": 4},
                                       {"bits": 8, "order": "chunked"},
                                       {"bits": 8, "zero_points": ["before"]}])  # fmt: skip
def test_what_no_register_is_is_refused(arguments):
    with pytest.raises(UsageError):
        Accumulator(**arguments)


def test_an_order_may_be_text_and_a_width_an_integer_of_numpy():
    accumulator = Accumulator(np.int64(18), order="chunked(4)", product_bits=np.int8(9))
    assert accumulator == Accumulator(18, order=named("chunked(4)"), product_bits=9)
    assert {type(accumulator.bits), type(accumulator.product_bits)} == {int}


def test_bits_that_numbers_need():
    numbers = np.array([0, -1, 1, 127, 128, -128, -129, 2**62, -(2**63)])
    assert needed(numbers).tolist() == [1, 1, 2, 8, 9, 8, 9, 64, 64]
    assert needed(np.array([-128, -127, 127]), symmetric=True).tolist() == [9, 8, 8]
