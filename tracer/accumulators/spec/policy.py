"""Assigns to each node of a model its accumulator, and a format of its operands."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Generic, TypeVar

from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.any_accumulator import AnyAccumulator
from tracer.accumulators.spec.fixed_point import Formats
from tracer.accumulators.spec.operand_format import OperandFormat
from tracer.errors import UsageError
from tracer.graph.model import Node
from tracer.graph.operators import CONVERSIONS

ALL = "*"
_NAMES_LISTED = 10

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class Entry(Generic[ValueT]):
    """The value of the nodes that `pattern` matches; `text` is the entry as the user wrote it.

    A pattern is a node's key, its operator or its module, with `*`, `?` and `[…]` as in a shell.
    With `exact`, it is a node's key and nothing else.
    """

    pattern: str
    value: ValueT
    text: str
    exact: bool = False

    def matches(self, node: Node) -> bool:
        """Whether the pattern describes the node's key, operator or module."""
        if self.exact:
            return node.key == self.pattern
        names = (node.key, node.op_type, node.qualified_type, node.module or "")
        return any(n == self.pattern or fnmatchcase(n, self.pattern) for n in names if n)


@dataclass(frozen=True, slots=True)
class Rule:
    """The accumulator of one node, and the format that its operands are brought into.

    `format` are fixed-point formats for sums of integers in a float graph, `operands` is a format
    for sums of floats.
    """

    accumulator: AnyAccumulator
    format: Formats | None = None
    operands: OperandFormat | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """Accumulators and formats by node; the first entry that matches a node counts.

    `formats` are fixed-point formats of operands whose products are summed in integers, `operands`
    formats of those summed in floats. Raises UsageError for formats without such an accumulator.
    """

    accumulators: tuple[Entry[AnyAccumulator], ...]
    formats: tuple[Entry[Formats], ...] = ()
    operands: tuple[Entry[OperandFormat], ...] = ()

    def __post_init__(self) -> None:
        if self.formats and not self.adds_integers:
            raise UsageError(
                f"fixed-point format '{self.formats[0].text}', and no accumulator adds integers",
                "Set formats of operands of float accumulators, as in --operands bf16.",
            )
        if self.operands and all(isinstance(e.value, Accumulator) for e in self.accumulators):
            raise UsageError(
                f"operands '{self.operands[0].text}', and no accumulator adds floats",
                "Set one such as fp32 or tc:a100, or fixed-point formats with --fixed.",
            )

    @property
    def adds_integers(self) -> bool:
        """Whether any accumulator adds integers."""
        return any(isinstance(entry.value, Accumulator) for entry in self.accumulators)

    @classmethod
    def of(cls, accumulator: AnyAccumulator, fixed: Formats | None = None) -> Policy:
        """Returns the policy with the same rule for every node."""
        text = f"{ALL}={accumulator}"
        formats = () if fixed is None else (Entry(ALL, fixed, f"{ALL}={fixed}"),)
        return cls((Entry(ALL, accumulator, text),), formats)

    def __str__(self) -> str:
        """The entries as they were written."""
        return ",".join(
            entry.text
            for part in (self.accumulators, self.formats, self.operands)
            for entry in part
        )

    def assign(self, nodes: Sequence[Node]) -> dict[str, Rule]:
        """Returns the rules of `nodes` by key, in their order, without the nodes no entry matches.

        Raises UsageError for an entry other than `*` that is the first match of no node.
        """
        accumulators = first_matches(self.accumulators, nodes)
        formats = {key: entry.value for key, entry in first_matches(self.formats, nodes).items()}
        operands = {key: entry.value for key, entry in first_matches(self.operands, nodes).items()}
        return {
            key: Rule(entry.value, format=formats.get(key))
            if isinstance(entry.value, Accumulator)
            else Rule(entry.value, operands=operands.get(key))
            for key, entry in accumulators.items()
        }


def first_matches(
    entries: Sequence[Entry[ValueT]], nodes: Sequence[Node]
) -> Mapping[str, Entry[ValueT]]:
    """Returns the first entry that matches each of `nodes`, by key; nodes without one are left out.

    Raises UsageError for an entry other than `*` that is the first match of no node.
    """
    matches = {}
    for node in nodes:
        entry = next((entry for entry in entries if entry.matches(node)), None)
        if entry is not None:
            matches[node.key] = entry
    used = {id(entry) for entry in matches.values()}
    for entry in entries:
        if id(entry) not in used and entry.pattern != ALL:
            raise _unused(entry, nodes)
    return matches


def _unused(entry: Entry[ValueT], nodes: Sequence[Node]) -> UsageError:
    taken = next((node.key for node in nodes if entry.matches(node)), None)
    if taken is not None:
        return UsageError(
            f"entry '{entry.text}' has no effect: an earlier entry already matches every node it "
            f"names (e.g. '{taken}')",
            "The first entry that matches a node counts: put the special before the general.",
        )
    computing = [node for node in nodes if node.op_type not in CONVERSIONS]
    names = [node.op_type for node in computing]
    names = list(dict.fromkeys(names + [n for x in computing for n in (x.module, x.key) if n]))
    near = difflib.get_close_matches(entry.pattern, names, _NAMES_LISTED, cutoff=0.5)
    more = ", …" if len(names) > _NAMES_LISTED else ""
    listed = f"There are {', '.join(names[:_NAMES_LISTED]) or 'none'}{more}."
    return UsageError(
        f"entry '{entry.text}' matches no node, operator or module",
        f"Similar names are {', '.join(near)}." if near else listed,
    )
