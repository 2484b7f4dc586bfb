"""Statistics of all sums of one node: extremes, overflow at every width, errors at one width.

Exact and narrow sums are equal until a partial sum leaves the range. The extremes of exact partial
sums therefore show which outputs overflow at every width. Only the results of narrow sums depend on
the width and are recorded for the accumulator's own width alone. `SampleSums` are the statistics of
each sample, over all nodes.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import numpy as np

from tracer.accumulators.kernels import loaded
from tracer.accumulators.spec import NARROWEST, WIDEST
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.errors import InputError, UsageError
from tracer.support.types import Array, IntArray


@dataclass(frozen=True, slots=True)
class UnlimitedSums:
    """Sums in an unlimited accumulator: int64 arrays of the block's shape.

    `final` is the sum; `low` and `high` are the least and the greatest partial sum, including 0
    before the first term. `clips` counts the additions that left a register with a width of its
    own, such as the pairs of `maddubs`; None where there is no such register.
    """

    final: Array
    low: Array
    high: Array
    clips: Array | None = None


@dataclass(frozen=True, slots=True)
class Clipped:
    """Sums in a narrow accumulator, int64; `events` counts the additions that left a range."""

    values: Array
    events: Array


BIN_FRACTION = 3
PER_OCTAVE = 1 << BIN_FRACTION
"""Integers from -16 to 15 have bins of their own; other bins are an eighth of an octave wide."""
_WIDTHS = WIDEST + 2
_LEAST, _GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_START = {"final_min": _GREATEST, "final_max": _LEAST}
EXTREMES = ("acc_min", "acc_max", "final_min", "final_max")
"""Quantities in the order of the kernels' tables."""
_LATER = ("clipped_widths",)
"""Quantities that older files lack; they are 0 there."""
_JOIN = {
    "acc_min": np.minimum,
    "acc_max": np.maximum,
    "final_min": np.minimum,
    "final_max": np.maximum,
    "max_abs_error": np.maximum,
    "bits_observed": np.maximum,
}
"""How quantities of two tallies or nodes are joined; others are added, and start at 0."""


@cache
def bin_edges() -> Array:
    """Returns the limits of all bins, exact float64, from -2^63: bin i has e_i <= n < e_(i+1).

    They are fixed, so that histograms of any data can be added: those of HdrHistogram
    (hdrhistogram.org), with a bin for each small integer, and equal bins in each octave beyond.
    Negative numbers mirror the others as in two's complement, so no bin crosses the limit of a
    width.
    """
    octaves = [(PER_OCTAVE + part) << octave for octave in range(60) for part in range(PER_OCTAVE)]
    positive = np.array([*range(PER_OCTAVE), *octaves, 1 << 63], np.float64)
    return np.concatenate([-positive[:0:-1], positive])


@dataclass(frozen=True, slots=True)
class Overflow:
    """Numbers of outputs that overflow at one width, int64 (channels,) each.

    `overflow_outputs` have a partial sum outside the range, or outside the range of a stage with a
    width of its own: `transient_outputs` have a final sum inside the range, `persistent_outputs`
    outside.
    """

    outputs: Array
    overflow_outputs: Array
    transient_outputs: Array
    persistent_outputs: Array


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """Statistics of one node's sums; int64 arrays, changed in place by `take` and `merge`.

    Each array has an element for every output channel. `prefix_widths` and `final_widths`
    (channels, 66) count outputs by the bits, including the sign, that hold all partial sums and the
    final sum; 65 counts those below 0 of an unsigned accumulator. `acc_min` and `acc_max` are
    extremes of all partial sums, including 0 before the first term; extremes of a channel without
    outputs are undefined. `clipped_widths` counts those of the same outputs that leave the range of
    a stage with a width of its own, as the pairs of `maddubs` do: they overflow at every width.

    At the accumulator's own width, `saturation_events` counts additions that left the range and
    `outputs_changed` final sums that differ from the exact sum. `error_sum` (channels, 2) is the
    sum of absolute errors in units of 2^32 and of 1. `missing` counts outputs that overflow and
    were not emulated; the errors and events are undefined unless it is 0.

    Three histograms of the node in the bins of `bin_edges` count final sums, and the least and
    the greatest partial sum of each output.
    """

    accumulator: Accumulator
    outputs: Array
    acc_min: Array
    acc_max: Array
    final_min: Array
    final_max: Array
    prefix_widths: Array
    final_widths: Array
    clipped_widths: Array
    saturation_events: Array
    outputs_changed: Array
    max_abs_error: Array
    error_sum: Array
    missing: Array
    final_histogram: Array
    low_histogram: Array
    high_histogram: Array

    @classmethod
    def empty(cls, channels: int, accumulator: Accumulator) -> Tally:
        """Returns the statistics of no outputs, for `channels` output channels."""
        arrays = {
            name: np.full(_shape(name, channels), _START.get(name, 0), np.int64)
            for name in _quantities()
        }
        return cls(accumulator, **arrays)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], accumulator: Accumulator) -> Tally:
        """Returns the tally of `arrays`. Raises InputError for a missing array or another shape."""
        channels = len(arrays.get("outputs", ()))
        if accumulator.widths and len(accumulator.widths) != channels:
            raise InputError(
                f"the stored statistics have {channels} channels, and widths for "
                f"{len(accumulator.widths)}",
                "The file was damaged; measure again.",
            )
        absent = {name: np.zeros(_shape(name, channels)) for name in _LATER}
        arrays = {**absent, **arrays}
        for name in _quantities():
            stored = arrays.get(name)
            if stored is None or stored.shape != _shape(name, channels):
                raise InputError(
                    f"the stored statistics lack a '{name}' of {channels} channels",
                    "The file was damaged, or written by another version; measure again.",
                )
        return cls(
            accumulator,
            **{name: arrays[name].astype(np.int64, copy=False) for name in _quantities()},
        )

    def arrays(self) -> dict[str, Array]:
        """Returns all quantities by name, for a file, without copying them."""
        return {name: getattr(self, name) for name in _quantities()}

    def take(self, channels: slice | Array, part: Tally) -> None:
        """Adds a tally of `channels`, each of which occurs once."""
        for name in _quantities():
            totals = getattr(self, name)
            rows = slice(None) if name.endswith("_histogram") else channels
            totals[rows] = _JOIN.get(name, np.add)(totals[rows], getattr(part, name))
        _carry(self.error_sum)

    def of(
        self, sums: UnlimitedSums, clipped: Clipped | None = None, exact: Array | None = None,
        channels: int | None = None,
    ) -> Tally:  # fmt: skip
        """Returns the tally of these outputs alone, with a channel for each row, or for some rows.

        `clipped` may be None where no output overflows, or where only other widths matter. Errors
        are differences from `exact`: the final sum, unless products have a width of their own.
        """
        rows = len(sums.final) if channels is None else channels
        part = Tally.empty(rows, self.accumulator)
        if not sums.final.size:
            return part

        def in_rows(numbers: Array) -> Array:
            return np.ascontiguousarray(numbers.reshape(rows, -1), np.int64)

        kernels = loaded("sum_statistics")
        low, high, final = map(in_rows, (sums.low, sums.high, sums.final))
        extremes = np.empty((4, rows), np.int64)
        kernels.spread(
            (low, high, final), self.accumulator.range_of(self.accumulator.widest)[0], BIN_FRACTION,
            (part.prefix_widths, part.final_widths),
            (part.low_histogram, part.high_histogram, part.final_histogram), extremes,
        )  # fmt: skip
        part.outputs[:] = final.shape[1]
        if sums.clips is not None:
            places = np.nonzero(in_rows(sums.clips))
            widths = np.maximum(*(self.accumulator.needed(end[places]) for end in (low, high)))
            np.add.at(part.clipped_widths, (places[0], widths), 1)
        for name, values in zip(EXTREMES, extremes, strict=True):
            getattr(part, name)[:] = values
        if clipped is None:
            above = self.accumulator.bits + self.accumulator.uncounted_bits + 1
            part.missing[:] = part.prefix_widths[:, above:].sum(1)
            return part
        part.saturation_events[:] = clipped.events.reshape(rows, -1).sum(1)
        kernels.errors(
            in_rows(clipped.values), final if exact is None else in_rows(exact),
            part.outputs_changed, part.max_abs_error, part.error_sum,
        )  # fmt: skip
        return part

    def merge(self, other: Tally) -> None:
        """Adds another tally of the same node.

        Raises UsageError for one of another accumulator or of other channels.
        """
        if other.accumulator != self.accumulator or len(other.outputs) != len(self.outputs):
            raise UsageError(
                "statistics of different accumulators or nodes cannot be merged",
                f"One has {len(self.outputs)} channels under {self.accumulator}, the other"
                f" {len(other.outputs)} under {other.accumulator}.",
            )
        self.take(slice(None), other)

    def folded(self, channels: int = 1) -> Tally:
        """Returns the statistics of all channels as one, or of each that many channels as those."""
        total = Tally.empty(channels, self.accumulator)
        for name, counts in self.arrays().items():
            if name.endswith("_histogram"):
                getattr(total, name)[:] = counts
            else:
                parts = counts.reshape(-1, channels, *counts.shape[1:])
                getattr(total, name)[:] = _JOIN.get(name, np.add).reduce(parts, axis=0)
        _carry(total.error_sum)
        return total

    def overflow(self, bits: int | None = None) -> Overflow:
        """Returns how many outputs overflow in the same accumulator with `bits` [default: its own].

        Raises UsageError for an invalid width.
        """
        own = self.accumulator
        chosen = own if bits is None else own.of_channels(bits)  # checks the width
        widths = np.array(chosen.widths or [chosen.bits])[:, None]
        is_above = np.arange(_WIDTHS) > widths + own.uncounted_bits
        outside = np.where(is_above, self.prefix_widths, self.clipped_widths).sum(1)
        persistent = (self.final_widths * is_above).sum(1)
        return Overflow(self.outputs.copy(), outside, outside - persistent, persistent)

    @property
    def bits_observed(self) -> Array:
        """The least width at which no output overflows, int64 (channels,); 65 if there is none.

        It does not regard stages with a width of their own, whose overflows no width prevents.
        """
        widest = _WIDTHS - 1 - np.argmax(self.prefix_widths[:, ::-1] > 0, axis=1)
        return np.where(self.outputs > 0, self.accumulator.counted(widest), NARROWEST)

    @property
    def abs_error_sum(self) -> list[int]:
        """The sum of absolute errors of each channel."""
        return [(int(high) << 32) + int(low) for high, low in self.error_sum]

    @property
    def mean_abs_error(self) -> float:
        """The mean absolute error over all outputs of the node; 0 without outputs."""
        return sum(self.abs_error_sum) / max(int(self.outputs.sum()), 1)

    def totals(self) -> dict[str, int]:
        """Returns the statistics of all channels that summed."""
        seen = self.outputs > 0
        counts = self.overflow()
        return {
            **{field.name: int(getattr(counts, field.name).sum()) for field in fields(Overflow)},
            "saturation_events": int(self.saturation_events.sum()),
            "outputs_changed": int(self.outputs_changed.sum()),
            "max_abs_error": int(self.max_abs_error.max()),
            **{name: int(_JOIN[name].reduce(getattr(self, name)[seen])) for name in EXTREMES},
            "bits_observed": int(self.bits_observed.max()),
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tally):
            return NotImplemented
        return self.accumulator == other.accumulator and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in _quantities()
        )

    __hash__ = None  # type: ignore[assignment]  # it changes


def _quantities() -> list[str]:
    return [field.name for field in fields(Tally) if field.name != "accumulator"]


def _shape(name: str, channels: int) -> tuple[int, ...]:
    if name.endswith("_histogram"):
        return (len(bin_edges()) - 1,)
    if name.endswith("_widths"):
        return (channels, _WIDTHS)
    return (channels, 2) if name == "error_sum" else (channels,)


def _carry(sums: Array) -> None:
    sums[:, 0] += sums[:, 1] >> 32
    sums[:, 1] &= 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class PartialSums:
    """The partial sums of the node with key `node`, and the widths that suffice for them.

    `tally` has the statistics by output channel, under the accumulator that it names. `guaranteed`
    bits hold the partial sums of any input in the accumulator's order, `guaranteed_any_order` bits
    in any order. `guaranteed_channels`, int64 (channels,), are the guaranteed bits by channel.
    `datatype` bits follow from the types of the operands alone. `guaranteed_inner` bits, and their
    number by channel, hold the sums in registers within the order. None where unknown.
    """

    node: str
    tally: Tally
    guaranteed: int | None = None
    guaranteed_any_order: int | None = None
    guaranteed_channels: IntArray | None = None
    datatype: int | None = None
    guaranteed_inner: int | None = None
    guaranteed_inner_channels: IntArray | None = None

    @classmethod
    def merged(cls, parts: Sequence[PartialSums]) -> PartialSums:
        """Returns the sums of one node in several parts of the data, in whatever order.

        Where parts have different numbers of channels, all channels are counted as one. The parts
        stay as they are.
        """
        first, *others = parts
        if not others:
            return first
        tallies = [part.tally for part in parts]
        if len({len(tally.outputs) for tally in tallies}) > 1:
            tallies = [tally.folded() for tally in tallies]
        channels = len(tallies[0].outputs)
        tally = Tally.empty(channels, tallies[0].accumulator)
        for each in tallies:
            tally.merge(each)

        def known_bits(name: str) -> list[Any]:
            return [bits for part in parts if (bits := getattr(part, name)) is not None]

        names = ("guaranteed", "guaranteed_any_order", "datatype", "guaranteed_inner")
        bounds: dict[str, Any] = {name: max(known_bits(name), default=None) for name in names}
        for name in ("guaranteed_channels", "guaranteed_inner_channels"):
            widths = known_bits(name)
            bounds[name] = widest_by_channel(widths, channels) if widths else None
        return cls(first.node, tally, **bounds)


def widest(widths: Sequence[IntArray]) -> int:
    """Returns the largest width; there are no sums, and no widths, of no channels."""
    return max(int(bits.max(initial=NARROWEST)) for bits in widths)


def widest_by_channel(widths: Sequence[IntArray], channels: int) -> IntArray:
    """Returns the largest widths (channels,); of all channels where their number changed."""
    if all(len(bits) in (1, channels) for bits in widths):
        return np.broadcast_to(np.max(np.broadcast_arrays(*widths), 0), channels)
    return np.broadcast_to(widest(widths), channels)


@dataclass(frozen=True, slots=True, eq=False)
class SampleSums:
    """Statistics of each sample in the order of the data; int64 arrays (samples,).

    They are those of `Tally` at each node's own width, over all nodes: counts are added, extremes
    are those of all sums. `worst_node` is the index in `nodes` of the node with the most sums that
    overflow, -1 where none does. Without `outputs` the extremes of a sample are undefined.
    """

    nodes: tuple[str, ...]
    outputs: Array
    overflow_outputs: Array
    transient_outputs: Array
    persistent_outputs: Array
    saturation_events: Array
    outputs_changed: Array
    max_abs_error: Array
    acc_min: Array
    acc_max: Array
    final_min: Array
    final_max: Array
    bits_observed: Array
    worst_node: Array

    def arrays(self) -> dict[str, Array]:
        """Returns the arrays by name, for a file, without copying them."""
        return {name: getattr(self, name) for name in QUANTITIES}

    @classmethod
    def from_arrays(cls, nodes: tuple[str, ...], arrays: Mapping[str, Array]) -> SampleSums:
        """Returns the statistics of `arrays`. Raises InputError for missing or unequal arrays."""
        shapes = {arrays[name].shape if name in arrays else None for name in QUANTITIES}
        if len(shapes) > 1 or not all(shape and len(shape) == 1 for shape in shapes):
            raise InputError(
                "the stored statistics of samples are incomplete",
                "The file was damaged, or written by another version; measure again.",
            )
        return cls(nodes, **{name: arrays[name].astype(np.int64) for name in QUANTITIES})

    @classmethod
    def merged(cls, parts: Sequence[SampleSums]) -> SampleSums:
        """Returns the samples of all parts, with the nodes numbered as they come."""
        nodes = {node: None for part in parts for node in part.nodes}
        numbers = {node: number for number, node in enumerate(nodes)}
        arrays = {name: [part.arrays()[name] for part in parts] for name in QUANTITIES}
        arrays["worst_node"] = [
            np.array([*(numbers[node] for node in part.nodes), -1])[part.worst_node]
            for part in parts
        ]
        return cls(tuple(nodes), **{n: np.concatenate(each) for n, each in arrays.items()})


QUANTITIES = tuple(field.name for field in fields(SampleSums) if field.name != "nodes")


class SampleRecorder:
    """Collects the statistics of one sample after the other: 13 numbers for each."""

    def __init__(self) -> None:
        self._nodes: dict[str, int] = {}
        self._columns = {name: array("q") for name in QUANTITIES}

    def add(self, tallies: Mapping[str, Tally]) -> None:
        """Adds a sample: the tally of each node by its key; nodes without sums do not count."""
        of_nodes = {node: tally.totals() for node, tally in tallies.items() if tally.outputs.any()}
        row = dict.fromkeys(QUANTITIES, 0)
        for name in QUANTITIES[:-1] if of_nodes else ():
            values = [own[name] for own in of_nodes.values()]
            row[name] = int(_JOIN.get(name, np.add).reduce(values))
        worst = max(of_nodes, key=lambda node: of_nodes[node]["overflow_outputs"], default="")
        row["worst_node"] = -1
        if row["overflow_outputs"]:
            row["worst_node"] = self._nodes.setdefault(worst, len(self._nodes))
        for name, value in row.items():
            self._columns[name].append(value)

    def collected(self) -> SampleSums:
        """Returns the statistics of all samples so far."""
        columns = {name: np.array(values, np.int64) for name, values in self._columns.items()}
        return SampleSums(tuple(self._nodes), **columns)
