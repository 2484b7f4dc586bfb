"""A sum that someone else computes: two vectors of numbers go in, one number comes out."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracer.accumulators.spec.float_accumulator import (
    FORMAT_NAMES,
    FloatFormat,
    float_format,
    is_float_format,
)
from tracer.errors import InputError, UsageError
from tracer.support.types import Array

AUTO = "auto"
_RANGE = re.compile(r"(-?\d{1,10}):(-?\d{1,10})")
_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "int64")
_NUMPY_FLOATS = {"float64": "fp32", "float32": "fp32", "float16": "fp16"}
_MOST_BITS = 60
"""Bits of the greatest sums of integers that are tried: the emulation stays below 2^62."""
_HINT = (
    f"They are {', '.join(_INTEGERS)}, a range such as -100:100, float64, float32, float16, "
    f"{', '.join(FORMAT_NAMES)} or eXmY; uint8/int8 sets the first and the second vector."
)


@dataclass(frozen=True, slots=True)
class Numbers:
    """What one of the vectors holds: integers from `low` to `high`, or floats of a `format`.

    Numbers of float64 have the exponents of float32, which are enough to tell a rule.
    """

    dtype: np.dtype[Any]
    low: int = 0
    high: int = 0
    format: FloatFormat | None = None

    @classmethod
    def read(cls, text: str, terms: int) -> Numbers:
        """Returns the numbers that a text names. Raises UsageError."""
        if match := _RANGE.fullmatch(text):
            return cls(np.dtype(np.int64), int(match[1]), int(match[2]))._limited(text, terms)
        if text in _INTEGERS:
            info = np.iinfo(text)
            return cls(np.dtype(text), int(info.min), int(info.max))._limited(text, terms)
        name = _NUMPY_FLOATS.get(text, text)
        if not is_float_format(name):
            raise UsageError(f"operands '{text}'", _HINT)
        dtype = text if text in ("float16", "float64") else "float32"
        return cls(np.dtype(dtype), format=float_format(name))

    def _limited(self, text: str, terms: int) -> Numbers:
        """Returns the numbers whose sums of products stay within 64 bits."""
        if self.low > 0 or self.high < 1:
            raise UsageError(f"operands '{text}'", "The range has 0 and 1 in it.")
        most = 1 << (_MOST_BITS - math.ceil(math.log2(max(terms, 1)))) // 2
        return Numbers(self.dtype, max(self.low, -most), min(self.high, most))

    @property
    def fraction_bits(self) -> int:
        """The bits of fraction of a float."""
        assert self.format is not None
        return np.finfo(np.float64).nmant if self.dtype == np.float64 else self.format.fraction_bits

    @property
    def largest(self) -> int:
        """The largest magnitude of an integer."""
        return max(self.high, -self.low)


@dataclass(frozen=True, slots=True)
class Operands:
    """The numbers of both vectors."""

    left: Numbers
    right: Numbers
    text: str

    @classmethod
    def read(cls, text: str, terms: int) -> Operands:
        """Returns the operands of a text such as `int8` or `uint8/int8`. Raises UsageError."""
        first, _, second = text.partition("/")
        sides = Numbers.read(first.strip(), terms), Numbers.read((second or first).strip(), terms)
        if (sides[0].format is None) != (sides[1].format is None):
            raise UsageError(f"operands '{text}'", "Both vectors hold integers, or both floats.")
        return cls(*sides, text)

    @property
    def are_integers(self) -> bool:
        """Whether both vectors hold integers."""
        return self.left.format is None

    def factors(self, product: int) -> tuple[int, int]:
        """Returns two operands whose product is the greatest up to |`product`|, with its sign."""
        best, ends = (0, 0), {self.right.high, self.right.low}
        powers = {1 << n for n in range(self.right.high.bit_length())}
        for right in sorted(powers | {-n for n in powers if -n >= self.right.low} | ends):
            if right == 0:
                continue
            left = int(abs(product) // abs(right)) * (1 if (product > 0) == (right > 0) else -1)
            left = min(max(left, self.left.low), self.left.high)
            if best[0] * best[1] == product:
                break
            if abs(left * right) > abs(best[0] * best[1]) and left * right * product > 0:
                best = left, right
        return best


@dataclass
class BlackBox:
    """A function of two vectors of `terms` numbers, or of one, and how often it was called.

    Vectors come in batches (N, terms) where the function takes these and gives (N) sums. A third
    argument without a default, or named `bias`, is a bias; batches have (N).
    """

    function: Callable[..., Any]
    terms: int
    operands: Operands
    probes: int = 0
    is_plain_sum: bool = False
    takes_bias: bool = False
    _takes_rows: bool | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        try:
            parameters = [*inspect.signature(self.function).parameters.values()]
        except (TypeError, ValueError):  # compiled code may have none
            return
        kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
        needed = [p for p in parameters if p.default is p.empty and p.kind not in kinds]
        if len(needed) > 3 or any(p.kind is p.KEYWORD_ONLY for p in needed):
            raise InputError(
                f"the function needs the arguments {', '.join(p.name for p in needed)}",
                "It takes one vector, two, or two and a bias. Give the others defaults.",
            )
        variable = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        self.is_plain_sum = len(needed) == 1 and not variable
        self.takes_bias = len(needed) == 3 or [p.name for p in parameters[2:3]] == ["bias"]

    @property
    def bias_type(self) -> np.dtype[Any]:
        """The type of a bias: that of the first vector, or of integers of at least 32 bits."""
        types = self.operands.left.dtype, self.operands.right.dtype
        return np.result_type(*types, np.int32) if self.operands.are_integers else types[0]

    def sums(self, left: Array, right: Array, bias: Array | None = None) -> Array:
        """Returns the sums (N) of the products of two arrays (N, terms); int64 or float64."""
        if bias is None:  # which adds nothing, not even to -0
            bias = np.full(len(left), 0 if self.operands.are_integers else -0.0)
        kinds = self.operands.left.dtype, self.operands.right.dtype, self.bias_type
        given = list(map(np.ascontiguousarray, (left, right, bias), kinds))
        given = given[: 1 if self.is_plain_sum else 2 + self.takes_bias]
        self.probes += len(left)
        if self._takes_rows is None and len(left) > 1:
            self._takes_rows = self._finds_rows(given)
        if self._takes_rows:
            return self._numbers(self._call(*given), (len(left),))
        rows = zip(*given, strict=True)
        return np.array([self._numbers(self._call(*row), ())[()] for row in rows])

    def _call(self, *given: Array) -> Any:
        with np.errstate(all="ignore"):  # probes overflow on purpose
            return self.function(*given)

    def _finds_rows(self, given: list[Array]) -> bool:
        """Whether the function takes rows: a few are added alone and together."""
        few = 3 if self.terms != 3 else 2
        given = [np.resize(each, (few, *each.shape[1:])) for each in given]
        alone = [self._numbers(self._call(*row), ()) for row in zip(*given, strict=True)]
        try:
            together = np.asarray(self._call(*given))
        except Exception:
            return False
        return together.shape == (few,) and np.array_equal(together, np.array(alone))

    def _numbers(self, result: Any, shape: tuple[int, ...]) -> Array:
        values = np.asarray(result)
        if values.size != math.prod(shape) or values.dtype.kind not in "biuf":
            raise InputError(
                f"the function returns {values.dtype} of shape {values.shape}",
                "It takes two vectors and returns one number, their dot product.",
            )
        wide = np.int64 if self.operands.are_integers else np.float64
        is_whole = np.isfinite(values) & (values == np.trunc(values))
        if self.operands.are_integers and not np.all(is_whole):
            raise InputError("the function gives no integers for integers", "Name its --operands.")
        return values.astype(wide).reshape(shape)

    def of_products(self, products: Array) -> tuple[Array, Array]:
        """Returns the sums (N) of integers (N, terms), and the products that stand for them."""
        left, right = self.factors_of(products)
        return self.sums(left, right), left * right

    def factors_of(self, products: Array) -> tuple[Array, Array]:
        """Returns operands for integers (N, terms).

        Not every integer is a product of two operands: a smaller one takes its place.
        """
        left, right = np.zeros(products.shape, np.int64), np.zeros(products.shape, np.int64)
        for value in np.unique(products):
            a, b = (int(value), 1) if self.is_plain_sum else self.operands.factors(int(value))
            left[products == value], right[products == value] = a, b
        return left, right
