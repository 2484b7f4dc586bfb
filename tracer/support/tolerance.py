"""How far a tensor is from a reference, and how far it may be.

Errors are shares of the scale of the reference.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tracer.support.arguments import amount, check_arguments, maybe
from tracer.support.types import Array, map_values, type_text

_STEPS = 1024
"""Roundings of float32 and float64 that one operator may be off by. Sums of some thousand terms in
another order were off by up to 31, in 20 models of others, and by up to 140 where all terms have
one sign and size, so that their roundings do as well."""

NARROW_STEPS = 8
"""The same for narrower floats, whose sums are wider than they are: results are rounded once."""

TF32_SHARE = NARROW_STEPS * 2.0**-10
"""How exactly a card knows a product of float32 in TF32, which rounds the factors to 11 bits."""

_NARROW = 1e-4
"""A type that rounds more coarsely than this is narrow."""


@dataclass(frozen=True, slots=True)
class Precision:
    """How exactly a tensor can be known: `share` of its scale, after `depth` operators in a row.

    `steps` are the integers by which a rounded value may be off. Roundings are independent, so
    they grow with the square root of the depth.
    """

    share: float = 0.0
    depth: int = 1
    steps: int = 0

    @classmethod
    def of(cls, dtype: np.dtype[Any]) -> "Precision":
        """Returns the precision of what one operator computes in a type; integers are exact."""
        unit = rounding(dtype)
        return cls(unit * (NARROW_STEPS if unit > _NARROW else _STEPS))


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Bounds the error of a tensor: its largest error, and its root mean square (RMS).

    They may be `relative` of the largest magnitude and of the RMS of the reference, and `absolute`
    more. `relative` of None follows from the type and the depth of the tensor (see `Precision`),
    `absolute` of None is one rounding of the type at 1. `--rtol` and `--atol` mean this everywhere.
    Integers must be equal, NaN equals NaN, and infinity equals itself.
    """

    relative: float | None = None
    absolute: float | None = None

    def __post_init__(self) -> None:
        """Raises UsageError for a tolerance that is no number of at least 0."""
        tolerances = {"relative": self.relative, "absolute": self.absolute}
        check_arguments(tolerances, dict.fromkeys(tolerances, maybe(amount())))

    def share(self, dtype: np.dtype[Any], precision: Precision) -> float:
        """Returns the error that is allowed, ÷ the scale of the reference."""
        if self.relative is None or not _is_float(dtype):
            return precision.share * math.sqrt(precision.depth)
        return self.relative

    def floor(self, dtype: np.dtype[Any]) -> float:
        """Returns the error that is allowed whatever the scale."""
        return rounding(dtype) if self.absolute is None else self.absolute

    def __str__(self) -> str:
        """Returns `rtol 0.001, atol 1e-05`."""
        relative = "by type and depth" if self.relative is None else f"{self.relative:g}"
        absolute = "" if self.absolute is None else f", atol {self.absolute:g}"
        return f"rtol {relative}{absolute}"


def rounding(dtype: np.dtype[Any]) -> float:
    """Returns the distance from 1 to the next number of a float type; 0 for other types."""
    if not _is_float(dtype):
        return 0.0
    if dtype.kind == "c":
        return float(np.finfo(dtype).eps)
    return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "fc" or (dtype.kind == "V" and "float" in dtype.name)


@dataclass(frozen=True, slots=True)
class Difference:
    """How far a value is from a reference; None where the values are not numbers.

    `max_abs` is the largest error, `max_share` that ÷ the largest magnitude of the reference, and
    `rms_share` the root mean square (RMS) of the error ÷ the RMS of the reference. `cosine` is that
    of the angle between both as vectors, None for a vector of zeros. All are over elements that are
    finite on both sides; an element that is finite on one alone makes the errors infinite. `fault`
    describes what is out of tolerance, '' if nothing is.
    """

    max_abs: float | None
    max_share: float | None
    rms_share: float | None
    cosine: float | None
    fault: str


def compare(
    ours: Any, theirs: Any, tolerance: Tolerance, precision: Precision | None = None
) -> Difference:
    """Compares two values of the interpreter: tensors, sequences, maps, text, or None.

    `precision` of None is that of one operator which computes in the type of `theirs`.
    """
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        ours, theirs = map_values(ours, theirs), map_values(theirs, theirs)
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = zip(ours, theirs, strict=True)
        return worst([compare(a, b, tolerance, precision) for a, b in pairs])
    if type_text(ours) != type_text(theirs):
        fault = f"{type_text(ours)} is not {type_text(theirs)}"
        return Difference(None, None, None, None, fault)
    if not isinstance(ours, np.ndarray) or ours.dtype.kind in "OSU":
        same = ours is theirs or np.array_equal(ours, theirs)
        return Difference(None, None, None, None, "" if same else "the values differ")
    if not ours.size:
        return Difference(0.0, 0.0, 0.0, None, "")
    if np.array_equal(ours, theirs):  # most constants, at a tenth of the cost
        return Difference(0.0, 0.0, 0.0, 1.0 if (theirs != 0).any() else None, "")
    finite, reference, odd = _finite_parts(ours, theirs)
    errors = finite - reference
    largest, typical = float(np.abs(errors).max(initial=0.0)), rms(errors)
    scale, usual = float(np.abs(reference).max(initial=0.0)), rms(reference)
    shares = _ratio(largest, scale), _ratio(typical, usual)
    precision = precision or Precision.of(theirs.dtype)
    fault = _fault((largest, scale), (typical, usual), theirs.dtype, tolerance, precision)
    if odd:
        fault = f"{odd:,} of {theirs.size:,} values are NaN or infinite on one side alone"
        largest, shares = np.inf, (np.inf, np.inf)
    return Difference(largest, *shares, _cosine(finite, reference), fault)


def worst(differences: Sequence[Difference]) -> Difference:
    """Returns the largest errors, the smallest cosine, and the first fault."""

    def extreme(choose: Any, numbers: Sequence[Any]) -> Any:
        return choose((number for number in numbers if number is not None), default=None)

    return Difference(
        extreme(max, [d.max_abs for d in differences]),
        extreme(max, [d.max_share for d in differences]),
        extreme(max, [d.rms_share for d in differences]),
        extreme(min, [d.cosine for d in differences]),
        next((d.fault for d in differences if d.fault), ""),
    )


def max_abs_difference(ours: Array, theirs: Array) -> float:
    """Returns the largest |ours - theirs|; infinite where only one side has a NaN or infinity."""
    if not ours.size:
        return 0.0
    a, b, odd = _finite_parts(ours, theirs)
    return np.inf if odd else float(np.abs(a - b).max(initial=0.0))


def rms(values: Array) -> float:
    """Returns the root mean square of finite values, in float64; 0 of no values."""
    scaled, scale = _scaled(values)
    return scale * float(np.sqrt(np.mean(np.abs(scaled) ** 2))) if scale else 0.0


def _fault(
    largest: tuple[float, float],
    typical: tuple[float, float],
    dtype: np.dtype[Any],
    tolerance: Tolerance,
    precision: Precision,
) -> str:
    """Describes which error is out of tolerance: the largest or the RMS, each with its scale."""
    share = tolerance.share(dtype, precision)
    floor = max(tolerance.floor(dtype), precision.steps)
    for (error, scale), name, of in (
        (largest, "largest error", "largest value"),
        (typical, "RMS error", "RMS"),
    ):
        if error > floor + share * scale:
            if not share:
                return f"the {name} is {error:.3g} (allowed: {floor:.3g})"
            part = _ratio(error, scale)
            return f"the {name} is {part:.2g} of the {of} (allowed: {share:.2g})"
    return ""


def _finite_parts(ours: Array, theirs: Array) -> tuple[Array, Array, int]:
    """Returns both, flat and wide, where both are finite; and how often they are not alike.

    That is where one side alone has a NaN or an infinity, or the other infinity.
    """
    a, b = _wide(ours), _wide(theirs)
    finite = np.isfinite(a) & np.isfinite(b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return a[finite], b[finite], int((~same & ~finite).sum())


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _ratio(error: float, scale: float) -> float:
    if not error:
        return 0.0
    return error / scale if scale else np.inf


def _cosine(ours: Array, theirs: Array) -> float | None:
    if np.array_equal(ours, theirs):
        return 1.0 if theirs.any() else None
    (a, scale_a), (b, scale_b) = _scaled(ours), _scaled(theirs)
    if not scale_a or not scale_b:
        return None
    product = np.vdot(b, a).real / float(np.linalg.norm(a)) / float(np.linalg.norm(b))
    return float(np.clip(product, -1, 1))


def _scaled(values: Array) -> tuple[Array, float]:
    """Returns values of at most 1 and their scale: squares of large ones would overflow."""
    wide = _wide(values)
    scale = float(np.abs(wide).max(initial=0.0))
    return (wide / scale if scale and np.isfinite(scale) else wide), scale
