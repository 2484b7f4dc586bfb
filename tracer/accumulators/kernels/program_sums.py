"""Sums in stages: any order that is a tree, every overflow, products with a width of their own.

A program runs over a few registers, one for each stage: a step n > 0 adds the next n terms to the
first, a step -s adds register s - 1 to register s and clears it. Registers have a lane for each
column of a tile; panels are those of `dense`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

SATURATE, WRAP, ZERO, EXACT = range(4)
"""What is done beyond a range; nothing, where a program is only observed."""

_INT = types.intp
_KINDS = (types.int32, types.int64)
_STEPS = types.Array(types.int64, 1, "C", readonly=True)
_RULES = types.Array(types.int64, 2, "C", readonly=True)
_START = types.Array(types.int64, 2, "A", readonly=True)
_OUT = types.Array(types.int64, 2, "A")


def _added(lane: Any) -> Any:
    flat = types.Array(lane, 1, "C")
    return types.void(flat, types.uintp, flat, types.uintp, types.uintp, _RULES, _INT, flat)


@njit([_added(kind) for kind in _KINDS], nogil=True, cache=True)
def _add(
    sums: Any, to: Any, terms: Any, at: Any, count: Any, rules: Any, level: int, events: Any
) -> None:
    """One step of `count` lanes by a row of `rules`: what to do beyond, lowest, highest, counted.

    Indices are unsigned: see `planes`.
    """
    kind = sums.dtype.type
    rule, low, high = rules[level, 0], kind(rules[level, 1]), kind(rules[level, 2])
    one, nothing = kind(rules[level, 3]), kind(0)
    if rule == SATURATE:
        for i in range(count):
            wide = kind(sums[to + i] + terms[at + i])
            kept = kind(min(max(wide, low), high))
            events[i] = kind(events[i] + (one if wide != kept else nothing))
            sums[to + i] = kept
    elif rule == WRAP:
        mask = kind(high - low)
        for i in range(count):
            wide = kind(sums[to + i] + terms[at + i])
            kept = kind(kind(kind(wide - low) & mask) + low)
            events[i] = kind(events[i] + (one if wide != kept else nothing))
            sums[to + i] = kept
    elif rule == ZERO:
        for i in range(count):
            wide = kind(sums[to + i] + terms[at + i])
            out = wide < low or wide > high
            events[i] = kind(events[i] + (one if out else nothing))
            sums[to + i] = nothing if out else wide
    else:
        for i in range(count):
            sums[to + i] = kind(sums[to + i] + terms[at + i])


def _widened(lane: Any) -> Any:
    flat = types.Array(lane, 1, "C")
    return types.void(flat, types.uintp, types.uintp, flat, flat)


@njit([_widened(kind) for kind in _KINDS], nogil=True, cache=True)
def _widen(sums: Any, at: Any, count: Any, least: Any, greatest: Any) -> None:
    kind = sums.dtype.type
    for i in range(count):
        least[i] = kind(min(least[i], sums[at + i]))
        greatest[i] = kind(max(greatest[i], sums[at + i]))


def _multiplied(lane: Any) -> Any:
    there = types.Array(lane, 1, "C", readonly=True)
    flat = types.Array(lane, 1, "C")
    return types.void(lane, there, types.uintp, types.uintp, _RULES, flat, flat)


@njit([_multiplied(kind) for kind in _KINDS], nogil=True, cache=True)
def _multiply(
    factor: Any, panel: Any, place: Any, count: Any, rules: Any, terms: Any, spare: Any
) -> None:
    """A factor times a row of the panel, brought into the width of products: the last rule."""
    kind = terms.dtype.type
    for i in range(count):
        terms[i] = kind(factor * panel[place + i])
    last = len(rules) - 1
    if rules[last, 0] != EXACT:
        spare[:] = kind(0)
        _add(terms, np.uintp(0), spare, np.uintp(0), count, rules, last, spare)


def _terms_of(lane: Any) -> Any:
    there, flat = types.Array(lane, 1, "C", readonly=True), types.Array(lane, 1, "C")
    return types.void(
        there, _INT, there, _INT, _INT, _RULES, flat, flat, flat, flat, types.boolean, flat, flat
    )


@njit([_terms_of(kind) for kind in _KINDS], nogil=True, cache=True)
def _terms(
    left: Any, factor: int, panel: Any, place: int, count: int, rules: Any, registers: Any,
    terms: Any, spare: Any, events: Any, observed: bool, least: Any, greatest: Any,
) -> None:  # fmt: skip
    """Add so many terms to the first register."""
    wide, begin = np.uintp(terms.size), np.uintp(0)
    for k in range(count):
        row = np.uintp(place + k * terms.size)
        _multiply(left[factor + k], panel, row, wide, rules, terms, spare)
        _add(registers, begin, terms, begin, wide, rules, 0, events)
        if observed and rules[0, 3]:
            _widen(registers, begin, wide, least, greatest)


def _run_of(lane: Any) -> Any:
    flat = types.Array(lane, 1, "C", readonly=True)
    return types.void(
        flat, _INT, flat, _INT, _STEPS, _RULES, types.boolean, _START, _OUT, _OUT, _OUT
    )


@njit([_run_of(kind) for kind in _KINDS], nogil=True, cache=True)
def run(
    left: Any, depth: int, panel: Any, tile: int, steps: Any, rules: Any, observed: bool,
    start: Any, values: Any, first: Any, second: Any,
) -> None:  # fmt: skip
    """The program for every row and column; `start` is what the last register begins with.

    `rules` has a row for each register, and one for products at the end, which counts nothing.
    `first` and `second` are the extremes of the registers that count if `observed`, else events.
    """
    rows, columns = start.shape
    top, wide = len(rules) - 2, np.uintp(tile)
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
                _widen(registers, np.uintp(top * tile), wide, least, greatest)
            k = 0
            for step in steps:
                if step > 0:
                    place = (number * depth + k) * tile
                    _terms(left, row * depth + k, panel, place, step, rules, registers,
                           terms, spare, events, observed, least, greatest)  # fmt: skip
                    k += step
                else:
                    to, at = np.uintp(-step * tile), np.uintp((-step - 1) * tile)
                    _add(registers, to, registers, at, wide, rules, -step, events)
                    registers[at : at + wide] = 0
                    if observed and rules[-step, 3]:
                        _widen(registers, to, wide, least, greatest)
            for i in range(count):
                values[row, column + i] = registers[top * tile + i]
                first[row, column + i] = least[i] if observed else events[i]
                second[row, column + i] = greatest[i] if observed else events[i]
