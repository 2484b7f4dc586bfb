"""Match two tensors by value, where one may have another layout, padding or order; join matches.

The optimised graph of a runtime keeps few names, but its tensors have the values of the model's
tensors. So tensors are identified by their values. A tensor is read in the layouts that runtimes
use: as it is, channels last, channels in padded blocks (com.microsoft.nchwc), in another shape,
and, if all of these fail, in any order.
"""

import math
import zlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from tracer.support.tolerance import rms
from tracer.support.types import Array, map_values

K = TypeVar("K", bound=Hashable)

SAME_SHAPE, LAYOUT, ANY_ORDER = 0, 1, 2
"""How a tensor must be read to equal another one: the lower, the stronger the evidence."""

_BLOCKS = (16, 8, 4)
"""Channels in a block of a blocked layout, by instruction set."""

_BLOCKED_RANK = 4
_CLEARLY, _HALF, _STEPS = 100, 0.5, 3
"""Tolerances, and half of the typical value, spread or of steps, that are more than rounding."""
_ROUNDED = 0.06
"""Root mean square of the difference, as a share of the spread, that rounding may cause.

It applies behind a quantiser. Differences of one step accumulate from layer to layer; unrelated
tensors differ far more.
"""
_MOVED = 128
"""What onnxruntime adds to int8 and its zero points, to have uint8."""
_SUMMED = 1e-9
"""Share by which the order of a sum may change a mean or a spread in float64, with room."""
_TOLERANCES = {2: 1e-2, 4: 1e-4, 8: 1e-7}
"""Tolerance by bytes of a float: far above rounding, far below the effect of an operator."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Which tensors of the model equal each tensor of the optimised graph.

    `equal` has for each optimised tensor the tensors of the model with its values on every one of
    `inputs` inputs, in the order they are computed; only matches of the strongest reading; () where
    there is none. Optimised tensors in `reordered` match in another order of elements alone, and
    `uninformative` says why a tensor's values prove nothing. Of the model's tensors, `constant` do
    not depend on the input and `not_numeric` hold nothing to compare. Outputs in `wrong` clearly
    have other values than without optimisation, where they have the model's.

    All of these are tensors of one graph, the main graph; `bodies` has the same for each body that
    ran on every input, by its path, with the values of the first time.
    """

    inputs: int
    equal: Mapping[str, tuple[str, ...]] = field(repr=False)
    reordered: frozenset[str] = field(repr=False)
    uninformative: Mapping[str, str] = field(repr=False)
    constant: frozenset[str] = field(repr=False)
    not_numeric: frozenset[str] = field(repr=False)
    wrong: frozenset[str] = field(default=frozenset(), repr=False)
    bodies: "Mapping[str, Evidence]" = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class NumericTensor:
    """A tensor of numbers, whose `zero` stands for 0; caches its statistics for comparisons."""

    array: Array
    zero: int = 0

    @cached_property
    def extremes(self) -> tuple[float, float]:
        """The minimum and the maximum; NaN if there is a NaN."""
        return float(self.array.min()), float(self.array.max())

    @cached_property
    def typical(self) -> float:
        """The median magnitude of finite values other than 0: a scale robust to outliers."""
        sizes = np.abs(self.array[np.isfinite(self.array)].astype(np.float64))
        sizes = sizes[sizes > 0]
        return float(np.median(sizes)) if sizes.size else 0.0

    @cached_property
    def mean(self) -> float:
        """The mean."""
        with np.errstate(invalid="ignore"):  # NaN of infinities, as in masks
            return float(self.array.mean(dtype=np.float64))

    @cached_property
    def spread(self) -> float:
        """The standard deviation; 0 where infinities or NaN leave none."""
        with np.errstate(invalid="ignore", over="ignore"):
            spread = float(self.array.std(dtype=np.float64))
        return spread if math.isfinite(spread) else 0.0

    @cached_property
    def ordered(self) -> Array:
        """All values, sorted."""
        return np.sort(self.array, axis=None)


def numeric_tensor(value: Any) -> NumericTensor | None:
    """Returns the numbers of a value; None for None and what is empty.

    Those of int8 are moved to uint8, in which onnxruntime computes them. A string has a checksum.
    Sequences and maps have the numbers of what they hold, in another axis where shapes are equal.
    """
    if isinstance(value, dict):
        value = map_values(value, sorted(value))[:, None]  # an axis more than the tensor it is of
    if isinstance(value, list):
        parts = [numeric_tensor(each) for each in value]
        held = [each.array for each in parts if each is not None]
        if not held or len(held) < len(parts):
            return None
        is_even = len({each.shape for each in held}) == 1
        return NumericTensor(np.stack(held) if is_even else np.concatenate(held, axis=None))
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if kind == "i" and value.dtype.itemsize == 1 and value.size:
        return NumericTensor(value.view("uint8") ^ np.uint8(_MOVED), _MOVED)
    if kind in ("O", "U"):
        sums = [zlib.crc32(str(each).encode("utf-8", "surrogatepass")) for each in value.flat]
        value, kind = np.array(sums, np.uint32).reshape(value.shape), "u"
    if kind == "b":
        return NumericTensor(value.astype("uint8")) if value.size else None
    return NumericTensor(value) if kind in ("f", "i", "u") and value.size else None


def match(candidate: NumericTensor, original: NumericTensor, rounded: bool = False) -> int | None:
    """Returns how `candidate` must be read to equal `original`; None where it does not.

    With `rounded`, both may differ by the rounding of quantisation.
    """
    if (candidate.array.dtype.kind == "f") != (original.array.dtype.kind == "f"):
        return None
    same_size = candidate.array.size == original.array.size
    if (
        same_size
        and not rounded
        and not _equal(candidate.extremes, original.extremes, candidate, original)
    ):
        return None
    is_equal = _equal_before_rounding if rounded else _equal
    for layout, values in _layouts(candidate.array, original.array.shape):
        if is_equal(values, original.array, candidate, original):
            return layout
    if same_size and is_equal(candidate.array.ravel(), original.array.ravel(), candidate, original):
        return LAYOUT
    if same_size and is_equal(candidate.ordered, original.ordered, candidate, original):
        return ANY_ORDER
    return None


def differs_clearly(
    candidate: NumericTensor, original: NumericTensor, rounded: bool, step: float = 0.0
) -> bool:
    """Returns whether two tensors of one shape differ by more than rounding that adds up.

    With `rounded`, numbers may be the next ones of a quantiser that leaves multiples of `step`.
    """
    ours, theirs = candidate.array, original.array
    if ours.shape != theirs.shape or not rounded:
        share = min(_CLEARLY * _share(theirs.dtype), _HALF)
        return ours.shape != theirs.shape or not _close(ours, theirs, share, original).all()
    lost = rms(ours.astype(np.float64) - theirs.astype(np.float64))
    return lost > _HALF * max(original.spread, _STEPS * step)


class Candidates(Generic[K]):
    """Tensors of which a few match another one: most differ in two statistics, all at once."""

    def __init__(self, tensors: Mapping[K, NumericTensor], rounded: bool = False) -> None:
        self._rounded = rounded
        self._keys = np.array(list(tensors), object)
        self._by_shape: dict[tuple[int, ...], list[K]] = {}
        by_size: dict[int, list[int]] = {}
        for place, (key, tensor) in enumerate(tensors.items()):
            self._by_shape.setdefault(tensor.array.shape, []).append(key)
            by_size.setdefault(tensor.array.size, []).append(place)
        told = [_statistics(tensor, rounded) for tensor in tensors.values()]
        self._statistics = np.array(told, np.float64).reshape(-1, 2)
        self._shares = np.array([_share(tensor.array.dtype) for tensor in tensors.values()])
        self._rising = dict[int, tuple[Array, Array, float]]()
        for size, places in by_size.items():
            rising = np.array(places)[np.argsort(self._statistics[places, 0])]
            self._rising[size] = rising, self._statistics[rising, 0], self._shares[places].max()

    def near(self, original: NumericTensor) -> list[K]:
        """Returns the keys of tensors with nearly the values of `original`, or padded in blocks.

        `match` is None for all others.
        """
        alike: list[K] = []
        if original.array.size in self._rising:  # else statistics of large weights would take long
            theirs = np.array(_statistics(original, self._rounded))
            places = self._places_near(float(theirs[0]), original)
            ours = self._statistics[places]
            if self._rounded:
                allowed = _ROUNDED * original.spread
                near = np.isclose(ours, theirs, _SUMMED, allowed, equal_nan=True)
            else:
                shares = np.maximum(self._shares[places], _share(original.array.dtype))[:, None]
                near = _close(ours, theirs[None], shares, original)
            alike += self._keys[places[near.all(axis=1)]].tolist()
        shape = original.array.shape
        if len(shape) == _BLOCKED_RANK:  # blocks of channels may give the tensor another size
            batch, channels, *plane = shape
            padded = {(batch, -(-channels // block) * block, *plane) for block in _BLOCKS}
            alike += (key for each in padded - {shape} for key in self._by_shape.get(each, ()))
        return alike

    def _places_near(self, middle: float, original: NumericTensor) -> Array:
        """Returns the places of tensors of one size whose first statistic may be close enough.

        To look at all of them for each tensor would take time with the square of their number.
        """
        places, rising, share = self._rising[original.array.size]
        share = max(share, _share(original.array.dtype)) + _SUMMED
        allowed = _ROUNDED * original.spread if self._rounded else share * original.typical
        reach = allowed + 2 * share * abs(middle)  # more than enough
        if not math.isfinite(reach):  # equal infinities, and NaN, are close
            return np.sort(places)
        first = np.searchsorted(rising, middle - reach)
        last = np.searchsorted(rising, middle + reach, "right")
        return np.sort(places[first:last])


def _statistics(tensor: NumericTensor, rounded: bool) -> tuple[float, float]:
    """Returns what tells tensors apart: a difference of RMS r changes mean and spread by r."""
    return (tensor.mean, tensor.spread) if rounded else tensor.extremes


def _equal(ours: Any, theirs: Any, candidate: NumericTensor, original: NumericTensor) -> bool:
    """Whether |ours - theirs| <= share * (|theirs| + typical) everywhere; NaN equals NaN."""
    coarser = min(candidate.array.dtype, original.array.dtype, key=lambda dtype: dtype.itemsize)
    share = _share(coarser)
    return bool(_close(np.asarray(ours), np.asarray(theirs), share, original).all())


def _close(ours: Array, theirs: Array, share: Any, original: NumericTensor) -> Any:
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    return np.isclose(a, b, share, share * original.typical, equal_nan=True)


def _equal_before_rounding(
    ours: Array, theirs: Array, candidate: NumericTensor, original: NumericTensor
) -> bool:
    """Whether the root mean square of the difference is a small part of the spread."""
    with np.errstate(invalid="ignore"):
        lost = ours.astype(np.float64) - theirs.astype(np.float64)
    lost = np.where(ours == theirs, 0, lost)  # not NaN, as of two infinities
    return rms(lost) <= _ROUNDED * original.spread


def _share(dtype: np.dtype[Any]) -> float:
    """Returns the tolerance of a type; 0 for integers."""
    return _TOLERANCES.get(dtype.itemsize, 0.0) if dtype.kind == "f" else 0.0


def _layouts(candidate: Array, shape: Sequence[int]) -> Iterator[tuple[int, Array]]:
    """Yields `candidate` as a tensor of `shape`, in every layout that has this shape."""
    if candidate.shape == shape:
        yield SAME_SHAPE, candidate
    if candidate.ndim != len(shape) or candidate.ndim <= 2:
        return
    if np.moveaxis(candidate, -1, 1).shape == shape:
        yield LAYOUT, np.moveaxis(candidate, -1, 1)
    if candidate.ndim != _BLOCKED_RANK or candidate.shape[::2] != (shape[0], shape[2]):
        return
    batch, channels, height, width = candidate.shape
    for block in _BLOCKS:
        if width == shape[3] and channels == -(-shape[1] // block) * block:
            blocked = candidate.reshape(batch, channels // block, height, width, block)
            plain = blocked.transpose(0, 1, 4, 2, 3).reshape(candidate.shape)
            yield LAYOUT, plain[:, : shape[1]]


T = TypeVar("T", bound=Hashable)


class DisjointSets(Generic[T]):
    """Sets without a common element; an element that was not added yet is a set of its own."""

    def __init__(self) -> None:
        self._above: dict[T, T] = {}

    def add(self, element: T) -> None:
        """Adds an element."""
        self._above.setdefault(element, element)

    def join(self, one: T, other: T) -> None:
        """Makes one set of the sets of two elements."""
        self._above[self.top(one)] = self.top(other)

    def top(self, element: T) -> T:
        """Returns the element that stands for a set, until that is joined with another."""
        self.add(element)
        while self._above[element] != element:
            self._above[element] = self._above[self._above[element]]
            element = self._above[element]
        return element

    def all(self) -> list[list[T]]:
        """Returns the sets in the order of their first elements, elements as they were added."""
        sets: dict[T, list[T]] = {}
        for element in self._above:
            sets.setdefault(self.top(element), []).append(element)
        return list(sets.values())
