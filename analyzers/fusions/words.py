"""Summarise a map of kernels in a sentence or two."""

from collections import Counter
from collections.abc import Iterator

from analyzers.fusions import GROUP, OVERHEAD, PART, Fusions
from analyzers.fusions.confirmation import CONFIRMED, CONTRADICTED, TIED, UNKNOWN
from analyzers.fusions.fates import FOLDED, IDLE, REMOVED, SERVICES
from analyzers.views.text import plural


def sentences(result: Fusions) -> tuple[str, ...]:
    """Returns counts of nodes and kernels, and of kernels whose names are misleading.

    The first sentence is about kernels and groups of nodes, the second about nodes without a kernel
    and kernels without a node.
    """
    kernels = f"{plural(len(result.nodes), 'node')} became {plural(len(result.kernels), 'kernel')}"
    return (
        "; ".join((kernels, _groups(result), *_expanded(result))),
        "; ".join((*_lost(result), *_overhead(result))),
        *_misled(result),
    )


def _groups(result: Fusions) -> str:
    verdicts = {row.nodes: row.verdict for row in result.kernels if row.role == GROUP}
    groups = plural(len(verdicts), "group")
    if not verdicts:
        return "no groups"
    if not result.inputs:
        return f"{groups}, by names alone"
    counts = Counter(verdicts.values())
    on = f"by values on {plural(result.inputs, 'input')}"
    if counts[CONFIRMED] == len(verdicts):
        return f"{groups}, {'all ' if len(verdicts) > 1 else ''}confirmed {on}"
    rest = [f"{counts[w]} {w}" for w in (TIED, CONTRADICTED, UNKNOWN) if counts[w]]
    return f"{groups}, {counts[CONFIRMED]} confirmed {on}, {', '.join(rest)}"


def _expanded(result: Fusions) -> Iterator[str]:
    parts = [row for row in result.kernels if row.role == PART]
    if parts:
        nodes = len({row.nodes for row in parts})
        yield f"{plural(nodes, 'node')} {'runs' if nodes == 1 else 'run'} as {len(parts)} kernels"


def _lost(result: Fusions) -> Iterator[str]:
    counts = Counter(row.fate for row in result.nodes)
    yield f"{plural(counts[FOLDED], 'node')} folded, {counts[REMOVED]} removed"
    if counts[IDLE]:
        yield f"{counts[IDLE]} not run"


def _overhead(result: Fusions) -> Iterator[str]:
    helpers = [row for row in result.kernels if row.role == OVERHEAD]
    counts = Counter(SERVICES.get(row.op_type, "helper") for row in helpers)
    yield from (plural(count, kind) for kind, count in counts.items())


def _misled(result: Fusions) -> Iterator[str]:
    misled = [row for row in result.kernels if row.named is not None]
    if misled:
        yield f"names alone would map {plural(len(misled), 'kernel')} to other nodes"
