"""What a run may use, checked before it is used: bytes, loop trips, nesting and seconds."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

from tracer.errors import LimitError
from tracer.graph.tensor_type import bits_of

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one run; the defaults suit a workstation. `seconds` of None is no bound."""

    tensor_bytes: int = 4 << 30
    live_bytes: int = 16 << 30
    loop_trips: int = 1_000_000
    depth: int = 32
    seconds: float | None = None


class Budget:
    """What one run has used of its limits.

    `live` and `peak` are bytes of the values held now and at most, weights not counted; two
    names for one buffer count twice, as they may part at any time.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.live = 0
        self.peak = 0
        self._depth = 0
        self._began = time.monotonic()

    def tensor(self, shape: Sequence[int], dtype: Any) -> None:
        """Raise LimitError where a tensor of this type must not be made."""
        need = math.prod(int(n) for n in shape) * ((bits_of(_name(dtype)) or 64) / 8)
        if need > self.limits.tensor_bytes:
            self._refuse(
                f"a tensor of {size_text(need)}, {_name(dtype)}{[int(n) for n in shape]}",
                f"{size_text(self.limits.tensor_bytes)} a tensor",
                "tensor_bytes",
            )

    def hold(self, nbytes: int) -> None:
        """Count a value that came to life. Raises LimitError where all live ones are too many."""
        self.live += nbytes
        self.peak = max(self.peak, self.live)
        if self.live > self.limits.live_bytes:
            self._refuse(
                f"live values of {size_text(self.live)}",
                f"{size_text(self.limits.live_bytes)} at a time",
                "live_bytes",
            )

    def release(self, nbytes: int) -> None:
        """Count a value that was freed."""
        self.live -= nbytes

    def trip(self, count: int) -> None:
        """Raise LimitError where a loop goes round too often, or the time is up."""
        if count > self.limits.loop_trips:
            self._refuse(f"{count:,} trips of a loop", f"{self.limits.loop_trips:,}", "loop_trips")
        self.clock()

    def clock(self) -> None:
        """Raise LimitError where the time is up."""
        allowed = self.limits.seconds
        if allowed is not None and time.monotonic() - self._began > allowed:
            self._refuse("the run", f"{allowed:g} s", "seconds")

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Count one level of subgraphs and function bodies."""
        self._depth += 1
        try:
            if self._depth > self.limits.depth:
                self._refuse(f"nesting {self._depth} deep", f"{self.limits.depth}", "depth")
            yield
        finally:
            self._depth -= 1

    def _refuse(self, what: str, allowed: str, field: str) -> None:
        raise LimitError(
            f"{what} exceeds the limit of {allowed}", f"Raise Limits.{field} if this is meant."
        )


_IN_FORCE: ContextVar[Budget | None] = ContextVar("budget", default=None)


def in_force() -> Budget:
    """The budget of the run that is under way, else a fresh one with the default limits."""
    return _IN_FORCE.get() or Budget(Limits())


def allow(shape: Sequence[int], dtype: Any) -> None:
    """Raise LimitError where a tensor of this type must not be made; for operators to ask first."""
    in_force().tensor(shape, dtype)


@contextmanager
def enforced(limits: Limits) -> Iterator[Budget]:
    """Put fresh limits in force for the time of a run."""
    budget = Budget(limits)
    token = _IN_FORCE.set(budget)
    try:
        yield budget
    finally:
        _IN_FORCE.reset(token)


def size_text(nbytes: float) -> str:
    """Bytes for people: 4.0 TiB."""
    for unit in _UNITS:
        if nbytes < 1024 or unit == _UNITS[-1]:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    raise AssertionError("unreachable")


@cache
def _name(dtype: Any) -> str:
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", str(dtype))
    return "string" if name == "object" else str(name)
