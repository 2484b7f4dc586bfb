"""How far a tensor may be from a reference: as a share of the scale of the reference."""

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tracer.support.arguments import amount, check_arguments, maybe

_STEPS = 1024
"""Roundings of float32 and float64 that one operator may be off by. Sums of some thousand terms in
another order were off by up to 31, in 20 models of others, and by up to 140 where all terms have
one sign and size, so that their roundings do as well."""

NARROW_STEPS = 8
"""The same for narrower floats, whose sums are wider than they are: results are rounded once."""

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
