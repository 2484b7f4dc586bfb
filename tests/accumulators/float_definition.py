"""What a float accumulator computes, written from docs/accumulators.md, in Python's integers.

Numbers are counted in units of 2^-`UNIT`, so that sums and products are exact until they are
rounded. Orders are the trees of `definition`. Nothing of tracer is used.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tests.accumulators.definition import Level, Sum

UNIT = 320
"""Products of numbers of float32 have no lower bits."""
Number = int | float
"""Units, or infinity or NaN."""


@dataclass(frozen=True)
class Format:
    """`exponent` and `fraction` bits.

    The highest codes are, by the `kind`, "" for infinity and NaN, "fn" for one NaN, or "f" for
    numbers alone.
    """

    exponent: int
    fraction: int
    kind: str = ""

    @classmethod
    def read(cls, text: str) -> Format:
        match = re.fullmatch(r"e(\d+)m(\d+)(f?n?)", text)
        assert match is not None, text
        return cls(int(match[1]), int(match[2]), match[3])

    @property
    def bias(self) -> int:
        return 2 ** (self.exponent - 1) - 1

    @property
    def largest(self) -> int:
        """The largest number, in units."""
        top = 2**self.exponent - 1 - self.bias - (self.kind == "")
        return (2 ** (self.fraction + 1) - 1 - (self.kind == "fn")) << UNIT + top - self.fraction

    @property
    def beyond(self) -> Number:
        return {"": math.inf, "fn": math.nan, "f": self.largest}[self.kind]

    def __str__(self) -> str:
        return f"e{self.exponent}m{self.fraction}{self.kind}"


@dataclass(frozen=True)
class Rule:
    """A float accumulator: formats, and what becomes of bits and numbers that they lack."""

    format: Format
    rounding: str = "rne"
    saturates: bool = False
    product: Format | None = None
    is_fused: bool = False
    is_bias_first: bool = True


@dataclass
class Walk:
    """One sum along a tree."""

    products: list[Number]
    rule: Rule

    def total(self, tree: Sum, bias: Number) -> Number:
        if self.rule.is_bias_first:
            return self.added(tree, bias)
        return self.put(plus(self.added(tree, 0), self.put(bias, None)), None)

    def added(self, tree: Sum, start: Number) -> Number:
        own, total = tree.own, self.put(start, tree.own)
        for term in tree.terms:
            if isinstance(term, Sum):
                number = self.added(term, 0)
            else:
                number = self.products[term]
                if not self.rule.is_fused:
                    number = self.put(number, own, self.rule.product)
            total = self.put(plus(total, number), own)
        return total

    def put(self, value: Number, level: Level | None, form: Format | None = None) -> Number:
        """A number as the register of a level holds it, or in another format."""
        register, saturates = self.rule.format, self.rule.saturates
        if level is not None and level.floats is not None:
            text, saturates = level.floats
            register = Format.read(text)
        form = form or register
        return _limited(value, form, self.rule.rounding, saturates)


def cast(value: int, form: Format | None) -> Number:
    """The nearest number of a format of operands; tf32 is read without the bits that it lacks."""
    if form is None:
        return value
    return _limited(value, form, "rz" if str(form) == "e8m10" else "rne", False)


def _limited(value: Number, form: Format, rounding: str, saturates: bool) -> Number:
    kept = value if isinstance(value, float) else rounded(value, form, rounding)
    if math.isnan(kept) or abs(kept) <= form.largest:
        return kept
    beyond = form.largest if saturates else form.beyond
    return beyond if value > 0 else -beyond


def times(one: Number, other: Number) -> Number:
    """The exact product."""
    if isinstance(one, int) and isinstance(other, int):
        return one * other >> UNIT
    signs = [each if isinstance(each, float) else (each > 0) - (each < 0) for each in (one, other)]
    return float(signs[0] * signs[1])


def plus(one: Number, other: Number) -> Number:
    """The exact sum."""
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    return sum(each if isinstance(each, float) else 0.0 for each in (one, other))


def rounded(value: int, form: Format, rounding: str) -> int:
    """The number of a format without a largest one, in units, that a rule takes."""
    exponent = max(abs(value).bit_length() - 1 - UNIT, 1 - form.bias)
    dropped = exponent - form.fraction + UNIT
    if dropped <= 0:
        return value
    down, size = value >> dropped, 1 << dropped
    rest = value - (down << dropped)
    match rounding:
        case "rne":
            up = 2 * rest > size or (2 * rest == size and down % 2 == 1)
        case "rz":
            up = rest > 0 and value < 0
        case _:
            assert rounding == "floor", rounding
            up = False
    return (down + up) << dropped


def units(number: np.float32 | float) -> int:
    """A finite float in units."""
    exact = Fraction(float(number)) * 2**UNIT
    assert exact.denominator == 1
    return exact.numerator


def to_float(value: Number) -> float:
    """A number that float32 has."""
    return value if isinstance(value, float) else float(Fraction(value, 2**UNIT))
