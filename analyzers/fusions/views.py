"""The views of a map of fusions: sentences, the kernels in the order they ran, and the nodes."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pandas as pd

from tracer.analyzers import fusions
from tracer.analyzers.fusions.confirmation import CONFIRMED, CONTRADICTED, TIED, UNKNOWN, WRONG
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.timing import RUNTIME
from tracer.analyzers.views import environment
from tracer.analyzers.views.file_formats.json import fields
from tracer.analyzers.views.page import Page, Table, number_column, record_columns, record_table
from tracer.analyzers.views.report import Content, RunContent, drawings
from tracer.analyzers.views.text import count, plural
from tracer.records.columns import ColumnSpec

_NAMES = ["kernel", "kernel_op", "role", "node", "op_type", "module", "values", "why"]

_TEXT: Mapping[str, Any] = {"dtype": "string", "unit": "", "format": "name"}
_SPECS = (
    ColumnSpec("fate", "fate", 1, "what became of the node: its kernel's role, or why it has none",
               **_TEXT),
    ColumnSpec("in_kernel", "kernel", 2, "kernel that runs the node", **_TEXT),
    ColumnSpec("verdict", "values", 3, "whether the values of node and kernel agree", **_TEXT),
    ColumnSpec("why", "why", 4, "reason of the fate, or of the verdict", **_TEXT),
)  # fmt: skip


def page(result: fusions.Fusions, options: ViewOptions) -> Page:
    """The kernels, and the nodes without a kernel."""
    title = f"{result.model.name} · onnxruntime, optimization {result.settings['optimization']}"
    *about, contains, verdict, why = record_columns(fusions.FusedKernel)
    columns = (*about, number_column("nodes", "count", count, 2), contains, verdict, why)
    misleading = [
        "" if row.named is None else f"its names say {' + '.join(row.named) or 'no node'}"
        for row in result.kernels
    ]
    rows = record_table(fusions.FusedKernel, result.kernels).assign(
        nodes=[" + ".join(row.nodes) or f"({row.why})" for row in result.kernels],
        why=[
            "; ".join(filter(None, (row.why if row.nodes else "", name)))
            for row, name in zip(result.kernels, misleading, strict=True)
        ],
    )
    rows["count"] = [len(row.nodes) or None for row in result.kernels]
    if all(row.calls == 1 for row in result.kernels):
        rows = rows.drop(columns="calls")
    tables = [Table(title, columns, rows, head=sentences(result), is_long=True)]
    lost = [row for row in result.nodes if not row.kernels]
    if lost:
        told, nodes = record_columns(fusions.NodeFate), record_table(fusions.NodeFate, lost)
        tables.append(Table("Nodes without a kernel", told, nodes, is_long=True))
    return Page(tuple(tables), result.notes, result.environment.summary)


def table(result: fusions.Fusions, options: ViewOptions) -> pd.DataFrame:
    """A row for each node in each of its kernels, then for other kernels and for other nodes.

    `role` is the role of the kernel, or the fate of a node without a kernel.
    """
    nodes = {row.node: row for row in result.nodes}
    rows: list[tuple[Any, ...]] = []
    for kernel in result.kernels:
        about = (kernel.kernel, kernel.op_type, kernel.role)
        for node in map(nodes.__getitem__, kernel.nodes):
            own = (node.node, node.op_type, node.module, kernel.verdict, kernel.why or None)
            rows.append((*about, *own))
        if not kernel.nodes:
            rows.append((*about, None, None, None, None, kernel.why))
    rows += [
        (None, None, node.fate, node.node, node.op_type, node.module, None, node.why)
        for node in result.nodes
        if not node.kernels
    ]
    return pd.DataFrame(rows, columns=_NAMES)


def document(result: fusions.Fusions, options: ViewOptions) -> dict[str, Any]:
    """`summary`, then the fields of `Fusions` (docs/fusions.md)."""
    names = ("model", "environment", "settings", "inputs", "kernels", "nodes", "notes")
    return {"summary": sentences(result), **fields(result, *names)}


def report(result: fusions.Fusions, options: ViewOptions) -> Content:
    """One run, whose rows are the nodes, and the kernels that stand for none."""
    shown = page(result, options)
    graphs, (graph,) = drawings([result.model])
    of_node: dict[str, fusions.FusedKernel] = {}
    for kernel in result.kernels:
        for node in kernel.nodes:
            of_node.setdefault(node, kernel)
    cells: list[tuple[Any, ...]] = []
    for index, each in enumerate(result.nodes):
        ran_in = of_node.get(each.node)
        verdict, why = (ran_in.verdict, ran_in.why) if ran_in else (None, each.why)
        name = "; ".join(each.kernels) or None
        cells.append((each.node, index, each.op_type, each.module, each.fate, name, verdict, why))
    cells += [
        (f"{RUNTIME}:{k.kernel}", None, k.op_type, None, k.role, None, None, k.why)
        for k in result.kernels
        if not k.nodes
    ]
    names = ["node", "index", "op_type", "module", *(spec.name for spec in _SPECS)]
    rows = pd.DataFrame(cells, columns=names).astype({"index": "Int64"})
    run = RunContent(
        label=result.model.name,
        title=shown.tables[0].title,
        lines=sentences(result),
        rows=rows,
        kernels=pd.factorize(rows["in_kernel"].fillna(rows["node"]))[0].tolist(),
        graph=graph,
    )
    return Content(
        title=run.title,
        kind="fusions",
        page=shown,
        runs=(run,),
        graphs=graphs,
        specs=_SPECS,
        environment=environment.machine_fields(result.environment),
    )


def sentences(result: fusions.Fusions) -> tuple[str, ...]:
    """Returns counts of nodes and kernels, and of kernels whose names are misleading.

    The first sentence is about kernels and groups of nodes, the second about verdicts, the third
    about nodes without a kernel and kernels without a node.
    """
    of_role: dict[str, list[fusions.FusedKernel]] = {}
    for row in result.kernels:
        of_role.setdefault(row.role, []).append(row)
    groups, parts = (
        len({row.nodes for row in of_role.get(role, ())}) for role in (fusions.GROUP, fusions.PART)
    )
    became = [
        f"{plural(len(result.nodes), 'node')} became {plural(len(result.kernels), 'kernel')}",
        plural(groups, "group") if groups else "no groups",
    ]
    if parts:
        verb = "runs" if parts == 1 else "run"
        became.append(f"{plural(parts, 'node')} {verb} as {len(of_role[fusions.PART])} kernels")
    fates = Counter(row.fate for row in result.nodes)
    lost = [f"{plural(fates[fusions.FOLDED], 'node')} folded, {fates[fusions.REMOVED]} removed"]
    lost += [f"{fates[fusions.IDLE]} not run"] if fates[fusions.IDLE] else []
    kinds = Counter(
        fusions.SERVICES.get(row.op_type, "helper") for row in of_role.get(fusions.OVERHEAD, ())
    )
    lost += [plural(count, kind) for kind, count in kinds.items()]
    misled = sum(row.named is not None for row in result.kernels)
    misleading = f"names alone would map {plural(misled, 'kernel')} to other nodes"
    return (
        "; ".join(became),
        _verdicts(result),
        "; ".join(lost),
        *([misleading] if misled else ()),
    )


def _verdicts(result: fusions.Fusions) -> str:
    """Counts the verdicts of all kernels with nodes, whether they fuse nodes or not."""
    verdicts = Counter(row.verdict for row in result.kernels if row.nodes)
    total = verdicts.total()
    if not result.inputs:
        return "matched by names alone"
    on = f"by values on {plural(result.inputs, 'input')}"
    if verdicts[CONFIRMED] == total:
        return f"all {plural(total, 'kernel')} with nodes confirmed {on}"
    rest = [f"{verdicts[w]:,} {w}" for w in (WRONG, CONTRADICTED, TIED, UNKNOWN) if verdicts[w]]
    of = f"{verdicts[CONFIRMED]:,} of {plural(total, 'kernel')} with nodes confirmed {on}"
    return ", ".join((of, *rest))
