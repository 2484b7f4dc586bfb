"""What a report shows of a what-if: a run for each variant, with its nodes, widths and scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from tracer.analyzers.overflow import overflow
from tracer.analyzers.views import environment
from tracer.analyzers.views.page import Page
from tracer.analyzers.views.report.content import Accuracy, Content, RunContent, Widths, drawings
from tracer.analyzers.whatif import label, nodes, words
from tracer.records.columns import ColumnSpec
from tracer.records.model_info import ModelInfo
from tracer.records.whatif import Variant, WhatIf

_NAMES = {"guaranteed": "bits_guaranteed", "observed": "bits_observed"}
"""Columns of the table of nodes that the node table has under other names."""

_OBSERVED = ("bits_datatype", "acc_min", "acc_max", "final_min", "final_max", "outputs")
"""Overflow columns that hold for sums in wide accumulators."""


def of_what_if(result: WhatIf, page: Page) -> Content:
    """Returns each variant as a run."""
    graphs, (graph,) = drawings([result.model])
    position = _positions(result.model)
    variants = list(enumerate(result.variants))
    return Content(
        title=result.model.name,
        kind="whatif",
        page=page,
        runs=tuple(_run(result, variant, position, graph) for _, variant in variants),
        graphs=graphs,
        specs=_specs(result),
        accuracy=tuple(_accuracy(result, variant, run) for run, variant in variants),
        environment=environment.told(result.environment),
        notes=page.notes,
    )


def _positions(model: ModelInfo) -> Mapping[str, int]:
    """Returns the positions of the nodes in the model, none where they are not known."""
    keys = () if model.topology is None else model.topology.nodes
    return {node: index for index, node in enumerate(keys)}


def _run(
    result: WhatIf, variant: Variant, position: Mapping[str, int], graph: int | None
) -> RunContent:
    title = label(result, variant)
    rows = _rows(variant, position)
    row_of = {node: row for row, node in enumerate(rows["node"])}
    return RunContent(
        label=title,
        title=f"{result.model.name} · {title}",
        lines=(*words.sentences(result, variant), words.effort(result, variant)),
        rows=rows,
        kernels=range(len(rows)),
        widths=_widths(variant, row_of),
        graph=graph,
    )


def _widths(variant: Variant, row_of: Mapping[str, int]) -> Widths | None:
    """Returns the overflows of the sweep, in which all nodes have the same width."""
    swept = variant.answer.rows
    if not swept:
        return None
    counts = {node: [row.overflows[node] for row in swept] for node in swept[0].overflows}
    return Widths(
        rows=tuple(row_of[node] for node in counts),
        bits=tuple(row.bits for row in swept),
        overflow=tuple(tuple(c.overflow_outputs for c in each) for each in counts.values()),
        persistent=tuple(tuple(c.persistent_outputs for c in each) for each in counts.values()),
        outputs=tuple(each[0].outputs for each in counts.values()),
    )


def _rows(variant: Variant, position: Mapping[str, int]) -> pd.DataFrame:
    """Returns a row for each narrow node, in columns of the node table and those of `_specs`."""
    table = nodes(variant).rename(columns=_NAMES)
    index = pd.array([position.get(node) for node in table["node"]], "Int64")
    observed = overflow(variant.answer.sums)[list(_OBSERVED)]
    table = table.assign(index=index).join(observed, on="node")
    bits = [name for name in table.columns if name.startswith("bits_")]
    return table.astype(dict.fromkeys(bits, "Int64"))


def _specs(result: WhatIf) -> tuple[ColumnSpec, ...]:
    bits: dict[str, Any] = {"dtype": "Int64", "unit": "bits", "format": "width"}
    energy: dict[str, Any] = {"dtype": "float64", "unit": result.energy.unit, "format": "si"}
    return (
        ColumnSpec("bits_uniform", "B", 1, "width in answer B, the same for all nodes", "max",
                   **bits),
        ColumnSpec("bits_each", "C", 1, "width in answer C, one for each node", "max", **bits),
        ColumnSpec("bits_pinned", "pinned", 3, "width that was given", "max", **bits),
        ColumnSpec("energy_uniform", "energy B", 5, "energy per sample in answer B", "sum",
                   **energy),
        ColumnSpec("energy_each", "energy C", 6, "energy per sample in answer C", "sum", **energy),
    )  # fmt: skip


def _accuracy(result: WhatIf, variant: Variant, run: int) -> Accuracy:
    answer, judgement = variant.answer, result.judgement
    marks = {"A": answer.observed}
    if answer.uniform is not None:
        marks["B"] = variant.swept(answer.uniform)[0]
    return Accuracy(
        run=run,
        metric=judgement.metric.rpartition(":")[2],
        unit=judgement.unit,
        bits=tuple(row.bits for row in answer.rows),
        score=tuple(row.score for row in answer.rows),
        energy=tuple(row.energy for row in answer.rows),
        energy_unit=result.energy.unit,
        marks=marks,
    )
