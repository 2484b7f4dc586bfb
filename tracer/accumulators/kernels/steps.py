"""Steps after each addition to a sum: what limits it, and what is remembered of the way.

A limited lane holds the sum, or the sum plus one half where the range has one more negative number:
both ranges are then symmetric, [-limit, limit], and one instruction saturates a lane. A lane is
exact while the limit is below 2^23 (float32) or 2^52 (float64): a sum beyond that is rounded, but
never across the limit. Sums that wrap, and EXTREMES, must be exact before they are limited.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from llvmlite import ir

from tracer.interpreter.kernels.tiles import ProductCode, Step, Words
from tracer.interpreter.kernels.vectors import Vectors

Rule = Callable[[Vectors, Any, Any], Any]
"""(vectors, lane, limit) -> what becomes of the lane."""


def _saturated(v: Vectors, lane: Any, limit: Any) -> Any:
    return v.limited(lane, limit)


def _wrapped(v: Vectors, lane: Any, limit: Any) -> Any:
    """The lane modulo the size of the range, a power of 2: limits are half a step inside it."""
    b = v.builder
    size = b.fadd(b.fadd(limit, limit), v.same(1.0))
    turns = v.rounded(b.fmul(lane, b.fdiv(v.same(1.0), size)))
    return v.add_product(b.fneg(turns), size, lane)


def _zeroed(v: Vectors, lane: Any, limit: Any) -> Any:
    b = v.builder
    outside = b.fcmp_ordered(">", v.greatest(lane, b.fneg(lane)), limit)
    return b.select(outside, v.same(0.5), lane)


RULES: dict[str, Rule] = {
    "saturate": _saturated, "symmetric": _saturated, "error": _saturated,
    "wrap": _wrapped, "zero": _zeroed,
}  # fmt: skip
"""Overflow modes that tiles have; a range that is not symmetric has one more negative number."""


ROUNDINGS = {"half-even": "rint", "half-away": "round", "floor": "floor", "truncate": "trunc"}
"""Roundings of products that tiles have, as LLVM names them."""


def _limit(rule: Rule, v: Vectors, added: Any, state: list[Any], limit: Any) -> list[Any]:
    return [rule(v, added, limit), *state]


def _count(rule: Rule, v: Vectors, added: Any, state: list[Any], limit: Any) -> list[Any]:
    b, value = v.builder, rule(v, added, limit)
    before, after, events = (b.bitcast(each, v.integers) for each in (added, value, state[0]))
    left = b.icmp_signed("!=", before, after)
    events = b.add(events, b.select(left, _one(v, limit), ir.Constant(v.integers, None)))
    return [value, b.bitcast(events, v.kind)]


def _one(v: Vectors, limit: Any) -> Any:
    """1 in every lane: the second bit of a float of at least 2.

    The compiler would add a constant by way of a vector of the comparison, not under its mask.
    """
    b, shift = v.builder, ir.Constant(v.integers, [v.bits - 2] * v.count)
    return b.lshr(b.bitcast(b.fadd(limit, v.same(2.0)), v.integers), shift)


def _free(v: Vectors, added: Any, state: list[Any], limit: Any) -> list[Any]:
    return [added, *state]


def _extremes(v: Vectors, added: Any, state: list[Any], limit: Any) -> list[Any]:
    low, high = state
    return [added, v.least(low, added), v.greatest_from_zero(high, added)]


def _product(
    rule: Rule | None, rounding: str | None, v: Vectors, words: Words, factor: Any, column: Any
) -> Any:
    b, half = v.builder, words.halves("product_half")
    if rounding is None:
        lane = v.add_product(factor, column, half)
    else:
        lane = b.fadd(v.rounded(b.fmul(factor, column), rounding), half)
    return b.fsub(lane if rule is None else rule(v, lane, words.halves("product_limit")), half)


@cache
def limiting(overflow: str) -> Step:
    """Limits the sum."""
    return Step(0, partial(_limit, RULES[overflow]))


@cache
def counting(overflow: str) -> Step:
    """Limits the sum; the state, integers as wide as a lane, counts sums outside."""
    return Step(1, partial(_count, RULES[overflow]))


@cache
def product(overflow: str | None, rounding: str | None) -> ProductCode:
    """Products, rounded and limited as these say; None leaves them as they are."""
    rule = None if overflow is None else RULES[overflow]
    return partial(_product, rule, None if rounding is None else ROUNDINGS[rounding])


EXTREMES = Step(2, _extremes)
"""The states are the least and the greatest sum so far, 0 among them."""

FREE = Step(1, _free)
"""Has a state, which register 0 may change."""
