"""Float formats of few bits: fp16, fp8-e4m3, or any eXmY with a bias of its own."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, assert_never, get_args

from tracer.errors import UsageError

Specials = Literal["ieee", "nan", "fnuz", "none"]
"""What the highest codes are: `ieee` has infinities and NaN, `nan` one NaN of all ones (e4m3 of
OCP), `fnuz` one NaN in the place of -0, `none` numbers alone (fp4 and fp6 of OCP)."""
Subnormals = Literal["kept", "flushed", "none"]
"""What the lowest exponent has: `kept` subnormal numbers, `flushed` 0 alone, `none` further normal
numbers, which leave out subnormal ones."""

_SUFFIXES: Mapping[str, Specials] = {"": "ieee", "fn": "nan", "fnuz": "fnuz", "f": "none"}
_SPELLING = re.compile(r"e(\d{1,2})m(\d{1,2})(fnuz|fn|f)?(?::(-?\d{1,3}))?")
_LOWEST, _HIGHEST = -149, 127
"""Exponents of the lowest and of the highest bit of a float32."""


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A sign, `exponent_bits` and `fraction_bits`; 1 is stored with the exponent `bias`.

    `bias` None is the usual one: 2^(E-1) - 1, and 2^(E-1) for `fnuz`. Every number of a format is a
    float32. Raises UsageError for a format that is wider, or that has no normal number.
    """

    exponent_bits: int
    fraction_bits: int
    bias: int | None = None
    specials: Specials = "ieee"
    subnormals: Subnormals = "kept"

    def __post_init__(self) -> None:
        for name, choices in (("specials", Specials), ("subnormals", Subnormals)):
            if getattr(self, name) not in get_args(choices):
                raise UsageError(
                    f"{name} {getattr(self, name)!r}",
                    f"It is one of {', '.join(get_args(choices))}.",
                )
        if not (1 <= self.exponent_bits <= 8 and 0 <= self.fraction_bits <= 23):
            raise UsageError(
                f"a float format e{self.exponent_bits}m{self.fraction_bits}",
                "It has from 1 to 8 bits of exponent and from 0 to 23 bits of fraction.",
            )
        if self.bias is None:
            usual = 2 ** (self.exponent_bits - 1) - (self.specials != "fnuz")
            object.__setattr__(self, "bias", usual)
        if self.largest_exponent < self.least_exponent:
            raise UsageError(f"{self} has no normal number", "It needs more bits of exponent.")
        if self.least_bit < _LOWEST or self.largest_exponent > _HIGHEST:
            raise UsageError(
                f"{self} has numbers outside float32",
                f"Its bits lie between 2^{_LOWEST} and 2^{_HIGHEST}; choose another bias.",
            )

    @property
    def least_exponent(self) -> int:
        """The exponent of the least normal number, and of subnormal ones."""
        assert self.bias is not None
        return (0 if self.subnormals == "none" else 1) - self.bias

    @property
    def least_bit(self) -> int:
        """The exponent of the lowest bit of the least numbers."""
        return self.least_exponent - self.fraction_bits

    @property
    def largest_exponent(self) -> int:
        """The exponent of the largest number."""
        assert self.bias is not None
        top = 2**self.exponent_bits - 1 - self.bias
        return top - 1 if self._top_is_special else top

    @property
    def largest(self) -> float:
        """The largest number."""
        last_is_nan = self.specials == "nan" and not self._top_is_special
        unit: float = 2.0 ** (self.largest_exponent - self.fraction_bits)
        return unit * (2 ** (self.fraction_bits + 1) - 1 - last_is_nan)

    @property
    def least_normal(self) -> float:
        """The least positive number whose fraction has all its bits."""
        result: float = 2.0**self.least_exponent
        return result

    @property
    def beyond(self) -> float:
        """What a number beyond the largest becomes: infinity, NaN, or the largest number."""
        match self.specials:
            case "ieee":
                return float("inf")
            case "nan" | "fnuz":
                return float("nan")
            case "none":
                return self.largest
            case _:
                assert_never(self.specials)

    @property
    def has_negative_zero(self) -> bool:
        """Whether -0 has a code."""
        return self.specials != "fnuz"

    @property
    def _top_is_special(self) -> bool:
        """Whether the highest exponent has no number."""
        return self.specials == "ieee" or (self.specials == "nan" and self.fraction_bits == 0)

    def __str__(self) -> str:
        """The spelling that `float_format` reads; it leaves out `subnormals`."""
        for name, spelling in NAMES.items():
            if spelling == self._spelling:
                return name
        return self._spelling

    @property
    def _spelling(self) -> str:
        suffix = next(text for text, specials in _SUFFIXES.items() if specials == self.specials)
        usual = 2 ** (self.exponent_bits - 1) - (self.specials != "fnuz")
        bias = "" if self.bias == usual else f":{self.bias}"
        return f"e{self.exponent_bits}m{self.fraction_bits}{suffix}{bias}"


NAMES: Mapping[str, str] = {
    "fp32": "e8m23", "tf32": "e8m10", "bf16": "e8m7", "fp16": "e5m10",
    "fp8-e4m3": "e4m3fn", "fp8-e5m2": "e5m2",
    "fp8-e4m3fnuz": "e4m3fnuz", "fp8-e5m2fnuz": "e5m2fnuz",
    "fp6-e2m3": "e2m3f", "fp6-e3m2": "e3m2f", "fp4-e2m1": "e2m1f",
}  # fmt: skip
"""Formats that have a name, and their spelling as eXmY."""

_HINT = (
    f"It is one of {', '.join(NAMES)}, or eXmY with X bits of exponent and Y of fraction, as in "
    "e6m9; e4m7:10 has the bias 10; e4m3fn has NaN but no infinity, e2m1f neither."
)


def is_float_format(spelling: str) -> bool:
    """Returns whether a text looks like a format: a name, or eXmY."""
    return spelling in NAMES or _SPELLING.fullmatch(spelling) is not None


def float_format(spelling: str) -> FloatFormat:
    """Parses `fp16`, `fp8-e4m3`, `e6m9`, `e4m7:10`, `e4m3fn` and so on. Raises UsageError."""
    match = _SPELLING.fullmatch(NAMES.get(spelling, spelling))
    if match is None:
        raise UsageError(f"'{spelling}' is not a float format", _HINT)
    bias = None if match[4] is None else int(match[4])
    return FloatFormat(int(match[1]), int(match[2]), bias, _SUFFIXES[match[3] or ""])
