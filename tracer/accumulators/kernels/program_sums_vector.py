"""Programs of `staged` in int32 lanes that stay in vector registers while terms are added.

Steps take an even number of terms. Some rows of a tile at a time have their registers one after
the other; what adds registers up are loops over their lanes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from tracer.accumulators.kernels.llvm_sums import FEWER, careful, extremes
from tracer.accumulators.kernels.program_sums import EXACT

_INT = types.intp
_FLAT = types.Array(types.int32, 1, "C")
_FACTORS = types.Array(types.int32, 1, "C", readonly=True)
_STEPS = types.Array(types.int64, 1, "C", readonly=True)
_RULES = types.Array(types.int64, 2, "C", readonly=True)
_START = types.Array(types.int64, 2, "A", readonly=True)
_OUT = types.Array(types.int64, 2, "A")


@njit(
    types.void(_FLAT, types.uintp, types.uintp, types.int32, types.int32, _FLAT),
    nogil=True,
    cache=True,
)
def _join(registers: Any, to: Any, size: Any, low: Any, high: Any, steps: Any) -> None:
    """Add the register before to that at `to`, within a range, and clear it."""
    for i in range(size):
        wide = np.int32(registers[to + i] + registers[to - size + i])
        kept = np.int32(min(max(wide, low), high))
        steps[i] = np.int32(steps[i] + np.int32(wide != kept))
        registers[to + i] = kept
        registers[to - size + i] = np.int32(0)


@njit(types.void(_FLAT, types.uintp, types.uintp, _FLAT, _FLAT), nogil=True, cache=True)
def _widen(registers: Any, at: Any, size: Any, least: Any, greatest: Any) -> None:
    for i in range(size):
        least[i] = np.int32(min(least[i], registers[at + i]))
        greatest[i] = np.int32(max(greatest[i], registers[at + i]))


@njit(types.void(_FLAT, types.int32, _FLAT), nogil=True, cache=True)
def _count(within: Any, count: Any, steps: Any) -> None:
    """Add how many of `count` steps were not within the range, of which there are -`within`."""
    for i in range(steps.size):
        steps[i] = np.int32(steps[i] + np.int32(within[i] + count))


@njit(types.void(_FLAT, types.uintp, _INT, _START, _INT, _INT), nogil=True, cache=True)
def _begin(registers: Any, at: Any, tile: int, start: Any, row: int, column: int) -> None:
    """The start of some rows and of a tile of columns in a register."""
    rows, columns = start.shape
    for i in range(min(FEWER, rows - row)):
        for lane in range(min(tile, columns - column)):
            registers[at + np.uintp(i * tile + lane)] = start[row + i, column + lane]


@njit(types.void(_FLAT, types.uintp, _INT, _OUT, _INT, _INT), nogil=True, cache=True)
def _end(registers: Any, at: Any, tile: int, out: Any, row: int, column: int) -> None:
    """Write a register to the rows and columns it belongs to."""
    rows, columns = out.shape
    for i in range(min(FEWER, rows - row)):
        for lane in range(min(tile, columns - column)):
            out[row + i, column + lane] = registers[at + np.uintp(i * tile + lane)]


def _run_of(cell: Any) -> Any:
    panel = types.Array(cell, 1, "C", readonly=True)
    return types.void(
        _FACTORS, _INT, panel, _INT, _STEPS, _RULES, types.boolean, _START, _OUT, _OUT, _OUT
    )


@njit([_run_of(types.int16), _run_of(types.int32)], nogil=True, cache=True)
def run(
    left: Any, depth: int, panel: Any, tile: int, steps: Any, rules: Any, observed: bool,
    start: Any, values: Any, first: Any, second: Any,
) -> None:  # fmt: skip
    """As `staged.run`, for rules that saturate, or do nothing, and none for products.

    `left` and `panel` are those of `dense`; a rule that does nothing has the range of int32.
    """
    rows, columns = start.shape
    top, size, free = (len(rules) - 2) * FEWER * tile, np.uintp(FEWER * tile), rules[0, 0] == EXACT
    lowest, highest = rules[:, 1].astype(np.int32), rules[:, 2].astype(np.int32)
    registers = np.zeros(top + FEWER * tile, np.int32)
    within, events = np.zeros(FEWER * tile, np.int32), np.zeros(FEWER * tile, np.int32)
    spare, least, greatest = np.zeros_like(events), np.zeros_like(events), np.zeros_like(events)
    bands = (rows + FEWER - 1) // FEWER
    for number in range(bands * ((columns + tile - 1) // tile)):
        column, row = number // bands * tile, number % bands * FEWER
        registers[:], events[:], least[:], greatest[:] = 0, 0, 0, 0
        _begin(registers, np.uintp(top), tile, start, row, column)
        _widen(registers, np.uintp(top), size, least, greatest)
        k = 0
        for step in steps:
            level = max(-step, 0)
            low, high, counted = lowest[level], highest[level], rules[level, 3] != 0
            if step < 0:
                to = np.uintp(level) * size
                _join(registers, to, size, low, high, events if counted else spare)
                if observed and counted:
                    _widen(registers, to, size, least, greatest)
                continue
            at, place = row * depth + k, column * depth + k * tile
            if free:
                extremes(left, at, depth, step, panel, place, registers, 0, least, greatest)
            else:
                careful(left, at, depth, step, panel, place, registers, 0, low, high, within)
                _count(within, np.int32(step), events if counted else spare)
            k += step
        _end(registers, np.uintp(top), tile, values, row, column)
        _end(least if observed else events, np.uintp(0), tile, first, row, column)
        _end(greatest if observed else events, np.uintp(0), tile, second, row, column)
