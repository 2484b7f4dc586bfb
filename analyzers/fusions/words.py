"""A map of kernels in a sentence or two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from analyzers.fusions import GROUP, OVERHEAD, PART, Fusions
from analyzers.fusions.confirmation import CONFIRMED, CONTRADICTED, TIED, UNKNOWN
from analyzers.fusions.fates import FOLDED, IDLE, REMOVED
from analyzers.fusions.services import KINDS
from analyzers.views.text import plural


def sentences(found: Fusions) -> tuple[str, ...]:
    """What became of the model, what is confirmed of it, and where names would have misled."""
    parts = [
        f"{plural(len(found.nodes), 'node')} became {plural(len(found.kernels), 'kernel')}",
        _groups(found),
        *_expanded(found),
        *_lost(found),
        *_overhead(found),
    ]
    return ("; ".join(parts), *_misled(found))


def _groups(found: Fusions) -> str:
    verdicts = {row.nodes: row.verdict for row in found.kernels if row.role == GROUP}
    told = plural(len(verdicts), "group")
    if not verdicts:
        return "no groups"
    if not found.inputs:
        return f"{told}, by names alone"
    counts = Counter(verdicts.values())
    on = f"by values on {plural(found.inputs, 'input')}"
    if counts[CONFIRMED] == len(verdicts):
        return f"{told}, {'all ' if len(verdicts) > 1 else ''}confirmed {on}"
    rest = [f"{counts[w]} {w}" for w in (TIED, CONTRADICTED, UNKNOWN) if counts[w]]
    return f"{told}, {counts[CONFIRMED]} confirmed {on}, {', '.join(rest)}"


def _expanded(found: Fusions) -> Iterator[str]:
    parts = [row for row in found.kernels if row.role == PART]
    if parts:
        nodes = len({row.nodes for row in parts})
        yield f"{plural(nodes, 'node')} {'runs' if nodes == 1 else 'run'} as {len(parts)} kernels"


def _lost(found: Fusions) -> Iterator[str]:
    counts = Counter(row.fate for row in found.nodes)
    yield f"{plural(counts[FOLDED], 'node')} folded, {counts[REMOVED]} removed"
    if counts[IDLE]:
        yield f"{counts[IDLE]} not run"


def _overhead(found: Fusions) -> Iterator[str]:
    counts = Counter(KINDS.get(r.op_type, "helper") for r in found.kernels if r.role == OVERHEAD)
    yield from (plural(count, kind) for kind, count in counts.items())


def _misled(found: Fusions) -> Iterator[str]:
    misled = [row for row in found.kernels if row.named is not None]
    if misled:
        yield f"names alone would have mapped {plural(len(misled), 'kernel')} otherwise"
