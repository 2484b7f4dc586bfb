"""The view of a GraphDiff: the changes, a row for each."""

from dataclasses import asdict
from typing import Any

import pandas as pd

from tracer.analyzers.graph_diff import PAIRED, GraphDiff, NodeChange
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.page import Page, Table, name_spec, record_columns, record_table
from tracer.analyzers.views.report import Content, RunContent, drawings
from tracer.analyzers.views.text import duration, plural
from tracer.text import agree

SAME, CONSTANT = "same", "constant"
_TIMES = ["before_us", "after_us"]
_SPECS = (
    name_spec("change", "change", 1, "what became of the node; constant: no input reaches it"),
    name_spec("partner", "in the other", 2, "nodes of the other graph in its place"),
    name_spec("what", "what", 4, "what changed"),
)


def page(result: GraphDiff, options: ViewOptions) -> Page:
    """A sentence about nodes and tensors, and the changes."""
    first, second = result.models
    rows = record_table(NodeChange, result.changes)
    for side in ("before", "after"):  # the first of some nodes, and the number of others
        rows[side] = [
            f"{keys[0]} +{len(keys) - 1}" if len(keys) > 1 else "".join(keys) for keys in rows[side]
        ]
    columns, title = record_columns(NodeChange), f"{first.name} → {second.name}"
    columns = columns if result.times else columns[: -len(_TIMES)]
    head = sentences(result)
    return Page((Table(title, columns, rows, is_long=True, head=head),), result.notes)


def sentences(result: GraphDiff) -> tuple[str, ...]:
    """Returns what became of nodes, tensors and times."""
    before, after = result.nodes
    both = plural(after, "node") if before == after else f"{before:,} and {plural(after, 'node')}"
    kinds = [
        f"{number} {kind}"
        for kind in ("changed", "became", "new", "gone")
        if (number := sum(each.kind == kind and each.has_nodes for each in result.changes))
    ]
    others = sum(each.reading == PAIRED for each in result.tensors)
    rest = f", {others:,} of them with other values" if others else ""
    told = [
        f"{len(result.same):,} of {both} {agree(len(result.same), 'is', 'are')} the same; "
        f"{', '.join(kinds) or 'nothing changed'}",
        f"{plural(len(result.tensors), 'tensor')} with a partner in the first graph{rest}",
    ]
    if result.times:
        first, second = (duration(sum(each.values())) for each in result.times)
        told.append(f"{first} in nodes of the first graph, {second} of the second")
    return tuple(told)


def table(result: GraphDiff, options: ViewOptions) -> pd.DataFrame:
    """`kind`, `before`, `after`, `what` and, with traces, times: a row for each change."""
    rows = record_table(NodeChange, result.changes[: options.top or None])
    rows = rows if result.times else rows.drop(columns=_TIMES)
    return rows.assign(**{side: rows[side].map(" + ".join) for side in ("before", "after")})


def document(result: GraphDiff, options: ViewOptions) -> dict[str, Any]:
    """The fields of `GraphDiff`."""
    return asdict(result)


def report(result: GraphDiff, options: ViewOptions) -> Content:
    """Both graphs, A and B, whose nodes are coloured by what became of them."""
    shown = page(result, options)
    graphs, drawn = drawings(result.models)
    runs = []
    for side, model in enumerate(result.models):
        of_node = {pair[side]: (SAME, pair[1 - side], "") for pair in result.same}
        for change in result.changes:
            sides = change.before, change.after
            told = change.kind, " + ".join(sides[1 - side]), change.what
            of_node |= dict.fromkeys(sides[side], told)
        topology = model.topology
        rows = pd.DataFrame(
            [
                (key, index, op, module, *of_node.get(key, (CONSTANT, "", "")))
                for index, (key, op, module) in enumerate(
                    zip(topology.nodes, topology.op_types, topology.modules, strict=True)
                    if topology is not None else ()
                )
            ],
            columns=["node", "index", "op_type", "module", *(spec.name for spec in _SPECS)],
        ).astype({"index": "Int64"})  # fmt: skip
        if result.times:
            rows["time_us"] = rows["node"].map(result.times[side])
        runs.append(
            RunContent(
                label=model.name, title=shown.tables[0].title, lines=sentences(result), rows=rows,
                letter="AB"[side], graph=drawn[side],
            )
        )  # fmt: skip
    return Content(
        title=shown.tables[0].title, kind="diff", page=shown, runs=tuple(runs), graphs=graphs,
        specs=_SPECS, first={"view": "graph", "color": "change"},
    )  # fmt: skip
