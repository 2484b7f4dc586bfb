"""What a report shows of a map of fusions: its nodes and what became of them, and other kernels."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from tracer.analyzers.fusions import FusedKernel, Fusions
from tracer.analyzers.fusions.words import sentences
from tracer.analyzers.timing import RUNTIME
from tracer.analyzers.views import environment
from tracer.analyzers.views.page import Page
from tracer.analyzers.views.report import Content, RunContent, drawings
from tracer.records.columns import ColumnSpec

_TEXT: Mapping[str, Any] = {"dtype": "string", "unit": "", "format": "name"}
_SPECS = (
    ColumnSpec("fate", "fate", 1, "what became of the node: its kernel's role, or why it has none",
               **_TEXT),
    ColumnSpec("in_kernel", "kernel", 2, "kernel that runs the node", **_TEXT),
    ColumnSpec("verdict", "values", 3, "whether the values of node and kernel agree", **_TEXT),
    ColumnSpec("why", "why", 4, "reason of the fate, or of the verdict", **_TEXT),
)  # fmt: skip
_COLUMNS = ("node", "index", "op_type", "module", *(spec.name for spec in _SPECS))


def of_fusions(result: Fusions, page: Page) -> Content:
    """Returns one run, whose rows are the nodes, and the kernels that stand for none."""
    graphs, (graph,) = drawings([result.model])
    rows = pd.DataFrame(_rows(result), columns=list(_COLUMNS)).astype({"index": "Int64"})
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
        environment=environment.told(result.environment),
        notes=result.notes,
    )


def _rows(result: Fusions) -> list[tuple[Any, ...]]:
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
