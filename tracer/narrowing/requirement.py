"""What must fit: the options of `tracer narrow`, widths, and the registers of a node's sums."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import Literal, get_args

import numpy as np

from tracer.accumulators import hardware
from tracer.accumulators.nodes import rules_of
from tracer.accumulators.spec import WIDEST, Register, kinds
from tracer.accumulators.spec.accumulator import Accumulator, AnyAccumulator, integer
from tracer.accumulators.spec.orders import Level, Terms, Tiles
from tracer.accumulators.spec.policy import Entry, Policy, first_matches, parse_policy
from tracer.errors import UsageError
from tracer.graph.model import Model
from tracer.whatif import variants

Guarantee = Literal["any-input", "this-data"]

OUTER_BITS = 32
"""Bits of the register that adds the sums of tiles, as hardware with tiles has it."""
MARGIN = 1.25
"""By how much other data may exceed the sums of the calibration data: a third of a bit."""


@dataclass(frozen=True, slots=True)
class Need:
    """Sums of `bits` bits, of `tile` terms each if there are tiles, for the inputs of `guarantee`.

    With tiles, a register of 32 bits adds the sums of the tiles, and the bias. A `machine` is an
    accumulator whose order has registers of its own: these alone must fit, and `bits` has the
    narrowest. Where sums must be `exact`, their units are powers of two.
    """

    bits: int
    tile: int | None = None
    guarantee: Guarantee = "any-input"
    machine: Accumulator | None = None
    lifts_int8: bool = False
    """Whether the machine makes int8 activations unsigned before it multiplies them."""
    exact: bool = False

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
        """The accumulator of such sums, which saturates where it is no machine's."""
        if self.machine is not None:
            return self.machine
        if self.tile is None:
            return Accumulator(self.bits)
        level = Level(self.tile, Register(self.bits))
        return Accumulator(OUTER_BITS, order=Tiles((level,)))

    @property
    def reads_stored(self) -> bool:
        """Whether operands enter as they are stored, with their zero points."""
        return self.machine is not None and self.machine.is_zero_point_in_sum

    def registers(self, depth: int, kernel: tuple[int, ...] = ()) -> "Registers":
        """Returns the registers of sums of `depth` terms, in windows of a `kernel`."""
        if self.machine is not None:
            terms = Terms(depth // math.prod(kernel), kernel)
            groups: list[list[int]] = [[place] for place in range(terms.count)]
            last = groups  # registers before the last are as wide, so what it holds fits them too
            for stage in self.machine.order.stages(terms):
                rows = (row[row >= 0] for row in stage.groups)
                groups = [[place for index in row for place in groups[index]] for row in rows]
                last = groups if stage.register is not None else last
            starts = np.cumsum([0, *map(len, last)])[:-1]
            return Registers(self, tuple(starts.tolist()), False, tuple(map(int, chain(*last))))
        size = max(depth, 1) if self.tile is None else self.tile
        return Registers(self, tuple(range(0, max(depth, 1), size)), self.tile is None)

    def most_terms(self, depth: int) -> int:
        """Returns the most terms that a register adds, of sums of `depth` terms."""
        starts = (*self.registers(depth).starts, depth)
        return max(stop - start for start, stop in pairwise(starts))


@dataclass(frozen=True, slots=True)
class Registers:
    """Registers for the terms of a sum: each takes those from one of `starts` to the next.

    The bias is added in the first register where it `has_bias`, else in the wide one behind them.
    Terms are counted in their `order`, None for that of the layer.
    """

    need: Need
    starts: tuple[int, ...]
    has_bias: bool
    order: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Width:
    """One width of the swept entry of a plan, and the needs of all entries by pattern."""

    bits: int
    entries: tuple[Entry[Need], ...] = field(repr=False)
    machine: str = ""
    """The spelling of a machine's accumulator, which all nodes have."""

    def needs(self, model: Model) -> Mapping[str, Need]:
        """Returns what the sums of each node must fit, by key."""
        if self.machine:
            rules = rules_of(self.policy(), model).items()
            machines = {key: rule.accumulator for key, rule in rules}
            return {
                key: replace(self.entries[0].value, machine=each)
                for key, each in machines.items()
                if isinstance(each, Accumulator) and _inner_bits(each)
            }
        return {key: entry.value for key, entry in first_matches(self.entries, model.nodes).items()}

    def policy(self, others: Iterable[tuple[str, Need]] = ()) -> Policy:
        """Returns the accumulators of all nodes, and of `others`, by key, that no pattern names."""
        if self.machine:
            return parse_policy(self.machine)
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
) -> tuple[Policy, tuple[Width, ...]]:
    """Returns accumulators in which nothing overflows, and each width, the narrowest first.

    A name of an accumulator is the width of a machine. Raises UsageError.
    """
    if guarantee not in get_args(Guarantee):
        raise UsageError(
            f"guarantee {guarantee!r}", f"It is one of {', '.join(get_args(Guarantee))}."
        )
    machine = _machine_width(source) if isinstance(source, str) else None
    if machine is not None:
        if tile is not None or guarantee != "any-input":
            raise UsageError(
                f"{machine.machine} has registers of its own, which any input must fit",
                "Leave out --tile and --guarantee.",
            )
        return Policy((Entry("*", Accumulator(WIDEST), machine.machine),)), (machine,)
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
    wide: list[Entry[AnyAccumulator]] = [
        Entry(e.pattern, Accumulator(WIDEST), e.text) for e in plan.entries
    ]
    return Policy(tuple(wide)), tuple(widths)


def _machine_width(source: str) -> Width | None:
    """Returns what a model for a machine must fit, None for widths of sums.

    Raises UsageError for accumulators that add no integers, or have no registers that narrow can
    keep from overflowing.
    """
    spellings = kinds.listed(source)
    if spellings is None:
        return None
    accumulator, bits, is_known = None, [], False
    if len(spellings) == 1:
        parsed = kinds.parse(source.strip(), Accumulator(OUTER_BITS)).accumulator
        accumulator = integer(parsed, "narrowed models")
        bits = _inner_bits(accumulator)
        is_known = len({*bits}) <= 1 and accumulator.bits >= OUTER_BITS
        is_known &= not (accumulator.product_bits or accumulator.product_shift)
        is_known &= not accumulator.is_unsigned
        for stage in accumulator.order.stages(Terms(1)):
            is_unsigned = stage.register is not None and stage.register.unsigned
            is_known &= not (stage.shift or stage.spill or is_unsigned)
    if accumulator is None or not is_known:
        raise UsageError(
            f"'{source}' is no machine to narrow a model for",
            "Give one signed accumulator of 32 bits or more, whose inner registers are signed, of "
            "one width, and without shifts.",
        )
    preset = hardware.presets().get(source.strip())
    lifts = preset is not None and preset.lifts_int8
    own = Need(bits[0] if bits else accumulator.bits, machine=accumulator, lifts_int8=lifts)
    return Width(own.bits, (Entry("*", own, source),), source.strip())


def _inner_bits(accumulator: Accumulator) -> list[int]:
    """Returns the widths of the registers that the order of an accumulator has."""
    stages = accumulator.order.stages(Terms(1))
    return [each.register.bits for each in stages if each.register is not None]
