"""The view of a quantisation: accuracy before and after, and the error of each layer."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from analyzers.options import ViewOptions
from analyzers.views.page import Page, Table, name_column, number_column
from tracer.records.quantized import Accuracy, Quantized

_COLUMNS = (
    name_column("node", "node", 0),
    name_column("op", "op_type", 3),
    name_column("module", "module", 4),
    number_column("SQNR dB", "sqnr_db", lambda db: "exact" if math.isinf(db) else f"{db:.1f}", 1),
    number_column("added noise", "added_noise", lambda share: f"{100 * share:.2g} %", 2),
)


def page(result: Quantized, options: ViewOptions) -> Page:
    """The settings, the accuracy, and the layers with the largest error first."""
    settings, accuracy = result.settings, result.accuracy
    scales = "per channel" if settings["per_channel"] else "per tensor"
    title = (
        f"{result.model.name} · {settings['weight_type']} weights {scales}, "
        f"{settings['activation_type']} activations · {settings['format']}, "
        f"{settings['method']} of {settings['calibrate']}"
    )
    head = (_accuracy(accuracy, str(settings["test"])),) if accuracy else ()
    layers = table(result, ViewOptions(top=0))
    return Page((Table(title, _COLUMNS, layers, is_long=True, head=head),), result.notes, "")


def table(result: Quantized, options: ViewOptions) -> pd.DataFrame:
    """The layers, those with the largest error first."""
    columns = ["node", "op_type", "module", "sqnr_db", "added_noise"]
    layers = pd.DataFrame(result.layers, columns=columns)
    layers = layers.sort_values("added_noise", ascending=False, kind="stable")
    return layers.head(options.top) if options.top else layers


def document(result: Quantized, options: ViewOptions) -> dict[str, Any]:
    """Model, settings, accuracy, the layers in the order of the graph, notes."""
    return {
        "model": result.model,
        "settings": result.settings,
        "accuracy": result.accuracy,
        "layers": result.layers,
        "notes": result.notes,
    }


def model(result: Quantized, options: ViewOptions) -> bytes:
    """The quantised model."""
    return result.proto.SerializeToString()


def _accuracy(accuracy: Accuracy, data: str) -> str:
    digits = ".2f" if accuracy.unit == "%" else ".4g"
    before, after = (
        f"{value:{digits}} {accuracy.unit}".strip() for value in (accuracy.before, accuracy.after)
    )
    samples = f"{accuracy.samples:,} samples of {data}"
    return f"{accuracy.metric}: {before} before, {after} after ({samples})"
