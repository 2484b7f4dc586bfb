"""The orders in which a dot product can be summed; an order is one file of this folder.

An order says what is added to what, as stages: the first sums groups of products, the next groups
of those sums, the last one group of all. `sequential` has one stage; a tree has many.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from tracer.errors import UsageError
from tracer.support.types import Array

_SPELLING = re.compile(r"([a-z]+)(?:\((\d{1,9})\))?")


@dataclass(frozen=True, slots=True)
class Terms:
    """The products of one dot product: `channels` times `window` of them, windows innermost.

    A convolution has a window of kernel positions for each input channel; a matrix product has
    windows of one.
    """

    channels: int
    window: int = 1

    @property
    def count(self) -> int:
        """All products."""
        return self.channels * self.window


@dataclass(frozen=True, slots=True)
class Stage:
    """Groups of numbers that are summed, each in the order of its row, beginning with 0.

    `groups` (groups, longest), intp, are positions among the products, or among the sums of the
    stage before; -1 fills rows that are shorter. `bits` is the width of a stage that saturates
    in a register of its own, whatever the accumulator; None uses the accumulator.
    """

    groups: Array
    bits: int | None = None


class Order(ABC):
    """How the products of a dot product are summed. Subclasses are frozen dataclasses."""

    __slots__ = ()
    reorders: ClassVar[bool] = False
    """Whether `arrange` depends on the products."""

    @abstractmethod
    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """What is added to what; the last stage has one group."""

    def arrange(self, products: Array, start: Array) -> Array:
        """The products (..., K), int64, in the order they are met; `start` (...) is before them."""
        return products

    def envelope(self, low: Array, high: Array, start: Array) -> tuple[Array, Array]:
        """Where partial sums lie, (...) each, if products (..., K) lie between `low` and `high`.

        Asked where `arrange` depends on the products. It holds for any order.
        """
        return start + np.minimum(low, 0).sum(-1), start + np.maximum(high, 0).sum(-1)

    def __str__(self) -> str:
        """The spelling that `named` reads."""
        parts: Any = self  # every order is a dataclass
        sizes = [str(getattr(self, field.name)) for field in fields(parts)]
        name = type(self).__name__.lower()
        return f"{name}({','.join(sizes)})" if sizes else name


def named(spelling: str) -> Order:
    """The order that `sequential`, `chunked(32)` and the like mean. Raises UsageError."""
    matched = _SPELLING.fullmatch(spelling.strip())
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    if matched is None or matched[1] not in names:
        raise UsageError(
            f"'{spelling}' is not an order", f"Orders: {', '.join(names)}; sizes as in chunked(32)."
        )
    order: type[Order] = getattr(importlib.import_module(f"{__name__}.{matched[1]}"),
                                 matched[1].capitalize())  # fmt: skip
    try:
        return order(*(int(size) for size in matched.groups()[1:] if size is not None))
    except TypeError as error:
        raise UsageError(
            f"order '{spelling}': {'a size is missing' if not matched[2] else 'it has no size'}",
            "Sizes are given as in chunked(32).",
        ) from error


def rows_of(count: int, length: int) -> Array:
    """`count` positions cut into rows of `length`, the last one filled with -1.

    Where there are fewer, the one row is no longer than they are.
    """
    length = min(length, max(count, 1))
    rows = np.full(-(-count // length) * length, -1, np.intp)
    rows[:count] = np.arange(count)
    return rows.reshape(-1, length)


def whole(count: int) -> Stage:
    """The stage that sums `count` numbers in their order."""
    return Stage(np.arange(count, dtype=np.intp)[None])


def at_least_one(what: str, size: int) -> None:
    """Raise UsageError for a size below 1."""
    if size < 1:
        raise UsageError(f"{what} of {size}", "The size is 1 or more.")
