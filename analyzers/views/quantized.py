"""The view of a Quantized: accuracy before and after, and the layers with the largest errors."""

import math
from typing import Any

import pandas as pd

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views import page as pages
from tracer.analyzers.views.file_formats.json import fields
from tracer.analyzers.views.report import Content, RunContent, drawings
from tracer.analyzers.views.text import decibels, score, short_names
from tracer.graph import stored_weights
from tracer.records.columns import ColumnSpec
from tracer.records.transformed import LayerError, Quantized
from tracer.text import plural

_SPECS = (
    ColumnSpec("added_noise", "added noise", 1, "noise share of the output less that of the input",
               "max", dtype="float64", unit="", format="noise"),
    ColumnSpec("sqnr_db", "SQNR dB", 2, "signal-to-quantisation-noise ratio of the output",
               "min", dtype="float64", unit="dB", format="decibels"),
    ColumnSpec("worst_channel_db", "worst channel dB", 3, "SQNR of the noisiest channel",
               "min", dtype="float64", unit="dB", format="decibels"),
    ColumnSpec("worst_channel", "worst channel", 4, "number of the noisiest channel",
               dtype="Int64", unit="", format="count"),
    ColumnSpec("channel_axis", "axis", 5, "axis of the channels",
               dtype="Int64", unit="", format="count"),
)  # fmt: skip


def page(result: Quantized, options: ViewOptions) -> pages.Page:
    """The accuracy, and the layers by the noise that they add."""
    layers = table(result, options).sort_values("added_noise", ascending=False, kind="stable")
    head = []
    if result.accuracy is not None:
        accuracy = result.accuracy
        before, after, here = (
            "" if value is None else f"{score(value, accuracy.unit)} {accuracy.unit}".strip()
            for value in (accuracy.before, accuracy.after, accuracy.here)
        )
        samples = f"{plural(accuracy.samples, 'sample')} of {result.settings['test']}"
        head.append(f"{accuracy.metric}: {before} before, {after} after ({samples})")
        why = "" if here == after else " (no VNNI: 8-bit sums may saturate)"
        head += [f"in onnxruntime on this processor: {here}{why}"] if here else []
    outputs = sorted(result.outputs, key=lambda each: (each.worst_channel or each).sqnr_db)
    lost = list[str]()
    for output in outputs[:_MOST_OUTPUTS]:
        line, worst = f"SQNR {_unit(output.sqnr_db)}", output.worst_channel
        if worst is not None:
            channel = f"{worst.index} of axis {worst.axis}"
            line = f"{line}, {_unit(worst.sqnr_db)} in its worst channel ({channel})"
        lost.append(line)
    room = max(_WIDTH - len("output : ") - max(map(len, lost), default=0), _LEAST_NAME)
    names = short_names([each.output for each in outputs[:_MOST_OUTPUTS]], room)
    head += [f"output {name}: {each}" for name, each in zip(names, lost, strict=True)]
    if len(result.outputs) > _MOST_OUTPUTS:
        head.append(f"{plural(len(result.outputs) - _MOST_OUTPUTS, 'more output')}: --json")
    settings = result.settings
    if "bits" in settings:
        zero = "symmetric" if settings["symmetric"] else "with zero points"
        title = (
            f"{result.model.name} · {settings['bits']}-bit weights in blocks of "
            f"{settings['block']}, {zero} · accuracy level {settings['accuracy_level']}"
        )
    else:
        scales = "per channel" if settings["per_channel"] else "per tensor"
        title = (
            f"{result.model.name} · {settings['weight_type']} weights {scales}, "
            f"{settings['activation_type']} activations · {settings['format']}, "
            f"{settings['method']} of {settings['calibrate']}"
        )
    shown = pages.Table(title, _COLUMNS, layers, head=tuple(head), is_long=True)
    return pages.Page((shown,), result.notes)


def table(result: Quantized, options: ViewOptions) -> pd.DataFrame:
    """A row for each layer, in the order of the graph; its worst channel in three columns."""
    rows = pages.record_table(LayerError, result.layers).drop(columns="worst_channel")
    for name, field, dtype in _CHANNEL:
        cells = [getattr(layer.worst_channel, field, None) for layer in result.layers]
        rows[name] = pd.Series(cells, dtype=dtype)
    return rows


def document(result: Quantized, options: ViewOptions) -> dict[str, Any]:
    """Everything but the model itself; layers are in the order of the graph."""
    return fields(result, "model", "settings", "accuracy", "outputs", "layers", "notes")


def model(result: Quantized, options: ViewOptions) -> bytes:
    """The quantised model. Raises UsageError where its weights are in a file beside the output."""
    stored_weights.refuse_apart(result.proto)
    return result.proto.SerializeToString()


def report(result: Quantized, options: ViewOptions) -> Content:
    """One run, whose rows are the nodes of the float model with the errors of the layers.

    A node that quantisation folds into another one, or leaves out, has none.
    """
    graphs, (graph,) = drawings([result.model])
    shown, layers = page(result, options), table(result, options)
    errors = layers[["node", *(spec.name for spec in _SPECS)]]
    topology = result.model.topology
    if topology is None:  # the nodes are not known
        rows = layers[["node", "op_type", "module"]].merge(errors, on="node")
    else:
        columns = {"node": topology.nodes, "op_type": topology.op_types, "module": topology.modules}
        rows = pd.DataFrame(columns).assign(index=range(len(topology.nodes)))
        rows = rows.astype({"index": "Int64"}).merge(errors, on="node", how="left")
        rows = rows.astype({spec.name: spec.dtype for spec in _SPECS})
    run = RunContent(
        label=result.model.name,
        title=shown.tables[0].title,
        lines=shown.tables[0].head,
        rows=rows,
        graph=graph,
    )
    return Content(
        title=run.title,
        kind="quantize",
        page=shown,
        runs=(run,),
        graphs=graphs,
        specs=_SPECS,
        first={"sort": "added_noise", "color": "added_noise"},
    )


def _unit(value: float) -> str:
    return f"{decibels(value)} dB" if math.isfinite(value) else decibels(value)


_MOST_OUTPUTS = 3
_WIDTH, _LEAST_NAME = 80, 12
"""Characters of a line about an output, and of a name that is cut to fit into it."""
_CHANNEL = (
    ("worst_channel_db", "sqnr_db", "float64"),
    ("worst_channel", "index", "Int64"),
    ("channel_axis", "axis", "Int64"),
)
"""Columns of the worst channel of a layer, the fields of its record, and their types."""

_WORST = pages.number_column("worst channel dB", "worst_channel_db", decibels, 5)
*_DECLARED, _NOISE = pages.record_columns(LayerError)
_COLUMNS: tuple[pages.Column, ...] = (*_DECLARED, _WORST, _NOISE)
