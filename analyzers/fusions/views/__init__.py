"""The view of a map of fusions: the kernels in the order they ran, and the nodes without one."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from tracer.analyzers.fusions import FusedKernel, Fusions
from tracer.analyzers.fusions.views.nodes import of_fusions
from tracer.analyzers.fusions.words import sentences
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.file_formats.json import fields
from tracer.analyzers.views.page import Page, Table, name_column, number_column
from tracer.analyzers.views.report import Content
from tracer.analyzers.views.text import count

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
