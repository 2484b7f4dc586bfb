"""The page of a map of fusions: the kernels in the order they ran, and the nodes without one."""

from __future__ import annotations

import pandas as pd

from analyzers.fusions import FusedKernel, Fusions
from analyzers.fusions.words import sentences
from analyzers.views._columns import count
from analyzers.views._page import Page, Table, figure, name

_KERNELS = (
    name("kernel", "kernel", 1),
    name("op", "op_type", 10),
    figure("calls", "calls", count, 4),
    figure("nodes", "count", count, 2),
    name("stands for", "members", 0),
    name("values", "verdict", 3),
    name("why", "why", 5),
)
_NODES = (name("node", "node", 0), name("op", "op_type", 1), name("fate", "fate", 2),
          name("why", "why", 3))  # fmt: skip


def page(found: Fusions) -> Page:
    """Everything there is to say."""
    title = f"{found.model.name} · onnxruntime, optimization {found.settings['optimization']}"
    tables = [Table(title, _KERNELS, _kernels(found), head=sentences(found))]
    lost = _lost(found)
    if len(lost):
        tables.append(Table("Nodes without a kernel", _NODES, lost))
    return Page(tuple(tables), found.notes, found.environment.summary)


def _kernels(found: Fusions) -> pd.DataFrame:
    several = any(row.calls != 1 for row in found.kernels)
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
            for row in found.kernels
        ]
    )


def _why(row: FusedKernel) -> str:
    """The reason of a verdict, and what names say where values overrule them."""
    named = f"its names say {' + '.join(row.named) or 'no node'}" if row.named is not None else ""
    return "; ".join(filter(None, (row.why if row.nodes else "", named)))


def _lost(found: Fusions) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"node": row.node, "op_type": row.op_type, "fate": row.fate, "why": row.why}
            for row in found.nodes
            if not row.kernels
        ]
    )
