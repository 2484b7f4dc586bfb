"""Numbers that count what is done with them: the oracle of the counting rules."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np

_TALLY: Counter[str] = Counter()


class Number:
    """A float whose every addition, multiplication and other operation is tallied."""

    __slots__ = ("value",)

    def __init__(self, value: float) -> None:
        self.value = float(value)

    def __add__(self, other: Number | float) -> Number:
        return _done("adds", self.value + _value(other))

    def __sub__(self, other: Number | float) -> Number:
        return _done("adds", self.value - _value(other))

    def __rsub__(self, other: float) -> Number:
        return _done("adds", other - self.value)

    def __mul__(self, other: Number | float) -> Number:
        return _done("muls", self.value * _value(other))

    def __truediv__(self, other: Number | float) -> Number:
        return _done("other", self.value / _value(other))

    def __rtruediv__(self, other: float) -> Number:
        return _done("other", other / self.value)

    def __neg__(self) -> Number:
        return _done("other", -self.value)

    def __abs__(self) -> Number:
        return _done("other", abs(self.value))

    def __gt__(self, other: Number | float) -> bool:
        _TALLY["other"] += 1
        return self.value > _value(other)

    __radd__ = __add__
    __rmul__ = __mul__


def of(function: Callable[[float], float], x: Number) -> Number:
    """One evaluation of a function such as exp."""
    return _done("other", function(x.value))


def power(x: Number, exponent: float) -> Number:
    return of(lambda value: value**exponent, x)


def largest(numbers: Iterable[Number], start: float = -math.inf) -> Number:
    best = Number(start)
    for number in numbers:
        best = number if number > best else best
    return best


def clamp(x: Number, low: float, high: float) -> Number:
    x = x if x > low else Number(low)
    return Number(high) if x > high else x


def total(numbers: Iterable[Number]) -> Number:
    """A sum that is accumulated from zero."""
    return sum(numbers, Number(0))


def array(values: np.ndarray) -> np.ndarray:
    return np.vectorize(Number, otypes=[object])(values)


def values(numbers: np.ndarray) -> np.ndarray:
    return np.vectorize(_value, otypes=[np.float64])(numbers)


@contextmanager
def tally() -> Iterator[Counter[str]]:
    """What is done inside the block."""
    _TALLY.clear()
    yield _TALLY


def _value(number: Number | float) -> float:
    return number.value if isinstance(number, Number) else number


def _done(kind: str, value: float) -> Number:
    _TALLY[kind] += 1
    return Number(value)
