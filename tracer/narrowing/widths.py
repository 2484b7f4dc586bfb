"""The widths to try, and the accumulators that they mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.any_accumulator import AnyAccumulator
from tracer.accumulators.spec.policy import Entry, Policy, first_matches
from tracer.accumulators.spec.register import WIDEST
from tracer.errors import UsageError
from tracer.graph.model import Model
from tracer.narrowing.need import Need
from tracer.narrowing.options import NarrowOptions
from tracer.whatif import width_plan
from tracer.whatif.width_plan import WidthPlan


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


def read(options: NarrowOptions) -> tuple[WidthPlan, tuple[Width, ...]]:
    """Returns the plan of the widths, and each of them, the narrowest first. Raises UsageError."""
    plan = width_plan.read(options.bits)
    swept = plan.swept
    for entry in plan.entries:
        if entry is not swept and len(entry.value) > 1:
            raise UsageError(
                f"'{entry.text}' and '{swept.text}' both have several widths",
                "Give one width for each pattern but one.",
            )
    widths = tuple(Width(bits, _entries(plan, bits, options)) for bits in swept.value)
    for width in widths:
        width.policy()  # raises UsageError for a width that no register has
    return plan, widths


def wide(plan: WidthPlan) -> Policy:
    """Returns accumulators of the plan's nodes in which nothing overflows."""
    return Policy(tuple(Entry(e.pattern, Accumulator(WIDEST), e.text) for e in plan.entries))


def _entries(plan: WidthPlan, swept: int, options: NarrowOptions) -> tuple[Entry[Need], ...]:
    """Returns the needs of the plan's entries, `swept` bits for the entry that is swept."""
    entries = []
    for entry in plan.entries:
        bits = swept if entry is plan.swept else entry.value[0]
        need = Need(bits, options.tile, options.guarantee)
        entries.append(Entry(entry.pattern, need, f"{entry.pattern}={bits}"))
    return tuple(entries)
