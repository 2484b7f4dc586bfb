"""The widths to try for each node: a policy in which a width may be a range or a list."""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.policy import (
    POLICY_FILE,
    Entry,
    Policy,
    first_matches,
    split_entries,
)
from tracer.errors import UsageError
from tracer.graph.model import Node
from tracer.records.whatif import Pins

_RANGE = re.compile(r"([0-9]{1,4})(?::([0-9]{1,4})(?::([0-9]{1,4}))?)?")
_HINT = (
    "Widths are a range such as 12:32 (or 12:32:2), or a list such as 12,14,16; "
    "for some nodes, 'conv1=18,*=12:32'."
)


@dataclass(frozen=True, slots=True)
class WidthPlan:
    """Widths by pattern, in ascending order; the first entry that matches a node applies."""

    entries: tuple[Entry[tuple[int, ...]], ...]

    @property
    def swept(self) -> Entry[tuple[int, ...]]:
        """The entry that is swept: the last with several widths, else the last. Others are pins."""
        several = [entry for entry in self.entries if len(entry.value) > 1]
        return (several or self.entries)[-1]

    @property
    def ends(self) -> tuple[int, int]:
        """The narrowest and the widest width of all entries."""
        widths = [bits for entry in self.entries for bits in entry.value]
        return min(widths), max(widths)

    def __str__(self) -> str:
        return ",".join(entry.text for entry in self.entries)

    def policy(self, accumulator: Accumulator) -> Policy:
        """Returns `accumulator` for the nodes that the plan names, at their widest width."""
        return Policy(
            tuple(
                Entry(entry.pattern, replace(accumulator, bits=entry.value[-1]), entry.text)
                for entry in self.entries
            )
        )

    def pins(self, nodes: Sequence[Node]) -> Iterator[Pins]:
        """Yields every combination of pinned widths; one without pins where no entry is one.

        Raises UsageError for an entry that matches no node.
        """
        patterns = {key: entry.pattern for key, entry in first_matches(self.entries, nodes).items()}
        pinned = [entry for entry in self.entries if entry is not self.swept]
        for combination in itertools.product(*(entry.value for entry in pinned)):
            bits = {entry.pattern: b for entry, b in zip(pinned, combination, strict=True)}
            yield Pins(
                ",".join(f"{pattern}={width}" for pattern, width in bits.items()),
                {key: bits[pattern] for key, pattern in patterns.items() if pattern in bits},
            )


def read(widths: str | Sequence[int]) -> WidthPlan:
    """Parses `12:32`, `12:32:2`, `12,14,16` or `conv1=18,fc1=12:16,*=20`.

    A pattern may occur several times, and then has the widths of all its entries. Raises UsageError
    for other text, and for an empty range.
    """
    text = widths if isinstance(widths, str) else ",".join(map(str, widths))
    if text.strip().endswith(POLICY_FILE):
        raise UsageError(f"{text.strip()}: a policy file has one width for each node", _HINT)
    parts: dict[str, list[tuple[str, list[int]]]] = {}
    for entry, pattern, range_text in split_entries(text, _HINT):
        parts.setdefault(pattern, []).append((entry, _range(entry, range_text)))
    merged = []
    for pattern, entries in parts.items():
        values = {bits for _, part in entries for bits in part}
        texts = ",".join(entry for entry, _ in entries)
        merged.append(Entry(pattern, tuple(sorted(values)), texts))
    return WidthPlan(tuple(merged))


def _range(entry: str, text: str) -> list[int]:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise UsageError(f"accumulator '{entry}': '{text}' is no width and no range", _HINT)
    first = int(match[1])
    last, step = int(match[2] or first), int(match[3] or 1)
    if step < 1:
        raise UsageError(f"accumulator '{entry}': steps of {step}", _HINT)
    if last < first:
        raise UsageError(f"accumulator '{entry}': the range is empty", f"Is it {last}:{first}?")
    return list(range(first, last + 1, step))
