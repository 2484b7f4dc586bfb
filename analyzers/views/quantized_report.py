"""What a report shows of a quantisation: the nodes of the float model, and the error of each."""

import math

import pandas as pd

from tracer.analyzers.views.page import Page
from tracer.analyzers.views.report.content import Content, RunContent
from tracer.analyzers.views.report.graphs import drawings
from tracer.records.columns import ColumnSpec
from tracer.records.quantized import Quantized

_SPECS = (
    ColumnSpec("added_noise", "added noise", 1, "noise share of the output less that of the input",
               "max", dtype="float64", unit="", format="difference"),
    ColumnSpec("sqnr_db", "SQNR dB", 2, "signal-to-quantisation-noise ratio of the output",
               "min", dtype="float64", unit="dB", format="difference"),
    ColumnSpec("worst_channel_db", "worst channel dB", 3, "SQNR of the noisiest channel",
               "min", dtype="float64", unit="dB", format="difference"),
    ColumnSpec("worst_channel", "worst channel", 4, "number of the noisiest channel",
               dtype="Int64", unit="", format="count"),
    ColumnSpec("channel_axis", "axis", 5, "axis of the channels",
               dtype="Int64", unit="", format="count"),
)  # fmt: skip


def of_quantized(result: Quantized, page: Page, layers: pd.DataFrame) -> Content:
    """Returns one run, whose rows are the nodes of the float model with the errors of `layers`.

    A node that quantisation folds into another one, or leaves out, has none.
    """
    graphs, (graph,) = drawings([result.model])
    rows = _nodes(result, layers)
    title = page.tables[0].title
    run = RunContent(
        label=result.model.name,
        title=title,
        lines=page.tables[0].head,
        rows=rows,
        kernels=list(range(len(rows))),
        graph=graph,
    )
    return Content(
        title=title,
        kind="quantize",
        page=page,
        runs=(run,),
        graphs=graphs,
        specs=_SPECS,
        notes=result.notes,
    )


def _nodes(result: Quantized, layers: pd.DataFrame) -> pd.DataFrame:
    """Returns a row for each node of the model; of layers alone where its nodes are not known."""
    errors = layers[["node", *(spec.name for spec in _SPECS)]].replace([math.inf, -math.inf], None)
    topology = result.model.topology
    if topology is None:
        return layers[["node", "op_type", "module"]].merge(errors, on="node")
    columns = {"node": topology.nodes, "op_type": topology.op_types, "module": topology.modules}
    nodes = pd.DataFrame(columns).assign(index=range(len(topology.nodes)))
    nodes = nodes.astype({"index": "Int64"}).merge(errors, on="node", how="left")
    return nodes.astype({spec.name: spec.dtype for spec in _SPECS})
