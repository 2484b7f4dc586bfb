"""The views of a map of fusions: sentences, the kernels in the order they ran, and the nodes."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from tracer.analyzers.fusions import (
    FOLDED,
    GROUP,
    IDLE,
    OVERHEAD,
    PART,
    REMOVED,
    SERVICES,
    FusedKernel,
    Fusions,
)
from tracer.analyzers.fusions.confirmation import CONFIRMED, CONTRADICTED, TIED, UNKNOWN
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.timing import RUNTIME
from tracer.analyzers.views import environment
from tracer.analyzers.views.file_formats.json import fields
from tracer.analyzers.views.page import Page, Table, name_column, number_column
from tracer.analyzers.views.report import Content, RunContent, drawings
from tracer.analyzers.views.text import count, plural
from tracer.records.columns import ColumnSpec

_KERNELS = (
    name_column("kernel", "kernel", 1),
    name_column("op", "op_type", 10),
    number_column("calls", "calls", count, 4),
    number_column("nodes", "count", count, 2),
    name_column("contains", "members", 0),
    name_column("values", "verdict", 3),
    name_column("why", "why", 5),
)
_NODES = (
    name_column("node", "node", 0),
    name_column("op", "op_type", 1),
    name_column("fate", "fate", 2),
    name_column("why", "why", 3),
)
_COLUMNS = ["kernel", "kernel_op", "role", "node", "op_type", "module", "values", "why"]


def page(result: Fusions, options: ViewOptions) -> Page:
    """The kernels, and the nodes without a kernel."""
    title = f"{result.model.name} · onnxruntime, optimization {result.settings['optimization']}"
    tables = [Table(title, _KERNELS, _kernels(result), head=sentences(result))]
    lost = [row for row in result.nodes if not row.kernels]
    if lost:
        tables.append(Table("Nodes without a kernel", _NODES, pd.DataFrame(lost)))
    return Page(tuple(tables), result.notes, result.environment.summary)


def table(result: Fusions, options: ViewOptions) -> pd.DataFrame:
    """A row for each node in each of its kernels, then for other kernels and for other nodes.

    `role` is the role of the kernel, or the fate of a node without a kernel.
    """
    return pd.DataFrame(_rows(result), columns=_COLUMNS)


def document(result: Fusions, options: ViewOptions) -> dict[str, Any]:
    """`summary`, then the fields of `Fusions` (docs/fusions.md)."""
    names = ("model", "environment", "settings", "inputs", "kernels", "nodes", "notes")
    return {"summary": sentences(result), **fields(result, *names)}


def report(result: Fusions, options: ViewOptions) -> Content:
    """The nodes, and what became of each."""
    return of_fusions(result, page(result, options))


def _kernels(result: Fusions) -> pd.DataFrame:
    several = any(row.calls != 1 for row in result.kernels)
    return pd.DataFrame(
        [
            {
                "kernel": row.kernel,
                "op_type": row.op_type,
                "calls": row.calls if several else None,
                "count": len(row.nodes) or None,
                "members": " + ".join(row.nodes) or f"({row.why})",
                "verdict": row.verdict,
                "why": _why(row) or None,
            }
            for row in result.kernels
        ]
    )


def _why(row: FusedKernel) -> str:
    named = f"its names say {' + '.join(row.named) or 'no node'}" if row.named is not None else ""
    return "; ".join(filter(None, (row.why if row.nodes else "", named)))


def _rows(result: Fusions) -> Iterator[tuple[Any, ...]]:
    nodes = {row.node: row for row in result.nodes}
    for kernel in result.kernels:
        about = (kernel.kernel, kernel.op_type, kernel.role)
        for key in kernel.nodes:
            node = nodes[key]
            yield *about, key, node.op_type, node.module, kernel.verdict, kernel.why or None
        if not kernel.nodes:
            yield *about, None, None, None, None, kernel.why
    for node in result.nodes:
        if not node.kernels:
            yield None, None, node.fate, node.node, node.op_type, node.module, None, node.why


def sentences(result: Fusions) -> tuple[str, ...]:
    """Returns counts of nodes and kernels, and of kernels whose names are misleading.

    The first sentence is about kernels and groups of nodes, the second about verdicts, the third
    about nodes without a kernel and kernels without a node.
    """
    kernels = f"{plural(len(result.nodes), 'node')} became {plural(len(result.kernels), 'kernel')}"
    count = len({row.nodes for row in result.kernels if row.role == GROUP})
    groups = plural(count, "group") if count else "no groups"
    return (
        "; ".join((kernels, groups, *_expanded(result))),
        _verdicts(result),
        "; ".join((*_fates(result), *_overhead(result))),
        *_misled(result),
    )


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


def _fates(result: Fusions) -> Iterator[str]:
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


_TEXT: Mapping[str, Any] = {"dtype": "string", "unit": "", "format": "name"}
_SPECS = (
    ColumnSpec("fate", "fate", 1, "what became of the node: its kernel's role, or why it has none",
               **_TEXT),
    ColumnSpec("in_kernel", "kernel", 2, "kernel that runs the node", **_TEXT),
    ColumnSpec("verdict", "values", 3, "whether the values of node and kernel agree", **_TEXT),
    ColumnSpec("why", "why", 4, "reason of the fate, or of the verdict", **_TEXT),
)  # fmt: skip
_NODE_COLUMNS = ("node", "index", "op_type", "module", *(spec.name for spec in _SPECS))


def of_fusions(result: Fusions, page: Page) -> Content:
    """Returns one run, whose rows are the nodes, and the kernels that stand for none."""
    graphs, (graph,) = drawings([result.model])
    rows = pd.DataFrame(_node_rows(result), columns=list(_NODE_COLUMNS)).astype({"index": "Int64"})
    title = page.tables[0].title
    run = RunContent(
        label=result.model.name,
        title=title,
        lines=sentences(result),
        rows=rows,
        kernels=pd.factorize(rows["in_kernel"].fillna(rows["node"]))[0].tolist(),
        graph=graph,
    )
    return Content(
        title=title,
        kind="fusions",
        page=page,
        runs=(run,),
        graphs=graphs,
        specs=_SPECS,
        environment=environment.machine_fields(result.environment),
        notes=result.notes,
    )


def _node_rows(result: Fusions) -> list[tuple[Any, ...]]:
    of_node: dict[str, FusedKernel] = {}
    for kernel in result.kernels:
        for node in kernel.nodes:
            of_node.setdefault(node, kernel)
    rows: list[tuple[Any, ...]] = []
    for index, each in enumerate(result.nodes):
        ran_in = of_node.get(each.node)
        verdict, why = (ran_in.verdict, ran_in.why) if ran_in else (None, each.why)
        name = "; ".join(each.kernels) or None
        rows.append((each.node, index, each.op_type, each.module, each.fate, name, verdict, why))
    for kernel in result.kernels:
        if not kernel.nodes:
            name = f"{RUNTIME}:{kernel.kernel}"
            rows.append((name, None, kernel.op_type, None, kernel.role, None, None, kernel.why))
    return rows
