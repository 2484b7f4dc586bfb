"""Sums by a program: any order that is a tree, every overflow mode, products of limited width.

A program runs over registers, one for each stage of the order. A step n > 0 adds the next n terms
to register 0. A step -s adds register s - 1 to register s and clears register s - 1. A register
has a lane for each column of a tile; panels are packed by `tile_io.pack`.
"""

from typing import Any, assert_never

import numpy as np
from numba import types

from tracer.accumulators.kernels.array_types import (
    INT,
    MATRIX_OUT,
    NUMBERS,
    START,
    TABLE,
    flat,
    kernel,
    read_only,
)
from tracer.accumulators.kernels.product_rounding import rounded
from tracer.accumulators.spec.modes import Overflow

SATURATE, WRAP, ZERO, EXACT = range(4)
"""What a rule does outside its range; EXACT has no range."""

_KINDS = (types.int32, types.int64)


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


@kernel(types.int64(types.int64, types.int64, types.int64, types.int64))
def into_range(wide: int, rule: int, low: int, high: int) -> int:
    """The number that the rule puts in place of `wide` where it is outside [low, high]."""
    if rule == SATURATE:
        return min(max(wide, low), high)
    if rule == WRAP:
        return ((wide - low) & (high - low)) + low
    if rule == ZERO:
        return wide if low <= wide <= high else 0
    return wide


@kernel(
    *(types.void(flat(t), types.uintp, flat(t), types.uintp, types.uintp, TABLE, INT, flat(t))
      for t in _KINDS)
)  # fmt: skip
def _add(
    sums: Any, to: Any, terms: Any, at: Any, count: Any, rules: Any, level: int, events: Any
) -> None:
    """Adds `count` lanes by rule `level`: what to do outside, lowest, highest, events counted.

    Indices are unsigned so that numba vectorises the loops.
    """
    kind = sums.dtype.type
    rule, low, high = rules[level, 0], kind(rules[level, 1]), kind(rules[level, 2])
    one, nothing = kind(rules[level, 3]), kind(0)
    if rule == SATURATE:
        for i in range(count):
            wide = kind(sums[to + i] + terms[at + i])
            value = kind(min(max(wide, low), high))
            events[i] = kind(events[i] + (one if wide != value else nothing))
            sums[to + i] = value
    elif rule == WRAP:
        mask = kind(high - low)
        for i in range(count):
            wide = kind(sums[to + i] + terms[at + i])
            value = kind(kind(kind(wide - low) & mask) + low)
            events[i] = kind(events[i] + (one if wide != value else nothing))
            sums[to + i] = value
    elif rule == ZERO:
        for i in range(count):
            wide = kind(sums[to + i] + terms[at + i])
            outside = wide < low or wide > high
            events[i] = kind(events[i] + (one if outside else nothing))
            sums[to + i] = nothing if outside else wide
    else:
        for i in range(count):
            sums[to + i] = kind(sums[to + i] + terms[at + i])


@kernel(
    *(types.void(flat(t), types.uintp, types.uintp, flat(t), flat(t)) for t in _KINDS)
)  # fmt: skip
def _widen(sums: Any, at: Any, count: Any, least: Any, greatest: Any) -> None:
    kind = sums.dtype.type
    for i in range(count):
        least[i] = kind(min(least[i], sums[at + i]))
        greatest[i] = kind(max(greatest[i], sums[at + i]))


@kernel(
    *(types.void(t, read_only(t), types.uintp, types.uintp, TABLE, NUMBERS, INT, flat(t), flat(t))
      for t in _KINDS)
)  # fmt: skip
def _multiply(
    factor: Any, panel: Any, index: Any, count: Any, rules: Any, rounding: Any, salt: int,
    terms: Any, spare: Any,
) -> None:  # fmt: skip
    """Multiplies a factor by a row of the panel; rounds, and the last rule limits the products."""
    kind = terms.dtype.type
    for i in range(count):
        terms[i] = kind(factor * panel[index + i])
    shift, last = rounding[0], len(rules) - 1
    if shift:
        for i in range(count):
            terms[i] = kind(rounded(terms[i], shift, rounding[1], salt))
    if rules[last, 0] != EXACT:
        spare[:] = kind(0)
        _add(terms, np.uintp(0), spare, np.uintp(0), count, rules, last, spare)
    if shift:
        for i in range(count):
            terms[i] = kind(terms[i] << shift)


@kernel(
    *(types.void(read_only(t), INT, read_only(t), INT, INT, TABLE, NUMBERS, NUMBERS, INT, flat(t),
                 flat(t), flat(t), flat(t), types.boolean, flat(t), flat(t))
      for t in _KINDS)
)  # fmt: skip
def _add_terms(
    left: Any, factor: int, panel: Any, index: int, count: int, rules: Any, rounding: Any,
    salts: Any, first: int, registers: Any, terms: Any, spare: Any, events: Any, observed: bool,
    least: Any, greatest: Any,
) -> None:  # fmt: skip
    """Adds `count` terms to register 0."""
    tile, begin = np.uintp(terms.size), np.uintp(0)
    for k in range(count):
        row = np.uintp(index + k * terms.size)
        _multiply(
            left[factor + k], panel, row, tile, rules, rounding, salts[first + k], terms, spare
        )
        _add(registers, begin, terms, begin, tile, rules, 0, events)
        if observed and rules[0, 0] == EXACT:
            _widen(registers, begin, tile, least, greatest)


@kernel(
    *(types.void(read_only(t), INT, read_only(t), INT, NUMBERS, TABLE, NUMBERS,
                 NUMBERS, types.boolean, START, MATRIX_OUT, MATRIX_OUT, MATRIX_OUT, MATRIX_OUT)
      for t in _KINDS)
)  # fmt: skip
def run(
    left: Any, depth: int, panel: Any, tile: int, steps: Any, rules: Any, rounding: Any,
    salts: Any, observed: bool, start: Any, values: Any, first: Any, second: Any, clips: Any,
) -> None:  # fmt: skip
    """Runs the program for every row and column; the last register begins with `start`.

    `rules` (registers + 1, 4), int64, has a row for each register and one for products. `first`
    and `second` are the extremes of the registers without a range if `observed`, else events.
    `rounding` (2) are the low bits that products lose and the rule, `salts` have a number for each
    term. `clips`, unless it is empty, are the events of the registers with a range if `observed`.
    """
    rows, columns = start.shape
    top, width = len(rules) - 2, np.uintp(tile)
    registers = np.empty((top + 1) * tile, panel.dtype)
    terms = np.empty(tile, panel.dtype)
    spare, events = np.empty_like(terms), np.empty_like(terms)
    least, greatest = np.empty_like(terms), np.empty_like(terms)
    for number in range((columns + tile - 1) // tile):
        column = number * tile
        count = min(tile, columns - column)
        for row in range(rows):
            registers[:], events[:], least[:], greatest[:] = 0, 0, 0, 0
            for i in range(count):
                registers[top * tile + i] = start[row, column + i]
            if observed:
                _widen(registers, np.uintp(top * tile), width, least, greatest)
            k = 0
            for step in steps:
                if step > 0:
                    index = (number * depth + k) * tile
                    _add_terms(left, row * depth + k, panel, index, step, rules, rounding,
                               salts, k, registers, terms, spare, events, observed, least,
                               greatest)  # fmt: skip
                    k += step
                else:
                    to, at = np.uintp(-step * tile), np.uintp((-step - 1) * tile)
                    _add(registers, to, registers, at, width, rules, -step, events)
                    registers[at : at + width] = 0
                    if observed and rules[-step, 0] == EXACT:
                        _widen(registers, to, width, least, greatest)
            for i in range(count):
                values[row, column + i] = registers[top * tile + i]
                first[row, column + i] = least[i] if observed else events[i]
                second[row, column + i] = greatest[i] if observed else events[i]
                if len(clips):
                    clips[row, column + i] = events[i]
