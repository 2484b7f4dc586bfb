"""How far two results lie apart: absolutely, relatively, and in units in the last place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracer.interpreter.values import Array, Value, type_text


@dataclass(frozen=True, slots=True)
class Tolerance:
    """|ours - theirs| <= absolute + relative * |theirs|, as numpy's isclose has it."""

    relative: float = 1e-3
    absolute: float = 1e-5


@dataclass(frozen=True, slots=True)
class Difference:
    """The largest differences of two values; None where there is no number for it.

    `max_ulp` counts representable numbers between the two, for floats of 2, 4 and 8 bytes.
    `fault` says in words what is wrong beyond tolerance, '' if nothing is.
    """

    max_abs: float | None
    max_rel: float | None
    max_ulp: int | None
    fault: str


def compare(ours: Value, theirs: Value, tolerance: Tolerance) -> Difference:
    """Compare two values; NaN equals NaN, and an infinity itself."""
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return worst([compare(a, b, tolerance) for a, b in zip(ours, theirs, strict=True)])
    if type_text(ours) != type_text(theirs):
        return Difference(None, None, None, f"{type_text(ours)} is not {type_text(theirs)}")
    if not isinstance(ours, np.ndarray) or ours.dtype.hasobject:
        same = ours is theirs or np.array_equal(ours, theirs)
        return Difference(None, None, None, "" if same else "the values differ")
    if not ours.size:
        return Difference(0.0, 0.0, 0, "")
    with np.errstate(all="ignore"):
        return _numbers(ours, theirs, tolerance)


def _numbers(ours: Array, theirs: Array, tolerance: Tolerance) -> Difference:
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    gap = np.where(same, 0.0, np.abs(a - b))
    relative = np.where(same, 0.0, gap / np.abs(b))
    allowed = tolerance.absolute + tolerance.relative * np.abs(b)
    outside = ~(same | (gap <= allowed))
    count = int(outside.sum())
    fault = f"{count:,} of {gap.size:,} values out of tolerance" if count else ""
    return Difference(_largest(gap), _largest(relative), _ulps(ours, theirs), fault)


def _largest(values: Array) -> float:
    """The maximum; NaN, which a missing or surplus NaN or infinity leaves, counts as infinite."""
    return float(np.where(np.isnan(values), np.inf, values).max())


def _ulps(a: Array, b: Array) -> int | None:
    """Steps from one number to the other, largest over the tensor; None for other types.

    Floats of one sign are ordered as the integers that their bits are.
    """
    kinds = {2: np.int16, 4: np.int32, 8: np.int64}
    if a.dtype.kind != "f" or a.dtype.itemsize not in kinds:
        return None
    known = np.isfinite(a) & np.isfinite(b)
    if not known.any():
        return None
    first, second = (_ordered(v[known], kinds[a.dtype.itemsize]) for v in (a, b))
    return _gap(first, second)


def _ordered(x: Array, kind: Any) -> Array:
    bits = np.ascontiguousarray(x).view(kind).astype(np.int64)
    lowest = np.int64(np.iinfo(kind).min)
    return np.where(bits < 0, lowest - bits, bits)


def _gap(first: Array, second: Array) -> int:
    """The largest difference, which for float64 of opposite signs is beyond int64."""
    high = np.maximum(first, second).astype(np.uint64)
    low = np.minimum(first, second).astype(np.uint64)
    return int((high - low).max())


def worst(differences: Sequence[Difference]) -> Difference:
    """The largest of each number, and the first fault."""

    def largest(numbers: Sequence[Any]) -> Any:
        return max((number for number in numbers if number is not None), default=None)

    return Difference(
        largest([d.max_abs for d in differences]),
        largest([d.max_rel for d in differences]),
        largest([d.max_ulp for d in differences]),
        next((d.fault for d in differences if d.fault), ""),
    )
