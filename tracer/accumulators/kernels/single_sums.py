"""Sums one by one in 64-bit integers: any order, overflow mode and rounding, the widest numbers.

Terms go to register 0. After each group registers are added up, as `kernels.tiles.Step` explains.
Products are rounded as `spec.accumulator.rounded` defines it.
"""

from typing import Any, assert_never

import numpy as np

from tracer.accumulators.spec import Overflow, RoundingName
from tracer.accumulators.spec.accumulator import POSITION_STEP
from tracer.interpreter.compiled_code import entry
from tracer.interpreter.kernels import argument_types as types
from tracer.interpreter.kernels.argument_types import (
    FLAT_OUT,
    MATRIX_OUT,
    NUMBERS,
    START,
    TABLE,
    free,
    helper,
    new_integers,
    repeat_type,
)

_HALF_EVEN, _HALF_AWAY, _HALF_UP, _FLOOR, _TRUNCATE, _STOCHASTIC = range(6)
_BITS, _FACTORS = (
    (np.uint64(30), np.uint64(27), np.uint64(31)),
    (
        np.uint64(0xBF58476D1CE4E5B9),
        np.uint64(0x94D049BB133111EB),
    ),
)
_POSITION_STEP = np.uint64(POSITION_STEP).view(np.int64)
SATURATE, WRAP, ZERO, EXACT = range(4)
"""What a rule does outside its range; EXACT has no range."""
_EVENTS, _LEAST, _MOST = range(3)
"""What is remembered of a sum: steps outside a range; extremes of registers without a range."""


def rounding_rule(name: RoundingName) -> int:
    """Returns the number of a rule."""
    match name:
        case "half-even":
            return _HALF_EVEN
        case "half-away":
            return _HALF_AWAY
        case "half-up":
            return _HALF_UP
        case "floor":
            return _FLOOR
        case "truncate":
            return _TRUNCATE
        case "stochastic":
            return _STOCHASTIC
        case _:
            assert_never(name)


@helper(types.int64(types.int64, types.int64, types.int64, types.int64))
def rounded(product: int, shift: int, rule: int, salt: int) -> int:
    """The product / 2^shift, rounded; itself for a shift of 0."""
    if shift == 0:
        return product
    floor = product >> shift
    rest, half = product - (floor << shift), 1 << (shift - 1)
    if rule == _HALF_EVEN:
        return floor + ((rest > half) | ((rest == half) & ((floor & 1) == 1)))
    if rule == _HALF_AWAY:
        return floor + ((rest > half) | ((rest == half) & (product > 0)))
    if rule == _HALF_UP:
        return floor + (rest >= half)
    if rule == _TRUNCATE:
        return floor + ((product < 0) & (rest > 0))
    if rule == _STOCHASTIC:
        mixed = np.uint64(product + salt)
        mixed = (mixed ^ (mixed >> _BITS[0])) * _FACTORS[0]
        mixed = (mixed ^ (mixed >> _BITS[1])) * _FACTORS[1]
        mixed ^= mixed >> _BITS[2]
        draw: Any = mixed >> np.uint64(64 - shift)
        up: Any = np.int64(draw) < rest
        return floor + up
    return floor


def rule_of(overflow: Overflow) -> int:
    """Returns the rule of an overflow mode."""
    match overflow:
        case "saturate" | "symmetric" | "error":
            return SATURATE
        case "wrap":
            return WRAP
        case "zero":
            return ZERO
        case _:
            assert_never(overflow)


@helper(types.int64(types.int64, types.int64, types.int64, types.int64))
def into_range(wide: int, rule: int, low: int, high: int) -> int:
    """The number that the rule puts in place of `wide` where it is outside [low, high]."""
    if rule == SATURATE:
        return min(max(wide, low), high)
    if rule == WRAP:
        return ((wide - low) & (high - low)) + low
    if rule == ZERO:
        return wide if low <= wide <= high else 0
    return wide


@helper(types.void(NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, FLAT_OUT))
def _multiply(left: Any, right: Any, rule: Any, rounding: Any, salts: Any, terms: Any) -> None:
    """Products, rounded and limited."""
    shift, kind, low, high = rounding[0], rule[0], rule[1], rule[2]
    for k in range(terms.size):
        product = rounded(left[k] * right[k], shift, rounding[1], salts[k])
        terms[k] = into_range(product, kind, low, high) << shift


@helper(types.int64(types.int64, FLAT_OUT, types.int64, types.int64, NUMBERS, FLAT_OUT))
def _sum(value: int, terms: Any, first: int, stop: int, rule: Any, seen: Any) -> int:
    """Adds terms to a register, one by one; remembers what happens."""
    kind, low, high = rule[0], rule[1], rule[2]
    events, least, most = seen[_EVENTS], seen[_LEAST], seen[_MOST]
    for k in range(first, stop):
        wide = value + terms[np.uintp(k)]
        value = into_range(wide, kind, low, high)
        events += wide != value
        if kind == EXACT:
            least, most = min(least, wide), max(most, wide)
    seen[_EVENTS], seen[_LEAST], seen[_MOST] = events, least, most
    return value


@helper(types.void(FLAT_OUT, types.int64, FLAT_OUT))
def against_the_sum(terms: Any, total: int, spare: Any) -> None:
    """Arranges terms against the sign of the exact sum, while terms of both signs remain."""
    ups = 0
    for term in terms:
        ups += term >= 0
    up, down, depth = 0, ups, terms.size
    for term in terms:
        rising = term >= 0
        spare[np.uintp(up if rising else down)] = term
        up, down = up + rising, down + (not rising)
    up, down = 0, ups
    for k in range(depth):
        rise = (up < ups) & ((total <= 0) | (down == depth))
        terms[k] = spare[np.uintp(up if rise else down)]
        total += terms[k]
        up, down = up + rise, down + (not rise)


@helper(types.int64(types.int64, types.int64, NUMBERS, NUMBERS, FLAT_OUT))
def _spilled(value: int, taken: int, narrow: Any, rule: Any, seen: Any) -> int:
    """The sum in the last register as it is read back from a narrow one."""
    kind, low, high = narrow[0], narrow[1], narrow[2]
    lost = rounded(value, narrow[3], narrow[4], narrow[5] + taken * _POSITION_STEP)
    kept = into_range(lost, kind, low, high)
    wide = kept << narrow[3]
    value = into_range(wide, rule[0], rule[1], rule[2])
    seen[_EVENTS] += (kept != lost) + (value != wide)
    if rule[0] == EXACT:
        seen[_LEAST], seen[_MOST] = min(seen[_LEAST], wide), max(seen[_MOST], wide)
    return value


@helper(types.int64(types.int64, FLAT_OUT, TABLE, TABLE, TABLE, FLAT_OUT, FLAT_OUT))
def added(
    start: int, terms: Any, groups: Any, rules: Any, leaving: Any, registers: Any, seen: Any
) -> int:
    """The sum of the terms; the last register begins with `start`.

    `leaving` (registers, 6) is empty, or says what sums become as they leave a register: the rule
    and the range of a narrow one, for the last register alone, and a shift, its rounding and a
    salt, to which the number of terms so far is added.
    Groups then have a third number, 1 after which the last register is narrowed.
    """
    top, k = registers.size - 1, 0
    seen[:], registers[:] = 0, 0
    registers[top] = start
    seen[_LEAST], seen[_MOST] = min(start, 0), max(start, 0)
    for group in range(len(groups)):
        stop = k + groups[group, 0]
        registers[0] = _sum(registers[0], terms, k, stop, rules[0], seen)
        k = stop
        for n in range(groups[group, 1]):
            lower = registers[n : n + 1]
            if len(leaving):
                salt = leaving[n, 5] + k * _POSITION_STEP
                lower[0] = rounded(lower[0], leaving[n, 3], leaving[n, 4], salt)
            registers[n + 1] = _sum(registers[n + 1], lower, 0, 1, rules[n + 1], seen)
            registers[n] = 0
        if len(leaving) and groups[group, 2]:
            registers[top] = _spilled(registers[top], k, leaving[top], rules[top], seen)
    return registers[top]


def _fits(
    left: Any, right: Any, groups: Any, tables: Any, rounding: Any, flags: Any, starts: Any,
    outs: Any,
) -> bool:  # fmt: skip
    """Whether the groups have all terms and no others, and sums their registers and places."""
    depth, shape, (rounding, salts), clips = (
        left.shape[1],
        (len(left), len(right)),
        rounding,
        outs[3],
    )
    rules, leaving = tables
    return bool(
        right.shape[1] == depth <= salts.size and rules.shape[1] == 3 and rounding.size == 2
        and leaving.shape in ((0, 6), (len(rules) - 1, 6))
        and groups.shape[1] == 2 + (len(leaving) > 0) and groups.min(initial=0) >= 0
        and groups[:, 0].sum() == depth and groups[:, 1].max(initial=0) < len(rules) - 1
        and all(each.shape == shape for each in (*starts, *outs[:3]))
        and (clips.shape == shape or not len(clips))
    )  # fmt: skip


@entry(_fits,
    types.void(TABLE, TABLE, TABLE, repeat_type(TABLE, 2), repeat_type(NUMBERS, 2),
               repeat_type(types.boolean, 2), repeat_type(START, 2), repeat_type(MATRIX_OUT, 4))
)  # fmt: skip
def run(
    left: Any, right: Any, groups: Any, tables: Any, rounding: Any, flags: Any, starts: Any,
    outs: Any,
) -> None:  # fmt: skip
    """Sums of rows `left` (M, K) times columns `right` (P, K), both in the order of the terms.

    `tables` are the rules (registers + 1, 3), int64, with a row for each register and one for
    products, and those of `added` for sums that leave a register.
    `rounding` are the low bits that products lose and the rule, (2), and a salt for each term. The
    flag `by_sign` takes terms against the sign of the exact sum. `starts` are those of the exact
    sums, and of the sums; `outs` are the sums; the extremes of the registers without a range if
    `is_observed`, else twice the events; and, unless it is empty, the events of the registers with
    a range.
    """
    (rounds, salts), (by_sign, is_observed), (exact_start, start) = rounding, flags, starts
    values, first, second, clips = outs
    rules, leaving = tables
    last, depth = len(rules) - 1, left.shape[1]
    terms, spare = new_integers(depth), new_integers(depth)
    registers, seen = new_integers(last), new_integers(3)
    for row in range(len(left)):
        for column in range(len(right)):
            _multiply(left[row], right[column], rules[last], rounds, salts, terms)
            if by_sign:
                against_the_sum(terms, exact_start[row, column], spare)
            values[row, column] = added(
                start[row, column], terms, groups, rules, leaving, registers, seen
            )
            first[row, column] = seen[_LEAST] if is_observed else seen[_EVENTS]
            second[row, column] = seen[_MOST] if is_observed else seen[_EVENTS]
            if len(clips):
                clips[row, column] = seen[_EVENTS]
    free(terms)
    free(spare)
    free(registers)
    free(seen)
