"""The view of a Quantized: accuracy before and after, and the layers with the largest errors."""

import math
from typing import Any

import pandas as pd

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.file_formats.json import fields
from tracer.analyzers.views.page import Column, Page, Table, name_column, number_column
from tracer.analyzers.views.report import Content, RunContent, drawings
from tracer.analyzers.views.text import score
from tracer.graph import stored_weights
from tracer.records.columns import ColumnSpec
from tracer.records.transformed import Accuracy, LayerError, OutputError, Quantized

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


def page(result: Quantized, options: ViewOptions) -> Page:
    """The accuracy, and the layers by the noise that they add."""
    layers = table(result, options).sort_values("added_noise", ascending=False, kind="stable")
    scores = (
        [] if result.accuracy is None else [_accuracy(result.accuracy, result.settings["test"])]
    )
    worst_first = sorted(result.outputs, key=lambda each: (each.worst_channel or each).sqnr_db)
    lines = [_output(each) for each in worst_first[:_MOST_OUTPUTS]]
    more = len(result.outputs) - len(lines)
    head = (*scores, *lines, *([f"{more} more outputs: --json"] if more > 0 else []))
    return Page((Table(_title(result), _COLUMNS, layers, head=head, is_long=True),), result.notes)


def table(result: Quantized, options: ViewOptions) -> pd.DataFrame:
    """A row for each layer, in the order of the graph; its worst channel in three columns."""
    names = [*LayerError.__slots__[:-1], *_CHANNEL]
    rows = [
        [getattr(layer, name) for name in LayerError.__slots__[:-1]]
        + [getattr(layer.worst_channel, name, None) for name in _CHANNEL.values()]
        for layer in result.layers
    ]
    numbers = {"sqnr_db": "float64", "added_noise": "float64", "worst_channel_db": "float64"}
    counts = {"worst_channel": "Int64", "channel_axis": "Int64"}
    return pd.DataFrame(rows, columns=names).astype({**numbers, **counts})


def document(result: Quantized, options: ViewOptions) -> dict[str, Any]:
    """Everything but the model itself; layers are in the order of the graph."""
    return fields(result, "model", "settings", "accuracy", "outputs", "layers", "notes")


def model(result: Quantized, options: ViewOptions) -> bytes:
    """The quantised model. Raises UsageError where its weights are in a file beside the output."""
    stored_weights.refuse_apart(result.proto)
    return result.proto.SerializeToString()


def report(result: Quantized, options: ViewOptions) -> Content:
    """The nodes of the float model, and the error of each."""
    return of_quantized(result, page(result, options), table(result, options))


def _title(result: Quantized) -> str:
    settings = result.settings
    if "bits" in settings:
        zero = "symmetric" if settings["symmetric"] else "with zero points"
        return (
            f"{result.model.name} · {settings['bits']}-bit weights in blocks of "
            f"{settings['block']}, {zero} · accuracy level {settings['accuracy_level']}"
        )
    scales = "per channel" if settings["per_channel"] else "per tensor"
    return (
        f"{result.model.name} · {settings['weight_type']} weights {scales}, "
        f"{settings['activation_type']} activations · {settings['format']}, {settings['method']} "
        f"of {settings['calibrate']}"
    )


def _accuracy(accuracy: Accuracy, data: str) -> str:
    before, after = (
        f"{score(value, accuracy.unit)} {accuracy.unit}".strip()
        for value in (accuracy.before, accuracy.after)
    )
    samples = f"{accuracy.samples:,} samples of {data}"
    return f"{accuracy.metric}: {before} before, {after} after ({samples})"


def _output(output: OutputError) -> str:
    line = f"output {output.output}: SQNR {_unit(output.sqnr_db)}"
    worst = output.worst_channel
    if worst is None:
        return line
    channel = f"channel {worst.index} of axis {worst.axis}"
    return f"{line}, {_unit(worst.sqnr_db)} in its worst channel ({channel})"


def _unit(decibels: float) -> str:
    return f"{_decibels(decibels)} dB" if math.isfinite(decibels) else _decibels(decibels)


def _decibels(value: float) -> str:
    if math.isinf(value):
        return "exact" if value > 0 else "nothing left"
    return f"{value:.1f}"


def _noise(value: float) -> str:
    return f"{100 * value:.2g} %"


_MOST_OUTPUTS = 3
_CHANNEL = {"worst_channel_db": "sqnr_db", "worst_channel": "index", "channel_axis": "axis"}
"""Columns of the worst channel of a layer, and the fields of its record."""

_COLUMNS: tuple[Column, ...] = (
    name_column("node", "node", 0),
    name_column("op", "op_type", 3),
    name_column("module", "module", 4),
    number_column("SQNR dB", "sqnr_db", _decibels, 2),
    number_column("worst channel dB", "worst_channel_db", _decibels, 5),
    number_column("added noise", "added_noise", _noise, 1),
)
