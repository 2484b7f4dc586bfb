"""Which widths to try for which nodes: entries as a policy has them, with ranges for widths."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tracer.accumulators.spec import policy_text
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.policy import Entry, Policy, first_matches
from tracer.errors import UsageError
from tracer.graph.model import Node
from tracer.records.whatif import Pins

_RANGE = re.compile(r"([0-9]{1,4})(?::([0-9]{1,4})(?::([0-9]{1,4}))?)?")
_HINT = (
    "Widths are a range such as 12:32 (or 12:32:2), or a list such as 12,14,16; "
    "for some nodes, 'conv1=18,*=12:32'."
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Widths by pattern, from the narrowest on; the first entry that matches a node is its own."""

    entries: tuple[Entry[tuple[int, ...]], ...]

    @property
    def swept(self) -> Entry[tuple[int, ...]]:
        """The last entry with several widths, or the last one; to the others nodes are pinned."""
        several = [entry for entry in self.entries if len(entry.value) > 1]
        return (several or self.entries)[-1]

    @property
    def ends(self) -> tuple[int, int]:
        """The narrowest and the widest width of all."""
        every = [bits for entry in self.entries for bits in entry.value]
        return min(every), max(every)

    def __str__(self) -> str:
        """The entries as they were written."""
        return ",".join(entry.text for entry in self.entries)

    def policy(self, kind: Accumulator) -> Policy:
        """Accumulators like `kind` for the nodes that the plan names, at their widest."""
        return Policy(
            tuple(
                Entry(entry.pattern, replace(kind, bits=entry.value[-1]), entry.text)
                for entry in self.entries
            )
        )

    def pins(self, nodes: Sequence[Node]) -> Iterator[Pins]:
        """Every combination of the widths that nodes are pinned to; one of none without any.

        Raises UsageError for an entry that matches no node.
        """
        found = {key: entry.pattern for key, entry in first_matches(self.entries, nodes).items()}
        pinned = [entry for entry in self.entries if entry is not self.swept]
        for each in itertools.product(*(entry.value for entry in pinned)):
            chosen = {entry.pattern: bits for entry, bits in zip(pinned, each, strict=True)}
            yield Pins(
                ",".join(f"{pattern}={bits}" for pattern, bits in chosen.items()),
                {key: chosen[pattern] for key, pattern in found.items() if pattern in chosen},
            )


def read(given: str | Sequence[int]) -> Plan:
    """The plan that `12:32`, `12:32:2`, `12,14,16` or `conv1=18,fc1=12:16,*=20` means.

    It is a policy in which a width may be a range, and a pattern may come again: with other widths
    for the same nodes. Raises UsageError for what is none, and for a range that is empty.
    """
    text = given if isinstance(given, str) else ",".join(map(str, given))
    if text.strip().endswith(policy_text.FILE):
        raise UsageError(f"{text.strip()}: a policy file says one width for each node", _HINT)
    found: dict[str, list[tuple[str, list[int]]]] = {}
    for entry, pattern, widths in policy_text.entries(text, _HINT):
        found.setdefault(pattern, []).append((entry, _range(entry, widths)))
    return Plan(tuple(_joined(pattern, parts) for pattern, parts in found.items()))


def _joined(pattern: str, parts: Sequence[tuple[str, list[int]]]) -> Entry[tuple[int, ...]]:
    widths = {bits for _, part in parts for bits in part}
    return Entry(pattern, tuple(sorted(widths)), ",".join(entry for entry, _ in parts))


def _range(entry: str, text: str) -> list[int]:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise UsageError(f"accumulator '{entry}': '{text}' is no width and no range", _HINT)
    first = int(found[1])
    last, step = int(found[2] or first), int(found[3] or 1)
    if step < 1:
        raise UsageError(f"accumulator '{entry}': steps of {step}", _HINT)
    if last < first:
        raise UsageError(f"accumulator '{entry}': the range is empty", f"Is it {last}:{first}?")
    return list(range(first, last + 1, step))
