"""Which accumulator, and for float graphs which numbers, each node of a model computes with."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Generic, TypeVar

from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.fixed_point import Formats
from tracer.errors import UsageError
from tracer.graph.model import Node

ALL = "*"
_NAMES_TOLD = 10

Given = TypeVar("Given")


@dataclass(frozen=True, slots=True)
class Entry(Generic[Given]):
    """What the nodes get that `pattern` matches; `text` is the entry as the user wrote it.

    A pattern is a node's key, its operator or its module, with `*`, `?` and `[…]` as a shell
    has them.
    """

    pattern: str
    given: Given
    text: str

    def matches(self, node: Node) -> bool:
        """Whether the pattern is the node's key, operator or module, or describes one of them."""
        names = (node.key, node.op_type, node.qualified_type, node.module or "")
        return any(n == self.pattern or fnmatchcase(n, self.pattern) for n in names if n)


@dataclass(frozen=True, slots=True)
class Rule:
    """What one node computes with; `format` is for operands that are no integers."""

    accumulator: Accumulator
    format: Formats | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """Entries in order, of which the first that matches a node is its own.

    `accumulators` say where sums are narrow, `formats` which numbers float operands become.
    """

    accumulators: tuple[Entry[Accumulator], ...]
    formats: tuple[Entry[Formats], ...] = ()

    @classmethod
    def of(cls, accumulator: Accumulator, fixed: Formats | None = None) -> Policy:
        """The same for every node."""
        text = f"{ALL}={accumulator.bits}"
        formats = () if fixed is None else (Entry(ALL, fixed, f"{ALL}={fixed}"),)
        return cls((Entry(ALL, accumulator, text),), formats)

    def __str__(self) -> str:
        """The entries as they were written."""
        texts = [*(e.text for e in self.accumulators), *(e.text for e in self.formats)]
        return ",".join(texts)

    def assign(self, nodes: Sequence[Node]) -> dict[str, Rule]:
        """The rules of `nodes` by key, in their order; a node that no entry matches has none.

        Raises UsageError for an entry that matches no node, or only nodes that entries before it
        match already; `*`, for all the rest, may be left with none.
        """
        accumulators = matched(self.accumulators, nodes)
        formats = {key: entry.given for key, entry in matched(self.formats, nodes).items()}
        return {key: Rule(own.given, formats.get(key)) for key, own in accumulators.items()}


def matched(entries: Sequence[Entry[Given]], nodes: Sequence[Node]) -> Mapping[str, Entry[Given]]:
    """The first entry that matches each of `nodes`, by key; nodes that none matches are left out.

    Raises UsageError for an entry that is nobody's, as `Policy.assign` has it.
    """
    found = {}
    used: set[int] = set()
    for node in nodes:
        place = next((i for i, entry in enumerate(entries) if entry.matches(node)), None)
        if place is not None:
            used.add(place)
            found[node.key] = entries[place]
    for place, entry in enumerate(entries):
        if place not in used and entry.pattern != ALL:
            raise _unused(entry, nodes)
    return found


def _unused(entry: Entry[Given], nodes: Sequence[Node]) -> UsageError:
    taken = next((node.key for node in nodes if entry.matches(node)), None)
    if taken is not None:
        return UsageError(
            f"entry '{entry.text}' comes too late: all it matches, as '{taken}', is matched before",
            "The first entry that matches a node counts: put the special before the general.",
        )
    computing = [node for node in nodes if not node.op_type.lower().endswith("quantizelinear")]
    names = [node.op_type for node in computing]
    names = list(dict.fromkeys(names + [n for x in computing for n in (x.module, x.key) if n]))
    near = difflib.get_close_matches(entry.pattern, names, _NAMES_TOLD, cutoff=0.5)
    told = f"Near it are {', '.join(near)}." if near else _some(names)
    return UsageError(f"entry '{entry.text}' matches no node, operator or module", told)


def _some(names: Sequence[str]) -> str:
    more = ", …" if len(names) > _NAMES_TOLD else ""
    return f"There are {', '.join(names[:_NAMES_TOLD]) or 'none'}{more}."
