"""Sums of integers as black boxes: what is claimed is right, and most rules are found."""

from fractions import Fraction
from functools import reduce

import numpy as np
import pytest

import tracer
from tests.arithmetic.random_rules import (
    bias_place,
    integer_box,
    integer_rule,
    integer_sums,
    unsigned_rule,
)
from tests.examples import at_night, seeds_of_tonight
from tracer.accumulators.spec import kinds
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.arithmetic import integer_rules
from tracer.arithmetic.black_box import BlackBox, Operands, draw
from tracer.errors import InputError, UsageError


def claim(function, terms=64, operands="auto"):
    return tracer.reveal(function, terms, operands=operands, in_process=True)


def accumulator(spec):
    return kinds.parse(spec, Accumulator(32)).accumulator


def differ(rule, result, seed, place=None):
    """Returns how many of 100,000 random sums differ between a rule and what was claimed.

    A bias of the size of a part of its sum is added at a `place`.
    """
    terms = result.terms
    box = BlackBox(lambda a, b: 0, terms, Operands.read(result.operands, terms))
    random, wide = np.random.default_rng(seed), 2 * np.log2(box.operands.left.largest)
    spec, claimed = result.spec or result.facts["sum"], result.facts["bias"].partition(" ")[0]
    count, most = 0, (1 << min(rule.bits - 1, 31)) - 1
    for scale in ((1, 10), (5, 16), (8, 20), (10, 24), (1, wide)):
        left, right = draw(box, random, 20_000, scale)
        parts = np.cumsum(left * right, 1)[np.arange(20_000), random.integers(0, terms, 20_000)]
        bias = np.clip(random.integers(-2, 3, 20_000) * most - parts, -most, most)
        own = integer_sums(rule, left, right, bias, place)
        found = integer_sums(accumulator(spec), left, right, bias, place and claimed)
        count += np.count_nonzero(own != found)
    return count


def reveal_rules(seeds, operands, terms=64, draw_rule=integer_rule):
    """Returns how many rules were right, and those not known; none may be wrong."""
    right, unknown = 0, []
    for seed in seeds:
        random = np.random.default_rng(seed)
        rule = draw_rule(random, terms)
        place = bias_place(random, rule)
        result = claim(integer_box(rule, place), terms, operands)
        if result.is_known:
            assert differ(rule, result, seed, place) == 0, (seed, place, rule, result.rule)
            right += 1
        else:
            unknown.append(f"{rule}, bias {place}")
    return right, unknown


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("seed", "operands", "terms"), [(2, "int64", 64), (100, "int8", 24)])
def test_random_rules_are_revealed(seed, operands, terms):
    right, unknown = reveal_rules([seed], operands, terms)
    assert right == 1, unknown


@pytest.mark.parametrize(
    ("spec", "place", "operands", "found"),
    [("25(overflow=symmetric,order=chunked(14))", "first", "int8", None),
     ("10(overflow=zero,order=tiles(8x2:19),product_bits=16,convention=magnitude,product_shift=4,"
      "product_rounding=truncate)", None, "int64", "11(overflow=zero,order=tiles(8x2:19),"
      "product_bits=17,product_shift=4,product_rounding=truncate)"),
     ("15(overflow=wrap,order=tiles(8x4,1:9),product_bits=7,product_shift=5)", None, "int8", None),
     ("8(overflow=symmetric,order=tiles(5x2:32,2x2,allx2:32))", None, "int8", None),
     ("u24(overflow=zero,order=chunked(8))", None, "int64", None),
     ("u25(overflow=wrap,order=sorted)", None, "int8", "u25(overflow=wrap)"),
     ("u13(overflow=zero)", None, "int8", None),
     ("u25(order=sorted,product_bits=19)", None, "int8", "u31(product_bits=15)"),
     ("u25(overflow=wrap,product_bits=22)", None, "int8", None),
     ("u31(overflow=zero,order=maddubs(26),product_bits=18)", "first", "int64", None),
     ("9(overflow=zero,order=tiles(4x4:17:wrap,3x2:32))", None, "uint8/int8", None),
     ("21(overflow=wrap,order=tiles(allx8:7:symmetric),product_shift=8)", "first", "int8", None),
     ("6(overflow=symmetric,order=tree,product_shift=8,product_rounding=half-up)", None, "int64",
      None),
     ("26(overflow=symmetric,order=tiles(32:9:wrap),product_bits=11)", "last", "int64",
      "26(overflow=symmetric,order=tiles(32:9:wrap),product_bits=11,bias=last)"),
     ("u30(overflow=wrap,product_bits=16)", "last", "int64", None),
     ("u29(product_bits=10,product_shift=8,product_rounding=floor)", None, "int64",
      "u63(product_bits=10,product_shift=8,product_rounding=floor)")],
)  # fmt: skip
def test_what_few_vectors_show_is_revealed(spec, place, operands, found):
    """Only a bias shows chunks, or lanes of pairs; a narrow register hides a product's width.

    Of an unsigned register, negative products tell no shift, but that it limits products. A level
    may add in the last register, between two that are wider, and a tile may wrap whose sums hardly
    ever fit the last register. One unit of a product may leave a register, a bias alone one that no
    products leave, and a negative product its own register alone.
    """
    rule = accumulator(spec)
    result = claim(integer_box(rule, place), 64, operands)
    assert result.spec == (found or spec), result.reason
    assert differ(rule, result, 1, place) == 0


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("spec", "place", "operands"),
    [("20(order=tiles(4x4,8x8:17:wrap,5:11),product_bits=6)", None, "int8"),
     ("20(overflow=wrap,order=tiles(allx8:16,2:22:wrap,1:12))", "last", "int8"),
     ("30(overflow=wrap,order=tiles(4:12:wrap,5x2,5:5))", "last", "int8"),
     ("7(overflow=wrap,order=maddubs(19),product_shift=5,product_rounding=stochastic(20))", "last",
      "int8"),
     ("8(overflow=wrap,order=maddubs(32),product_shift=7,product_rounding=truncate)", "after",
      "int64"),
     ("20(overflow=symmetric,order=maddubs(12))", None, "int8"),
     ("u25(overflow=wrap,order=maddubs(8))", "first", "int8"),
     ("9(order=tree,product_bits=9,product_shift=1,product_rounding=stochastic(77))", None,
      "int64"),
     ("11(overflow=wrap,order=tiles(16:24:wrap,3x4:14:zero))", "last", "int64"),
     ("17(order=maddubs(29),product_bits=5,product_shift=4,product_rounding=floor)", "first",
      "int64"),
     ("18(overflow=zero,order=tiles(3x4,5x8),product_bits=25)", None, "int64"),
     ("u19(overflow=zero,order=sorted,product_bits=22)", "last", "int64"),
     ("21(overflow=symmetric,order=tiles(5:12:zero,2x8:5,3x4:8))", None, "int8"),
     ("7(order=tiles(4:21:zero,3x4:4:zero),product_bits=6)", "after", "int8")],
)  # fmt: skip
def test_what_one_register_hides_of_another_is_told(spec, place, operands):
    """Terms of one register need no stride; a bias needs the last one alone to hold it.

    Products that round at random may look fixed at one term, and fixed ones random in a register
    that wraps; lanes show in sums that nearly leave the last register, a width of products where
    two of them cancel first.
    """
    rule = accumulator(spec)
    result = claim(integer_box(rule, place), 64, operands)
    assert result.is_known, result.reason
    assert differ(rule, result, 1, place) == 0, result.spec


@pytest.mark.nightly
@pytest.mark.parametrize(
    "spec",
    at_night(
        ["6(overflow=wrap,order=tiles(16:12:zero))", "7(overflow=zero,order=tiles(3:20:symmetric))",
         "14(overflow=symmetric,order=tiles(16:17:wrap,16x2))"],
        but=["6(overflow=wrap,order=tiles(16:12:zero))"],
    ),
)  # fmt: skip
def test_tiles_wider_than_the_last_register_are_revealed(spec):
    result = claim(integer_box(accumulator(spec)), 64, "int64")
    assert result.is_known, result.reason
    assert differ(accumulator(spec), result, 1) == 0, result.spec


@pytest.mark.nightly
@pytest.mark.parametrize("operands", ["auto", "int8", "uint8/int8"])
def test_many_random_rules_are_revealed(operands):
    right, unknown = reveal_rules(seeds_of_tonight(1000, 40), operands)
    assert right >= 36, unknown


@pytest.mark.nightly
@pytest.mark.parametrize("operands", ["int64", "int8"])
def test_many_unsigned_rules_are_revealed(operands):
    right, unknown = reveal_rules(seeds_of_tonight(2000, 20), operands, draw_rule=unsigned_rule)
    assert right >= 17, unknown


def test_the_largest_product_alone_tells_the_width_of_products():
    right, unknown = reveal_rules([105286], "int8", draw_rule=unsigned_rule)
    assert right == 1, unknown


def wraps(a, b):
    """numpy's own int16."""
    return np.sum(a.astype(np.int16) * b.astype(np.int16), dtype=np.int16)


def saturates(a, b):
    """A loop in Python."""
    total = 0
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        total = max(-(2**15), min(2**15 - 1, total + x * y))
    return total


def pairs(a, b):
    """PMADDUBSW and PMADDWD: pairs saturate at 16 bits, and go to 32."""
    products = a.astype(np.int64) * b
    return np.clip(products[0::2] + products[1::2], -(2**15), 2**15 - 1).sum()


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("function", "operands", "spec"),
    [
        (wraps, "auto", "16(overflow=wrap)"), (saturates, "auto", "16"),
        (pairs, "uint8/int8", "32(order=tiles(2:16))"),
        (lambda a, b: np.dot(a.astype(int), b), "int8", "32"),
        (lambda a: int(np.sum(a, dtype=np.int8)), "int8", "8(overflow=wrap)"),
    ],
)  # fmt: skip
def test_sums_of_others_are_revealed(function, operands, spec):
    assert claim(function, 16, operands).spec == spec


@pytest.mark.parametrize("operands", ["int8", "uint8", "int16"])
@pytest.mark.parametrize(("limit", "spec"), [(2**9, "10"), (2**31, "32")])
def test_a_sum_of_one_vector_meets_no_value_beyond_its_type(limit, spec, operands):
    def total(a):
        return reduce(lambda sum_, x: max(-limit, min(limit - 1, sum_ + x)), a.tolist(), 0)

    assert claim(total, 16, operands).spec == spec


@pytest.mark.nightly
def test_a_tree_is_drawn_for_few_terms():
    tree = claim(pairs, 8, "uint8/int8").tree
    assert tree.splitlines() == ["+", "├─ 0 + 1", "├─ 2 + 3", "├─ 4 + 5", "└─ 6 + 7"]


def test_what_no_accumulator_does_is_not_known():
    def median(a, b):
        return int(np.median(a * b)) * len(a)

    result = claim(median, 8, "int8")
    assert not result.is_known and result.spec is None and result.reason


def test_pairs_that_are_limited_only_as_pairs_differ_beyond_bytes():
    """A sum of two products is narrowed alone; in tiles of 16 bits each product would be, too."""
    assert claim(pairs, 8, "int32").spec == "64(order=tiles(2,1:16))"


@pytest.mark.parametrize("seed", [1, 2, 3, 5])
def test_a_sum_that_only_the_largest_products_overflow_keeps_its_register(seed):
    """A bias tells no register that sums without it contradict."""
    spec = "20(overflow=symmetric,order=tiles(5),convention=magnitude,product_shift=6)"
    box = integer_box(accumulator(spec), "after")
    result = tracer.reveal(box, 64, operands="int8", in_process=True, seed=seed)
    assert result.facts["sum"].startswith("21("), result.spec


def test_an_error_of_tracer_is_not_said_to_be_of_the_function(monkeypatch):
    def fail(*_):
        raise OverflowError("of tracer")

    monkeypatch.setattr(integer_rules, "reveal", fail)
    with pytest.raises(OverflowError, match="of tracer"):
        claim(wraps, 8, "int8")


def test_functions_and_operands_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="one number"):
        claim(lambda a, b: a * b, 8, "int8")
    for function in (lambda a, b, bias, scale: a @ b, lambda a, b, *, scale: a @ b):
        with pytest.raises(InputError, match=r"needs the arguments a, b,.* scale"):
            claim(function, 8, "int8")
    with pytest.raises(InputError, match="ZeroDivisionError"):
        claim(lambda a, b: 1 // 0, 8, "int8")
    with pytest.raises(UsageError, match="operands 'int7'"):
        claim(wraps, 8, "int7")
    with pytest.raises(InputError, match="no integers"):
        claim(lambda a, b: float(Fraction(int(a @ b), 3)), 8, "int8")
