"""Whether two tensors hold the same values, when one may lie in another layout, or be padded.

A runtime's rewritten graph keeps few names, but what it computes stays what the model says. So a
tensor it makes is known by its values, read in the layouts that runtimes use: as it is, channels
last, channels in padded blocks (com.microsoft.nchwc), in another shape, and, failing these, in any
order at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tracer.support.tolerance import Tolerance, rms_difference
from tracer.support.types import Array

SAME_SHAPE, LAYOUT, ANY_ORDER = 0, 1, 2
"""How a tensor has to be read to equal another one: the lower, the stronger the evidence."""

_BLOCKS = (16, 8, 4)
"""Channels in a block of a blocked layout, by instruction set."""

_BLOCKED_RANK = 4
_ROUNDED = 0.06
"""Of the spread of a tensor behind a quantiser, the root mean square that rounding may amount to.

A step more or less is handed on and adds up from layer to layer; other tensors are far beyond it.
"""
_TOLERANCES = {2: 1e-2, 4: 1e-4, 8: 1e-7}
"""Difference allowed by bytes of a float: far above rounding, far below what an operator does."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What values tell of the tensors that a runtime made of the main graph.

    `equal` has for each of them the tensors of the model with its values on every one of `inputs`
    inputs, in the order they are computed, and only those that are read in the strongest way; ()
    where no tensor of the model has them. Those in `loose` have them in another order alone.
    `blank` says what a tensor of the runtime's graph is whose values show nothing. Of the tensors
    of the model, no input changes the `fixed`, and the `mute` are no tensors of numbers.
    """

    inputs: int
    equal: Mapping[str, tuple[str, ...]] = field(repr=False)
    loose: frozenset[str] = field(repr=False)
    blank: Mapping[str, str] = field(repr=False)
    fixed: frozenset[str] = field(repr=False)
    mute: frozenset[str] = field(repr=False)


@dataclass(frozen=True)
class Known:
    """A tensor of numbers, with what comparisons ask of it again and again."""

    array: Array

    @cached_property
    def extremes(self) -> tuple[float, float]:
        """The least and the largest value; NaN where there is one."""
        return float(self.array.min()), float(self.array.max())

    @cached_property
    def typical(self) -> float:
        """The median magnitude of the finite values that are not 0: a scale no outlier moves."""
        sizes = np.abs(self.array[np.isfinite(self.array)].astype(np.float64))
        sizes = sizes[sizes > 0]
        return float(np.median(sizes)) if sizes.size else 0.0

    @cached_property
    def spread(self) -> float:
        """The standard deviation."""
        return float(self.array.std(dtype=np.float64))

    @cached_property
    def ordered(self) -> Array:
        """All values from the least to the largest."""
        return np.sort(self.array, axis=None)


def known(value: Any) -> Known | None:
    """`value` as a tensor of numbers; None for text, sequences, nothing, and empty tensors."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if kind == "b":
        return Known(value.astype("uint8")) if value.size else None
    return Known(value) if kind in ("f", "i", "u") and value.size else None


def reading(made: Known, original: Known, rounded: bool = False) -> int | None:
    """How `made` has to be read to hold the values of `original`; None where it does not.

    `rounded`: both may be off by what comes of rounding to a few bits.
    """
    if (made.array.dtype.kind == "f") != (original.array.dtype.kind == "f"):
        return None
    same_size = made.array.size == original.array.size
    if same_size and not rounded and not _close(made.extremes, original.extremes, made, original):
        return None
    near = _same_before_rounding if rounded else _close
    for layout, values in _layouts(made.array, original.array.shape):
        if near(values, original.array, made, original):
            return layout
    if same_size and near(made.array.ravel(), original.array.ravel(), made, original):
        return LAYOUT
    if same_size and near(made.ordered, original.ordered, made, original):
        return ANY_ORDER
    return None


def _close(ours: Any, theirs: Any, made: Known, original: Known) -> bool:
    """|ours - theirs| <= share * (|theirs| + typical) everywhere; NaN equals NaN."""
    share = _tolerance(made.array.dtype, original.array.dtype)
    tolerance = Tolerance(share, share * original.typical)
    return not tolerance.exceeded(np.asarray(ours), np.asarray(theirs)).any()


def _same_before_rounding(ours: Array, theirs: Array, made: Known, original: Known) -> bool:
    """Whether the root mean square of the difference is a small part of the spread."""
    return rms_difference(ours, theirs) <= _ROUNDED * original.spread


def _tolerance(one: np.dtype[Any], other: np.dtype[Any]) -> float:
    """Of the coarser type; integers have to be the same."""
    if one.kind != "f":
        return 0.0
    return _TOLERANCES.get(min(one.itemsize, other.itemsize), 0.0)


def _layouts(made: Array, shape: Sequence[int]) -> Iterator[tuple[int, Array]]:
    """The values of `made` as a tensor of `shape`, read in every layout that gives this shape."""
    if made.shape == shape:
        yield SAME_SHAPE, made
    if made.ndim != len(shape) or made.ndim <= 2:
        return
    if np.moveaxis(made, -1, 1).shape == shape:
        yield LAYOUT, np.moveaxis(made, -1, 1)
    if made.ndim != _BLOCKED_RANK or made.shape[::2] != (shape[0], shape[2]):
        return
    batch, channels, height, width = made.shape
    for block in _BLOCKS:
        if width == shape[3] and channels == -(-shape[1] // block) * block:
            blocked = made.reshape(batch, channels // block, height, width, block)
            plain = blocked.transpose(0, 1, 4, 2, 3).reshape(made.shape)
            yield LAYOUT, plain[:, : shape[1]]
