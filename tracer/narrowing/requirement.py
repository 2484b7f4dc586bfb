"""What must fit: the options of `tracer narrow`, widths, and the registers of a node's sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, get_args

from tracer.accumulators.spec import WIDEST, Register
from tracer.accumulators.spec.accumulator import Accumulator, AnyAccumulator
from tracer.accumulators.spec.orders import Level, Tiles
from tracer.accumulators.spec.policy import Entry, Policy, first_matches
from tracer.errors import UsageError
from tracer.graph.model import Model
from tracer.whatif import variants
from tracer.whatif.variants import WidthPlan

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
    def largest(self) -> int:
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


@dataclass(frozen=True)
class Width:
    """One width of the swept entry of a plan, and the needs of all entries by pattern."""

    bits: int
    entries: tuple[Entry[Need], ...] = field(repr=False)

    def needs(self, model: Model) -> Mapping[str, Need]:
        """Returns what the sums of each node must fit, by key."""
        return {key: entry.value for key, entry in first_matches(self.entries, model.nodes).items()}

    def policy(self, others: Iterable[tuple[str, Need]] = ()) -> Policy:
        """Returns the accumulators of all nodes, and of `others`, by key, that no pattern names."""
        entries: list[Entry[AnyAccumulator]] = [
            Entry(key, self._accumulators[need], key, exact=True) for key, need in others
        ]
        entries += [
            Entry(each.pattern, self._accumulators[each.value], each.text) for each in self.entries
        ]
        return Policy(tuple(entries))

    @cached_property
    def _accumulators(self) -> Mapping[Need, AnyAccumulator]:
        """One accumulator for equal needs: some node of each must have integer arithmetic."""
        return {each.value: each.value.accumulator for each in self.entries}


def parse_widths(
    source: str | Sequence[int], tile: int | None, guarantee: Guarantee
) -> tuple[WidthPlan, tuple[Width, ...]]:
    """Returns the plan of the widths, and each of them, the narrowest first. Raises UsageError."""
    if guarantee not in get_args(Guarantee):
        raise UsageError(
            f"guarantee {guarantee!r}", f"It is one of {', '.join(get_args(Guarantee))}."
        )
    plan = variants.read_widths(source)
    swept = plan.swept
    for entry in plan.entries:
        if entry is not swept and len(entry.value) > 1:
            raise UsageError(
                f"'{entry.text}' and '{swept.text}' both have several widths",
                "Give one width for each pattern but one.",
            )
    widths = []
    for bits in swept.value:
        each = [(entry, bits if entry is swept else entry.value[0]) for entry in plan.entries]
        widths.append(Width(bits, tuple(
            Entry(entry.pattern, Need(own, tile, guarantee), f"{entry.pattern}={own}")
            for entry, own in each
        )))  # fmt: skip
        widths[-1].policy()  # raises UsageError for a width that no register has
    return plan, tuple(widths)


def wide(plan: WidthPlan) -> Policy:
    """Returns accumulators of the plan's nodes in which nothing overflows."""
    return Policy(tuple(Entry(e.pattern, Accumulator(WIDEST), e.text) for e in plan.entries))
