"""Limits of a run, checked before use: bytes, loop trips, nesting depth and seconds."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from tracer.errors import LimitError
from tracer.graph.tensor_type import bits_of
from tracer.support.arguments import amount, check_arguments, maybe

_WIDEST = 16
"""Bytes of the widest element, complex128: a tensor that fits at this width needs no other look."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one run; the defaults suit a workstation. `seconds` None means no limit.

    `process_bytes` is what a child process may allocate [default: 75 % of what is free].
    """

    tensor_bytes: int = 4 << 30
    live_bytes: int = 16 << 30
    loop_trips: int = 1_000_000
    depth: int = 32
    seconds: float | None = None
    process_bytes: int | None = None

    def __post_init__(self) -> None:
        """Raises UsageError for a limit that is no number of at least 0."""
        limits = {field.name: getattr(self, field.name) for field in fields(self)}
        rules = dict.fromkeys(limits, amount()) | {
            "seconds": maybe(amount("seconds")),
            "process_bytes": maybe(amount("bytes")),
        }
        check_arguments(limits, rules)


class Budget:
    """The use of the limits in one run.

    `live` and `peak` are bytes of the values alive now and at most, without weights. Two names
    for one buffer count twice, since the buffer may be copied at any time.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.live = 0
        self.peak = 0
        self._depth = 0
        self._began = time.monotonic()

    def tensor(self, shape: Sequence[int], dtype: Any) -> None:
        """Raises LimitError for a tensor beyond the limit."""
        count = math.prod(map(int, shape))
        if count * _WIDEST <= self.limits.tensor_bytes:
            return
        need = count * ((bits_of(_name(dtype)) or 64) / 8)
        if need > self.limits.tensor_bytes:
            self._exceed(
                f"a tensor of {size_text(need)}, {_name(dtype)}{[int(n) for n in shape]}",
                f"{size_text(self.limits.tensor_bytes)} a tensor",
                "tensor_bytes",
            )

    def hold(self, nbytes: int) -> None:
        """Counts a new value. Raises LimitError if all live values exceed the limit."""
        self.live += nbytes
        if self.live <= self.peak:
            return
        self.peak = self.live
        if self.live > self.limits.live_bytes:
            self._exceed(
                f"live values of {size_text(self.live)}",
                f"{size_text(self.limits.live_bytes)} at a time",
                "live_bytes",
            )

    def release(self, nbytes: int) -> None:
        """Counts a freed value."""
        self.live -= nbytes

    def trip(self, count: int) -> None:
        """Raises LimitError for too many trips of a loop, or if the time is up."""
        if count > self.limits.loop_trips:
            self._exceed(f"{count:,} trips of a loop", f"{self.limits.loop_trips:,}", "loop_trips")
        self.clock()

    def clock(self) -> None:
        """Raises LimitError if the time is up."""
        allowed = self.limits.seconds
        if allowed is not None and time.monotonic() - self._began > allowed:
            self._exceed("the run", f"{allowed:g} s", "seconds")

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Counts one level of subgraphs and function bodies."""
        self._depth += 1
        try:
            if self._depth > self.limits.depth:
                self._exceed(f"nesting {self._depth} deep", f"{self.limits.depth}", "depth")
            yield
        finally:
            self._depth -= 1

    def _exceed(self, what: str, allowed: str, field: str) -> None:
        raise LimitError(
            f"{what} exceeds the limit of {allowed}", f"Raise Limits.{field} if this is intended."
        )


_IN_FORCE: ContextVar[Budget | None] = ContextVar("budget", default=None)


def in_force() -> Budget:
    """Returns the budget of the current run, or a new one with the default limits."""
    return _IN_FORCE.get() or Budget(Limits())


def allow(shape: Sequence[int], dtype: Any) -> None:
    """Raises LimitError for a tensor beyond the limit; operators call it before they allocate."""
    in_force().tensor(shape, dtype)


@contextmanager
def enforced(limits: Limits) -> Iterator[Budget]:
    """Puts `limits` in force for a run."""
    budget = Budget(limits)
    token = _IN_FORCE.set(budget)
    try:
        yield budget
    finally:
        _IN_FORCE.reset(token)


def size_text(nbytes: float) -> str:
    """Returns bytes as text, e.g. 4.0 TiB."""
    for unit in _UNITS:
        if nbytes < 1024 or unit == _UNITS[-1]:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    raise AssertionError("unreachable")


@cache
def _name(dtype: Any) -> str:
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", str(dtype))
    return "string" if name == "object" else str(name)
