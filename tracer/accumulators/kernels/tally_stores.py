"""Stores that count sums by width and bin, and measure errors; the tables that have the counts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from llvmlite import ir

from tracer.accumulators.kernels import steps
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.statistics.partial_sums import EXTREMES, Tally, bin_edges
from tracer.interpreter.kernels.machine_code import INDEX, REGISTER
from tracer.interpreter.kernels.tiles import Step, Store, Tile
from tracer.interpreter.numeric import parallel
from tracer.support.types import Array

PART_BITS = 3
"""Bits of a float after its first one that tell the bins of an octave apart."""
LOW, HIGH, FINAL = range(3)
"""Histograms: of the least and of the greatest sums on the way, of the final sums."""
EVENTS, CHANGED, LARGEST, ERRORS_HIGH, ERRORS_LOW = range(5)
"""Words of a row: steps that left the range; sums other than the exact ones; their largest error,
and all errors added up, in units of 2^32 and of 1."""
LEAST, GREATEST, LEAST_FINAL, GREATEST_FINAL = range(4)
"""Vectors of a row: extremes of the sums in each lane."""
FIRST = -1
"""The exponent of the least lane: one half."""


@dataclass(frozen=True)
class Layout:
    """The words of sums in floats of `bits`: histograms, then the same words for each row.

    A lane holds the sum plus one half. Its exponent is the width that the sum needs, its exponent
    and `PART_BITS` more bits are its bin: in both, a negative number n mirrors -n - 1.
    """

    bits: int

    @property
    def fraction(self) -> int:
        """Bits of a float after its first one."""
        return 23 if self.bits == 32 else 52

    @property
    def exponents(self) -> int:
        """Exponents that lanes have."""
        return self.fraction + 1 - FIRST

    @property
    def signed(self) -> int:
        """Bins of lanes of one sign."""
        return self.exponents << PART_BITS

    @property
    def histogram(self) -> int:
        """Words of a histogram: bins of positive lanes, then of negative ones."""
        return 2 * self.signed

    @property
    def rows(self) -> int:
        """The first word of the first row."""
        return 3 * self.histogram

    @property
    def words(self) -> int:
        """The first of the five counts of a row, after two counts by exponent."""
        return 2 * self.exponents

    @property
    def extremes(self) -> int:
        """The first word of the vectors of a row."""
        return self.words + 5

    @property
    def row(self) -> int:
        """Words of a row."""
        return self.extremes + 4 * REGISTER // 64

    def size(self, rows: int) -> int:
        """Words of a table of so many rows."""
        return self.rows + rows * self.row


def _tally(tile: Tile, write: steps.Write, step: Step) -> None:
    """Adds sums of EXTREMES to the tables, and writes what the accumulator makes of them."""
    v, b, half = tile.vectors, tile.vectors.builder, tile.words.halves("half")
    table = _Table(tile)
    final, low, high = tile.after
    # States begin with 0, the first sum; its lane is one half where that is added.
    zero = ir.Constant(v.kind, None)
    low = [b.select(b.fcmp_ordered("<", each, zero), each, half) for each in low]
    high = [v.greatest(each, half) for each in high]
    table.count(final, low, high)
    table.extend(final, low, high)
    with b.if_else(steps.outside(tile, low, high)) as (beyond, within):
        with beyond:
            values, events = tile.again(step)
            table.add_errors(final, values, events)
            write(replace(tile, after=[values]))
        with within:
            write(replace(tile, after=[final]))


class _Table:
    """The tables of a tile's slot, and the code that adds to them."""

    def __init__(self, tile: Tile) -> None:
        self.tile, self.v, self.b = tile, tile.vectors, tile.vectors.builder
        self.layout = Layout(self.v.bits)
        words, b = tile.words, self.b
        self.words = self.v.at(words.array("tables"), b.mul(tile.slot, words.number("table_size")))
        self.channel = b.add(words.moved["rows"], tile.row)

    def count(self, final: list[Any], low: list[Any], high: list[Any]) -> None:
        """Counts sums by bin, and by the width that they need on the way and at their end."""
        v, b = self.v, self.b
        sizes = [v.greatest(up, b.fneg(down)) for up, down in zip(high, low, strict=True)]
        bins = [
            self._store_tile([self._bin(each) for each in values]) for values in (low, high, final)
        ]
        widths = [
            self._store_tile([self._width(each) for each in values]) for values in (sizes, final)
        ]

        width = INDEX(len(self.tile.inside) * v.count)

        def sum_at(n: Any, column: Any) -> None:
            place, row = b.add(b.mul(n, width), column), self._row(n)
            for number, numbers in enumerate(bins):
                self._increase(v.at(self.words, number * self.layout.histogram), numbers, place)
            for number, numbers in enumerate(widths):
                self._increase(v.at(row, number * self.layout.exponents), numbers, place)

        rows, columns = self.tile.size
        v.for_each(columns, lambda column: v.for_each(rows, lambda n: sum_at(n, column)))

    def extend(self, final: list[Any], low: list[Any], high: list[Any]) -> None:
        """Lets the extremes of each row include its sums."""
        v, b, layout = self.v, self.b, self.layout
        kept = {LEAST: (low, v.least), GREATEST: (high, v.greatest),
                LEAST_FINAL: (final, v.least),
                GREATEST_FINAL: (final, v.greatest)}  # fmt: skip
        homes = {number: self._store_tile(values) for number, (values, _) in kept.items()}

        def row(n: Any) -> None:
            first = b.bitcast(v.at(self._row(n), layout.extremes), v.scalar.as_pointer())
            for number, (_, better) in kept.items():
                address = v.at(first, number * v.count)
                best = v.load(address)
                for value, inside in zip(self._row_of(homes[number], n), self.tile.inside,
                                         strict=True):  # fmt: skip
                    best = b.select(inside, better(best, value), best)
                v.store(best, address)

        v.for_each(self.tile.size[0], row)

    def add_errors(self, final: list[Any], values: list[Any], events: list[Any]) -> None:
        """Adds the events and the errors of limited sums to the words of their rows."""
        v, b = self.v, self.b
        homes = [self._store_tile(each) for each in (final, values, events)]
        wide, zero = ir.VectorType(INDEX, v.count), ir.Constant(v.kind, None)

        def part(first: Any, exact: Any, value: Any, event: Any, inside: Any) -> None:
            counts = b.select(inside, b.bitcast(event, v.integers), ir.Constant(v.integers, None))
            error = b.fsub(value, exact)
            error = b.select(inside, v.greatest(error, b.fneg(error)), zero)
            whole = b.fptosi(error, wide)
            changed = b.zext(b.fcmp_ordered("!=", error, zero), wide)
            upper = b.lshr(whole, ir.Constant(wide, [32] * v.count))
            lower = b.and_(whole, ir.Constant(wide, [0xFFFFFFFF] * v.count))
            counts = counts if v.bits == 64 else b.zext(counts, wide)
            added = {EVENTS: counts, CHANGED: changed,
                     ERRORS_HIGH: upper, ERRORS_LOW: lower}  # fmt: skip
            for number, lanes in added.items():
                address = v.at(first, number)
                b.store(b.add(b.load(address), steps.reduced(v, "add", lanes)), address)
            address = v.at(first, LARGEST)
            largest, known = steps.reduced(v, "smax", whole), b.load(address)
            b.store(b.select(b.icmp_signed(">", largest, known), largest, known), address)

        def row(n: Any) -> None:
            first = v.at(self._row(n), self.layout.words)
            vectors = (self._row_of(home, n) for home in homes)
            for parts in zip(*vectors, self.tile.inside, strict=True):
                part(first, *parts)

        v.for_each(self.tile.size[0], row)

    def _bin(self, value: Any) -> Any:
        """The bin of a sum: the leading bits of the sum plus one half."""
        v, b, layout = self.v, self.b, self.layout
        half = self.tile.words.halves("half")
        lane = b.fadd(b.fsub(value, half), v.constant(0.5))
        number = b.bitcast(lane, v.integers)
        leading = self._without_sign(number, layout.fraction - PART_BITS)
        place = b.sub(leading, self._constant((self._bias + FIRST) << PART_BITS))
        negative = b.icmp_signed("<", number, self._constant(0))
        return b.add(place, b.select(negative, self._constant(layout.signed), self._constant(0)))

    def _width(self, size: Any) -> Any:
        """The number of the exponent of a lane, 0 for the lane 0."""
        v, b = self.v, self.b
        exponent = self._without_sign(b.bitcast(size, v.integers), self.layout.fraction)
        number = b.sub(exponent, self._constant(self._bias + FIRST))
        return b.select(b.icmp_signed(">", number, self._constant(0)), number, self._constant(0))

    def _without_sign(self, lanes: Any, shift: int) -> Any:
        """The bits of floats without the sign and without the last ones."""
        magnitude = self.b.shl(lanes, self._constant(1))
        return self.b.lshr(magnitude, self._constant(1 + shift))

    @property
    def _bias(self) -> int:
        """What a float's field for its exponent adds to it."""
        return 127 if self.v.bits == 32 else 1023

    def _constant(self, number: int) -> Any:
        return ir.Constant(self.v.integers, [number] * self.v.count)

    def _row(self, n: Any) -> Any:
        """The words of row n of the tile."""
        number = self.b.add(self.channel, n)
        offset = self.b.mul(number, INDEX(self.layout.row))
        return self.v.at(self.v.at(self.words, self.layout.rows), offset)

    def _store_tile(self, values: Sequence[Any]) -> Any:
        """The address of a copy of a tile of vectors."""
        with self.b.goto_entry_block():
            home = self.b.alloca(values[0].type, len(values))
        for n, value in enumerate(values):
            self.b.store(value, self.v.at(home, n))
        return home

    def _row_of(self, home: Any, n: Any) -> list[Any]:
        """The vectors of row n."""
        vectors = len(self.tile.inside)
        first = self.v.at(home, self.b.mul(n, INDEX(vectors)))
        return [self.b.load(self.v.at(first, i)) for i in range(vectors)]

    def _increase(self, table: Any, numbers: Any, place: Any) -> None:
        """Adds 1 to the element of a table that the number at a place names."""
        v, b = self.v, self.b
        single = b.bitcast(numbers, ir.IntType(v.bits).as_pointer())
        number = b.load(v.at(single, place))
        address = v.at(table, number if v.bits == 64 else b.zext(number, INDEX))
        b.store(b.add(b.load(address), INDEX(1)), address)


@dataclass(frozen=True, slots=True)
class TileTables:
    """Statistics of `rows` rows of sums in floats of `bits`, a table for each thread.

    `words` (threads, any), int64, are laid out as `Layout` says.
    """

    bits: int
    rows: int
    words: Array

    @classmethod
    def empty(cls, bits: int, rows: int) -> "TileTables":
        """The tables of no sums."""
        words = np.zeros((parallel.allowed(), Layout(bits).size(rows)), np.int64)
        tables = cls(bits, rows, words)
        finals = tables._extremes[..., LEAST_FINAL:, :]
        finals[..., 0, :], finals[..., 1, :] = np.inf, -np.inf
        return tables

    def tally(self, columns: int, accumulator: Accumulator) -> Tally:
        """The statistics of `columns` sums in each row."""
        layout, tally = Layout(self.bits), Tally.empty(self.rows, accumulator)
        tally.outputs[:] = columns
        histograms = self.words[:, : layout.rows].sum(0).reshape(3, -1)
        names = {"low_histogram": LOW, "high_histogram": HIGH, "final_histogram": FINAL}
        for name, number in names.items():
            np.add.at(getattr(tally, name), _tally_bins(self.bits), histograms[number])
        rows = self._rows
        widths = rows[..., : layout.words].sum(0).reshape(self.rows, 2, -1)
        counted = slice(1, 1 + layout.exponents)
        tally.prefix_widths[:, counted], tally.final_widths[:, counted] = widths.swapaxes(0, 1)
        words = rows[..., layout.words : layout.extremes]
        total = words.sum(0)
        tally.saturation_events[:] = total[:, EVENTS]
        tally.outputs_changed[:] = total[:, CHANGED]
        tally.max_abs_error[:] = words[..., LARGEST].max(0)
        tally.error_sum[:] = total[:, [ERRORS_HIGH, ERRORS_LOW]]
        lanes, half = self._extremes, 0.0 if accumulator.is_symmetric else 0.5
        for number, name in enumerate(EXTREMES):
            best = np.min if name.endswith("min") else np.max
            getattr(tally, name)[:] = best(lanes[..., number, :], axis=(0, 2)) - half
        return tally

    @property
    def _rows(self) -> Array:
        """The words of each row: (threads, rows, any)."""
        layout = Layout(self.bits)
        return self.words[:, layout.rows :].reshape(len(self.words), self.rows, layout.row)

    @property
    def _extremes(self) -> Array:
        """The vectors of each row, floats: (threads, rows, 4, lanes)."""
        words = self._rows[..., Layout(self.bits).extremes :]
        return words.view(f"float{self.bits}").reshape(*words.shape[:2], len(EXTREMES), -1)


@cache
def _tally_bins(bits: int) -> Array:
    """The bin of `bin_edges` that each bin of lanes lies in."""
    number, parts = np.arange(Layout(bits).signed), 1 << PART_BITS
    octaves = np.exp2((number // parts + FIRST).astype(np.float64))
    least = np.ceil(octaves * (1 + number % parts / parts) - 0.5)
    return np.searchsorted(bin_edges(), np.concatenate([least, -least - 1]), side="right") - 1


@cache
def tally(overflow: str, as_bytes: bool) -> Store:
    """Sums of EXTREMES, limited, and their statistics."""
    kind, write = (steps.BYTE, steps.write_bytes) if as_bytes else (INDEX, steps.write_sums)
    code = partial(_tally, write=write, step=steps.counting(overflow))
    return Store((kind,), code, repeats=True, tables=lambda bits, rows: Layout(bits).size(rows))
