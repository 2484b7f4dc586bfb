"""What the sums of a node must fit: the registers of the hardware, and for which inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders.tiles import Level, Tiles
from tracer.accumulators.spec.register import Register

Guarantee = Literal["any-input", "this-data"]

OUTER_BITS = 32
"""Bits of the register that adds the sums of tiles, as hardware with tiles has it."""
MARGIN = 1.25
"""By how much other data may exceed the sums of the calibration data: a third of a bit."""


@dataclass(frozen=True, slots=True)
class Need:
    """Sums of `bits` bits, of `tile` terms each if there are tiles, for the inputs of `guarantee`.

    With tiles, a register of 32 bits adds the sums of the tiles, and the bias.
    """

    bits: int
    tile: int | None = None
    guarantee: Guarantee = "any-input"

    @property
    def is_for_any_input(self) -> bool:
        """Whether no input at all may exceed the registers."""
        return self.guarantee == "any-input"

    @property
    def most(self) -> int:
        """The largest number that a register holds."""
        return (1 << (self.bits - 1)) - 1

    @property
    def accumulator(self) -> Accumulator:
        """The accumulator of such sums, which saturates."""
        if self.tile is None:
            return Accumulator(self.bits)
        level = Level(self.tile, Register(self.bits))
        return Accumulator(OUTER_BITS, order=Tiles((level,)))

    def registers(self, depth: int) -> Registers:
        """Returns the registers of sums of `depth` terms."""
        size = max(depth, 1) if self.tile is None else self.tile
        return Registers(self, tuple(range(0, max(depth, 1), size)), self.tile is None)


@dataclass(frozen=True, slots=True)
class Registers:
    """Registers for the terms of a sum: each takes those from one of `starts` to the next.

    The bias is added in the first register where it `has_bias`, else in the wide one behind them.
    """

    need: Need
    starts: tuple[int, ...]
    has_bias: bool

    def split_at(self, *starts: int) -> Registers:
        """Returns registers that begin at other terms."""
        return replace(self, starts=starts)
