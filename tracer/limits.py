"""Limits of a run, checked before use: bytes, loop trips, nesting depth and seconds."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

from tracer.containment import memory
from tracer.errors import LimitError
from tracer.graph import stored_weights
from tracer.graph.tensor_type import bits_of
from tracer.support.arguments import amount, check_arguments, maybe

_WIDEST = 16
"""Bytes of the widest element, complex128: a tensor that fits at this width needs no other look."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_LARGEST_TENSOR = 4 << 30
"""Bytes of a tensor by default, where that much may be alive."""
_LIVE = 16 << 30
"""Bytes of live values by default where the system does not say what is free."""
_CARRIED = 0.25
"""What a value may grow to in a loop ÷ what a tensor may have."""
_PATIENCE = 600.0
"""Seconds that one loop may take where no limit is set."""
_OPTIONS = {"tensor_bytes": "--max-tensor", "live_bytes": "--max-live", "loop_trips": "--max-trips",
            "seconds": "--max-seconds"}  # fmt: skip


@cache
def fair_share() -> int:
    """Returns half of the bytes that were free when first asked: operators need copies as well.

    Of what a limit of the process leaves it is two thirds, as half is of three quarters.
    """
    free, room = memory.free_bytes(), memory.room_bytes()
    shares = [_LIVE if free is None else free // 2]
    return min(shares if room is None else (*shares, room * 2 // 3))


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one run.

    By default, live values take 512 MiB and 512 times the bytes of weights and inputs, at most
    half of the memory that is free; a tensor 4 GiB of it, and a loop ten minutes. A value that a
    loop carries grows to a quarter of a tensor's limit. `seconds` limits the run instead of its
    loops. `process_bytes` is what a child process may allocate [default: 75 % of what is free].
    """

    tensor_bytes: int | None = None
    live_bytes: int | None = None
    loop_trips: int = 1_000_000
    depth: int = 32
    seconds: float | None = None
    process_bytes: int | None = None

    def __post_init__(self) -> None:
        """Raises UsageError for a limit that is no number of at least 0."""
        limits = {each.name: getattr(self, each.name) for each in fields(self)}
        rules = dict.fromkeys(limits, amount()) | {
            "seconds": maybe(amount("seconds")),
            **{name: maybe(amount("bytes")) for name in limits if name.endswith("_bytes")},
        }
        check_arguments(limits, rules)

    def in_proportion(self, given: int | None) -> "Limits":
        """Returns these limits, with the bytes by default for weights and inputs of `given` bytes.

        None are weights and inputs that nobody knows yet, of any size.
        """
        if self.tensor_bytes is not None and self.live_bytes is not None:
            return self  # without a look at the memory, and a check of the limits anew
        most = fair_share()
        if given is not None:
            most = min(most, stored_weights.memory_of_values(given))
        live = most if self.live_bytes is None else self.live_bytes
        tensor = min(_LARGEST_TENSOR, most) if self.tensor_bytes is None else self.tensor_bytes
        return replace(self, tensor_bytes=tensor, live_bytes=live)


class Budget:
    """The use of the limits in one run.

    `live` and `peak` are bytes of the values alive now and at most, without weights. Two names
    for one buffer count twice, since the buffer may be copied at any time.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = whole = limits.in_proportion(None)
        assert whole.tensor_bytes is not None and whole.live_bytes is not None
        self._tensor_bytes, self._live_bytes = whole.tensor_bytes, whole.live_bytes
        self.live = 0
        self.peak = 0
        self._depth = 0
        self._began = time.monotonic()

    def tensor(self, shape: Sequence[int], dtype: Any) -> None:
        """Raises LimitError for a tensor beyond the limit, or beyond what live values leave."""
        room = min(self._tensor_bytes, self._live_bytes - self.live)
        # without zeros: numpy refuses even an empty array if its other sizes are too large
        count = math.prod(filter(None, map(int, shape)))
        if count * _WIDEST <= room:
            return
        need = count * ((bits_of(_name(dtype)) or 64) / 8)
        if need > self._tensor_bytes:
            self._exceed(
                f"a tensor of {size_text(need)}, {_name(dtype)}{[int(n) for n in shape]}",
                f"{size_text(self._tensor_bytes)} a tensor",
                "tensor_bytes",
            )
        if need > room:
            self._too_much_alive(self.live + need)

    def room(self, nbytes: int) -> None:
        """Raises LimitError where `nbytes` more would exceed the limit of all live values."""
        if self.live + nbytes > self._live_bytes:
            self._too_much_alive(self.live + nbytes)

    def hold(self, nbytes: int) -> None:
        """Counts a new value. Raises LimitError if all live values exceed the limit."""
        self.live += nbytes
        if self.live <= self.peak:
            return
        self.peak = self.live
        if self.live > self._live_bytes:
            self._too_much_alive(self.live)

    def release(self, nbytes: int) -> None:
        """Counts a freed value."""
        self.live -= nbytes

    def trip(self, count: int, began: float) -> None:
        """Raises LimitError for too many trips of a loop that `began` then, or if time is up."""
        if count > self.limits.loop_trips:
            self._exceed(f"{count:,} trips of a loop", f"{self.limits.loop_trips:,}", "loop_trips")
        self.clock(began)

    def carried(self, nbytes: int, before: int) -> None:
        """Raises LimitError where a value that a loop carries grew beyond a part of a tensor.

        It had `before` bytes when the loop began. What doubles with each trip takes most of its
        time and memory in the last trips.
        """
        allowed = int(self._tensor_bytes * _CARRIED)
        if nbytes > max(allowed, before):
            self._exceed(
                f"a value of {size_text(nbytes)} that a loop lets grow",
                f"{size_text(allowed)}, a quarter of a tensor's",
                "tensor_bytes",
            )

    def clock(self, began: float | None = None) -> None:
        """Raises LimitError if the time of the run is up; without one, of a loop that `began`."""
        allowed, now = self.limits.seconds, time.monotonic()
        if allowed is not None and now - self._began > allowed:
            self._exceed("the run", f"{allowed:g} s", "seconds")
        if allowed is None and began is not None and now - began > _PATIENCE:
            self._exceed("a loop", f"{_PATIENCE / 60:g} minutes", "seconds")

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

    def _too_much_alive(self, nbytes: float) -> None:
        self._exceed(
            f"live values of {size_text(nbytes)}",
            f"{size_text(self._live_bytes)} at a time",
            "live_bytes",
        )

    def _exceed(self, what: str, allowed: str, name: str) -> None:
        option = f"{_OPTIONS[name]} or " if name in _OPTIONS else ""
        raise LimitError(
            f"{what} exceeds the limit of {allowed}",
            f"Raise {option}Limits.{name} if this is intended.",
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
