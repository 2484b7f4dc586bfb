"""The view of a GraphDiff: the changes, a row for each."""

from dataclasses import asdict
from typing import Any

import pandas as pd

from tracer.analyzers.graph_diff import PAIRED, GraphDiff, NodeChange
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.page import Page, Table, record_columns, record_table
from tracer.analyzers.views.text import plural


def page(result: GraphDiff, options: ViewOptions) -> Page:
    """A sentence about nodes and tensors, and the changes."""
    first, second = result.models
    rows = record_table(NodeChange, result.changes)
    rows = rows.assign(**{side: rows[side].map(_brief) for side in ("before", "after")})
    head = (_sentence(result), _tensors(result))
    title = f"{first.name} → {second.name}"
    return Page(
        (Table(title, record_columns(NodeChange), rows, is_long=True, head=head),), result.notes
    )


def _brief(keys: tuple[str, ...]) -> str:
    """Returns the first of some nodes, and the number of others."""
    return f"{keys[0]} +{len(keys) - 1}" if len(keys) > 1 else "".join(keys)


def _sentence(result: GraphDiff) -> str:
    before, after = result.nodes
    both = f"{before:,}" if before == after else f"{before:,} and {after:,}"
    counted = [
        f"{number} {kind}"
        for kind in ("changed", "became", "new", "gone")
        if (number := sum(change.kind == kind for change in result.changes))
    ]
    found = ", ".join(counted) or "nothing changed"
    return f"{len(result.same):,} of {both} nodes are the same; {found}"


def _tensors(result: GraphDiff) -> str:
    others = sum(each.reading == PAIRED for each in result.tensors)
    rest = f", {others:,} of them with other values" if others else ""
    return f"{plural(len(result.tensors), 'tensor')} have a partner in the first graph{rest}"


def table(result: GraphDiff, options: ViewOptions) -> pd.DataFrame:
    """`kind`, `before`, `after` and `what`, a row for each change."""
    rows = record_table(NodeChange, result.changes[: options.top or None])
    return rows.assign(**{side: rows[side].map(" + ".join) for side in ("before", "after")})


def document(result: GraphDiff, options: ViewOptions) -> dict[str, Any]:
    """The fields of `GraphDiff`."""
    return asdict(result)
