"""What is known of all the sums of one node under one accumulator, at that width and at any other.

A run without a limit stays the run with a limit until the first sum that leaves the range. So its
extremes tell which outputs overflow at every width; only what a narrow run then computes has to be
seen at its own width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

from tracer.accumulators.kernels import loaded
from tracer.accumulators.spec.accumulator import NARROWEST, WIDEST, Accumulator
from tracer.accumulators.statistics import bins
from tracer.accumulators.statistics.sums import Clipped, Excursions
from tracer.errors import InputError, UsageError
from tracer.interpreter.values import Array

_WIDTHS = WIDEST + 2
_BLOCK = 1 << 14
"""Outputs counted at a time: temporaries of 128 KiB stay in the cache and in the allocator."""

_LEAST, _GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_START = {"final_min": _GREATEST, "final_max": _LEAST}
EXTREMES = ("acc_min", "acc_max", "final_min", "final_max")
"""Quantities in the order of the kernels' tables."""
_JOIN = {
    "acc_min": np.minimum,
    "acc_max": np.maximum,
    "final_min": np.minimum,
    "final_max": np.maximum,
    "max_abs_error": np.maximum,
}
"""How two tallies of a quantity become one; other quantities are added, and begin at 0."""


@dataclass(frozen=True, slots=True)
class Overflow:
    """How many outputs overflow at one width: int64 (channels,) each.

    A partial sum of `overflow_outputs` leaves the range. Of these the exact final sum of
    `transient_outputs` would fit, that of `persistent_outputs` would not.
    """

    outputs: Array
    overflow_outputs: Array
    transient_outputs: Array
    persistent_outputs: Array


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """Statistics of one node's sums; int64 arrays, changed in place by `add` and `merge`.

    Each has an element for every output channel; `prefix_widths` and `final_widths` (channels, 66)
    count outputs by the bits, sign included, that hold all their partial sums, and their final
    sum. The
    extremes of a channel without outputs mean nothing. `acc_min` and `acc_max` are those of all
    partial sums, 0 before the first term among them.

    At the accumulator's own width: `saturation_events` are steps that left the range,
    `outputs_changed` final sums other than the exact ones, which have errors; `error_sum`
    (channels, 2) is the sum of the magnitudes of errors in units of 2^32 and of 1. Outputs that
    overflow but were not emulated are counted in `missing`; these four mean nothing unless it is 0.

    Three histograms of the node, counts in the bins of `bins.edges`: final sums, and the least
    and the greatest partial sum of each output.
    """

    accumulator: Accumulator
    outputs: Array
    acc_min: Array
    acc_max: Array
    final_min: Array
    final_max: Array
    prefix_widths: Array
    final_widths: Array
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
        """Nothing seen yet of `channels` output channels."""
        arrays = {
            name: np.full(_shape(name, channels), _START.get(name, 0), np.int64)
            for name in _quantities()
        }
        return cls(accumulator, **arrays)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], accumulator: Accumulator) -> Tally:
        """What `arrays` gave. Raises InputError where one is missing or has another shape."""
        channels = len(arrays.get("outputs", ()))
        for name in _quantities():
            stored = arrays.get(name)
            if stored is None or stored.shape != _shape(name, channels):
                raise InputError(
                    f"the stored statistics lack a '{name}' of {channels} channels",
                    "The file was damaged, or written by another version; measure again.",
                )
        return cls(accumulator, **{name: arrays[name].astype(np.int64) for name in _quantities()})

    def arrays(self) -> dict[str, Array]:
        """All quantities by name, for a file; they are not copies."""
        return {name: getattr(self, name) for name in _quantities()}

    def add(
        self,
        channels: slice,
        seen: Excursions,
        clipped: Clipped | None = None,
        exact: Array | None = None,
    ) -> None:
        """Take in outputs (rows of `channels`, any number) and what a narrow run made of them.

        `clipped` may be None where none of them overflows, or only other widths are of interest.
        Errors are held against `exact`, which is the final sum unless products had a width of
        their own.
        """
        self.take(channels, self.of(seen, clipped, exact))

    def take(self, channels: slice, part: Tally) -> None:
        """Take in a tally whose channels are these."""
        for name in _quantities():
            mine = getattr(self, name)
            place = slice(None) if name.endswith("_histogram") else channels
            mine[place] = _JOIN.get(name, np.add)(mine[place], getattr(part, name))
        _carry(self.error_sum[channels])

    def of(
        self, seen: Excursions, clipped: Clipped | None = None, exact: Array | None = None
    ) -> Tally:
        """A tally of these outputs alone, whose rows are its channels; see `add`."""
        part = Tally.empty(len(seen.final), self.accumulator)
        if not seen.final.size:
            return part
        kernels = loaded("sum_statistics")
        low, high, final = (_wide(array) for array in (seen.low, seen.high, seen.final))
        extremes = np.empty((4, len(final)), np.int64)
        kernels.spread(
            low, high, final, self.accumulator.overflow == "symmetric", bins.FRACTION,
            part.prefix_widths, part.final_widths,
            part.low_histogram, part.high_histogram, part.final_histogram, extremes,
        )  # fmt: skip
        part.outputs[:] = final.shape[1]
        for name, found in zip(EXTREMES, extremes, strict=True):
            getattr(part, name)[:] = found
        if clipped is None:
            above = self._register(self.accumulator.bits) + 1
            part.missing[:] = part.prefix_widths[:, above:].sum(1)
            return part
        part.saturation_events[:] = clipped.events.sum(1)
        meant = final if exact is None else _wide(exact)
        kernels.errors(
            _wide(clipped.values), meant, part.outputs_changed, part.max_abs_error, part.error_sum
        )
        return part

    def _register(self, bits: int) -> int:
        """Bits of the register, where `bits` may leave out the sign."""
        return bits + (self.accumulator.convention == "magnitude")

    def merge(self, other: Tally) -> None:
        """Take in another tally of the same node.

        Raises UsageError for one of another accumulator or of other channels.
        """
        if other.accumulator != self.accumulator or len(other.outputs) != len(self.outputs):
            raise UsageError(
                "statistics of different accumulators or nodes cannot be merged",
                f"One has {len(self.outputs)} channels under {self.accumulator}, the other"
                f" {len(other.outputs)} under {other.accumulator}.",
            )
        self.take(slice(None), other)

    def folded(self) -> Tally:
        """All channels together, as one."""
        whole = Tally.empty(1, self.accumulator)
        for name, array in self.arrays().items():
            if name.endswith("_histogram"):
                getattr(whole, name)[:] = array
            else:
                getattr(whole, name)[0] = _JOIN.get(name, np.add).reduce(array, axis=0)
        _carry(whole.error_sum)
        return whole

    def overflow(self, bits: int) -> Overflow:
        """Who overflows in an accumulator of `bits` that is otherwise the same.

        Raises UsageError for a width that no accumulator has.
        """
        above = self._register(replace(self.accumulator, bits=bits).bits) + 1
        outside = self.prefix_widths[:, above:].sum(1)
        persistent = self.final_widths[:, above:].sum(1)
        return Overflow(self.outputs.copy(), outside, outside - persistent, persistent)

    @property
    def bits_observed(self) -> Array:
        """The least width at which nothing seen overflows, int64 (channels,)."""
        widest = _WIDTHS - 1 - np.argmax(self.prefix_widths[:, ::-1] > 0, axis=1)
        sign = self._register(0)
        return np.where(self.outputs > 0, np.maximum(widest - sign, NARROWEST), NARROWEST)

    @property
    def abs_error_sum(self) -> list[int]:
        """The sum of the magnitudes of errors of each channel."""
        return [(int(high) << 32) + int(low) for high, low in self.error_sum]

    @property
    def mean_abs_error(self) -> float:
        """The mean magnitude of the error over all outputs of the node; 0 without outputs."""
        return sum(self.abs_error_sum) / max(int(self.outputs.sum()), 1)

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
        return (len(bins.edges()) - 1,)
    columns = {"prefix_widths": (_WIDTHS,), "final_widths": (_WIDTHS,), "error_sum": (2,)}
    return (channels, *columns.get(name, ()))


def _wide(array: Array) -> Array:
    return np.ascontiguousarray(array, np.int64)


def _carry(sums: Array) -> None:
    sums[:, 0] += sums[:, 1] >> 32
    sums[:, 1] &= 0xFFFFFFFF
