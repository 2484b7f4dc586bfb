"""Summarise a map of kernels in a sentence or two."""

from collections import Counter
from collections.abc import Iterator

from tracer.analyzers.fusions import GROUP, OVERHEAD, PART, Fusions
from tracer.analyzers.fusions.confirmation import CONFIRMED, CONTRADICTED, TIED, UNKNOWN
from tracer.analyzers.fusions.fates import FOLDED, IDLE, REMOVED, SERVICES
from tracer.analyzers.views.text import plural


def sentences(result: Fusions) -> tuple[str, ...]:
    """Returns counts of nodes and kernels, and of kernels whose names are misleading.

    The first sentence is about kernels and groups of nodes, the second about verdicts, the third
    about nodes without a kernel and kernels without a node.
    """
    kernels = f"{plural(len(result.nodes), 'node')} became {plural(len(result.kernels), 'kernel')}"
    return (
        "; ".join((kernels, _groups(result), *_expanded(result))),
        _verdicts(result),
        "; ".join((*_lost(result), *_overhead(result))),
        *_misled(result),
    )


def _groups(result: Fusions) -> str:
    groups = len({row.nodes for row in result.kernels if row.role == GROUP})
    return plural(groups, "group") if groups else "no groups"


def _verdicts(result: Fusions) -> str:
    """Counts the verdicts of all kernels with nodes, whether they fuse nodes or not."""
    verdicts = Counter(row.verdict for row in result.kernels if row.nodes)
    total = verdicts.total()
    if not result.inputs:
        return "matched by names alone"
    on = f"by values on {plural(result.inputs, 'input')}"
    if verdicts[CONFIRMED] == total:
        return f"all {plural(total, 'kernel')} with nodes confirmed {on}"
    rest = [f"{verdicts[w]:,} {w}" for w in (CONTRADICTED, TIED, UNKNOWN) if verdicts[w]]
    of = f"{verdicts[CONFIRMED]:,} of {plural(total, 'kernel')} with nodes confirmed {on}"
    return ", ".join((of, *rest))


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
