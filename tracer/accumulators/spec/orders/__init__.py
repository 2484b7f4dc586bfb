"""Orders in which a dot product can be summed; each is a class of a module of this package.

An order consists of stages: the first stage sums groups of products, each further stage sums
groups of the previous sums, and the last stage has one group. `sequential` has one stage; a tree
has many.
"""

import importlib
import pkgutil
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar

import numpy as np

from tracer.accumulators.spec import parts
from tracer.accumulators.spec.register import Register
from tracer.errors import UsageError
from tracer.support.types import Array

_SPELLING = re.compile(r"([a-z]+)(?:\((.*)\))?")
_DIGITS = 9


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
        """The number of products."""
        return self.channels * self.window


@dataclass(frozen=True, slots=True)
class Stage:
    """Groups of numbers; each group is summed in the order of its row, starting with 0.

    `groups` (groups, longest), intp, are indices of products, or of sums of the previous stage; -1
    fills shorter rows. `register` is the register of each group, if it is not the accumulator.
    """

    groups: Array
    register: Register | None = None


class Order(ABC):
    """How the products of a dot product are summed. Subclasses are frozen dataclasses."""

    __slots__ = ()
    reorders: ClassVar[bool] = False
    """Whether `arrange` depends on the products."""

    @classmethod
    def read(cls, sizes: Sequence[str]) -> "Order":
        """Returns the order with the sizes in parentheses. Raises UsageError for other text."""
        if not all(size.isascii() and size.isdigit() and len(size) <= _DIGITS for size in sizes):
            raise UsageError(f"'{','.join(sizes)}' is not a size", "It is a whole number.")
        return cls(*map(int, sizes))

    @abstractmethod
    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """Returns the stages; the last stage has one group."""

    def arrange(self, products: Array, start: Array) -> Array:
        """Returns the products (..., K), int64, in the order they are added to `start` (...)."""
        return products

    def envelope(self, low: Array, high: Array, start: Array) -> tuple[Array, Array]:
        """Returns bounds (...) of all partial sums of products (..., K) between `low` and `high`.

        Used where `arrange` depends on the products. These bounds hold for any order.
        """
        return start + np.minimum(low, 0).sum(-1), start + np.maximum(high, 0).sum(-1)

    def __str__(self) -> str:
        """The spelling that `named` reads."""
        own: Any = self  # every order is a dataclass
        sizes = [str(getattr(self, field.name)) for field in fields(own)]
        name = type(self).__name__.lower()
        return f"{name}({','.join(sizes)})" if sizes else name


def named(spelling: str) -> Order:
    """Returns the order for `sequential`, `chunked(32)` and so on. Raises UsageError."""
    match = _SPELLING.fullmatch(spelling.strip())
    if match is None or match[1] not in _orders():
        raise UsageError(
            f"'{spelling}' is not an order",
            f"Orders: {', '.join(_orders())}; sizes as in chunked(32).",
        )
    try:
        return _orders()[match[1]].read(parts(match[2], ",") if match[2] else ())
    except TypeError as error:
        raise UsageError(
            f"order '{spelling}': {'a size is missing' if not match[2] else 'it has no size'}",
            "Sizes are written as in chunked(32).",
        ) from error


@cache
def _orders() -> Mapping[str, type[Order]]:
    """Returns the orders of all modules of this package by name, in lower case."""
    orders = {}
    for found in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{found.name}")
        for name, value in vars(module).items():
            if isinstance(value, type) and issubclass(value, Order) and value is not Order:
                orders[name.lower()] = value
    return dict(sorted(orders.items()))


def rows_of(count: int, length: int) -> Array:
    """Returns indices 0 to `count` - 1 in rows of `length`; -1 fills the last row.

    The row is shorter where `count` is less than `length`.
    """
    length = min(length, max(count, 1))
    rows = np.full(-(-count // length) * length, -1, np.intp)
    rows[:count] = np.arange(count)
    return rows.reshape(-1, length)


def one_group(count: int) -> Stage:
    """Returns the stage that sums `count` numbers in their order."""
    return Stage(np.arange(count, dtype=np.intp)[None])


def check_size(what: str, size: int) -> None:
    """Raises UsageError for a size below 1."""
    if size < 1:
        raise UsageError(f"{what} of {size}", "The size is 1 or more.")
