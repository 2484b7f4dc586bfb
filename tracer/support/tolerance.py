"""Compares two values: absolute and relative differences, units in the last place, a tolerance."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tracer.support.arguments import amount, check_arguments, maybe
from tracer.support.types import Array, type_text

_SMALLEST = 1e-8
"""Part of a derived tolerance that does not scale: outputs of untrained networks are small."""

_LEAST_STEPS = 8
"""Steps of the type that a derived tolerance allows at least; half precision exceeds 1e-4."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Allows |ours - theirs| <= absolute + relative * |theirs|, element by element.

    The same formula as numpy's `isclose`; `--rtol` and `--atol` mean this in every command. With
    `absolute` of None every element may differ by 1e-8 plus `relative` of the largest magnitude of
    theirs, because the rounding of a long sum scales with the tensor.
    """

    relative: float = 1e-3
    absolute: float | None = 1e-5

    def __post_init__(self) -> None:
        """Raises UsageError for a tolerance that is no number of at least 0."""
        tolerances = {"relative": self.relative, "absolute": self.absolute}
        check_arguments(tolerances, {"relative": amount(), "absolute": maybe(amount())})

    def exceeded(self, ours: Array, theirs: Array) -> npt.NDArray[np.bool_]:
        """Returns which elements are out of tolerance; NaN equals NaN, infinity equals itself."""
        same = _same(ours, theirs)
        a, b = _wide(ours), _wide(theirs)
        with np.errstate(all="ignore"):
            gap = np.abs(a - b)
            within = np.isfinite(gap) & (gap <= self._allowed(theirs, np.abs(b)))
        return np.asarray(~(same | within))

    def __str__(self) -> str:
        """Returns `rtol 0.001, atol 1e-05`."""
        absolute = "of the largest value" if self.absolute is None else f"atol {self.absolute:g}"
        return f"rtol {self.relative:g}{' ' if self.absolute is None else ', '}{absolute}"

    def _allowed(self, theirs: Array, magnitudes: Array) -> Any:
        if self.absolute is not None:
            return self.absolute + self.relative * magnitudes
        if theirs.dtype.kind in "biu":
            return 0.0
        steps = _LEAST_STEPS * float(ml_dtypes.finfo(theirs.dtype).eps)  # type: ignore[no-untyped-call]
        largest = float(np.max(magnitudes, where=np.isfinite(magnitudes), initial=0.0))
        return _SMALLEST + max(self.relative, steps) * largest


@dataclass(frozen=True, slots=True)
class Difference:
    """The largest differences of two values; None where the values are not numbers.

    `max_ulp` counts representable numbers between the two, for floats of 2, 4 and 8 bytes.
    `fault` describes what is out of tolerance, '' if nothing is.
    """

    max_abs: float | None
    max_rel: float | None
    max_ulp: int | None
    fault: str


def compare(ours: Any, theirs: Any, tolerance: Tolerance) -> Difference:
    """Compares two values of the interpreter: tensors, sequences of tensors, text, or None."""
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return worst([compare(a, b, tolerance) for a, b in zip(ours, theirs, strict=True)])
    if type_text(ours) != type_text(theirs):
        return Difference(None, None, None, f"{type_text(ours)} is not {type_text(theirs)}")
    if not isinstance(ours, np.ndarray) or ours.dtype.hasobject:
        same = ours is theirs or np.array_equal(ours, theirs)
        return Difference(None, None, None, "" if same else "the values differ")
    if not ours.size:
        return Difference(0.0, 0.0, 0, "")
    gap = _gap(ours, theirs)
    with np.errstate(all="ignore"):
        relative = np.where(gap == 0, 0.0, gap / np.abs(_wide(theirs)))
    count = int(tolerance.exceeded(ours, theirs).sum())
    fault = f"{count:,} of {gap.size:,} values out of tolerance" if count else ""
    return Difference(_largest(gap), _largest(relative), _ulps(ours, theirs), fault)


def worst(differences: Sequence[Difference]) -> Difference:
    """Returns the largest of each number, and the first fault."""

    def largest(numbers: Sequence[Any]) -> Any:
        return max((number for number in numbers if number is not None), default=None)

    return Difference(
        largest([d.max_abs for d in differences]),
        largest([d.max_rel for d in differences]),
        largest([d.max_ulp for d in differences]),
        next((d.fault for d in differences if d.fault), ""),
    )


def max_abs_difference(ours: Array, theirs: Array) -> float:
    """Returns the largest |ours - theirs|; infinite where only one side has a NaN or infinity."""
    return _largest(_gap(ours, theirs)) if ours.size else 0.0


def rms_difference(ours: Array, theirs: Array) -> float:
    """Returns the root mean square of ours - theirs, in float64."""
    return float(np.sqrt(np.mean((_wide(ours) - _wide(theirs)) ** 2)))


def _same(ours: Array, theirs: Array) -> npt.NDArray[np.bool_]:
    return (ours == theirs) | ((ours != ours) & (theirs != theirs))


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _gap(ours: Array, theirs: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.where(_same(ours, theirs), 0.0, np.abs(_wide(ours) - _wide(theirs)))


def _largest(values: Array) -> float:
    """The maximum; NaN, which an unmatched NaN or infinity leaves, counts as infinite."""
    return float(np.where(np.isnan(values), np.inf, values).max())


def _ulps(a: Array, b: Array) -> int | None:
    """The most steps from one number to the other; None for other types.

    Floats of one sign are ordered like the integers of their bits.
    """
    integers = {2: np.int16, 4: np.int32, 8: np.int64}
    if a.dtype.kind != "f" or a.dtype.itemsize not in integers:
        return None
    finite = np.isfinite(a) & np.isfinite(b)
    if not finite.any():
        return None
    first, second = (_ordered(v[finite], integers[a.dtype.itemsize]) for v in (a, b))
    # Of float64 with opposite signs the difference exceeds int64, hence uint64.
    high = np.maximum(first, second).astype(np.uint64)
    low = np.minimum(first, second).astype(np.uint64)
    return int((high - low).max())


def _ordered(x: Array, integer: Any) -> Array:
    bits = np.ascontiguousarray(x).view(integer).astype(np.int64)
    lowest = np.int64(np.iinfo(integer).min)
    return np.where(bits < 0, lowest - bits, bits)
