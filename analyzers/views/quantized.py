"""The view of a Quantized: accuracy before and after, and the layers with the largest errors."""

import math
from typing import Any

import pandas as pd

from analyzers.options import ViewOptions
from analyzers.views.file_formats.json import fields
from analyzers.views.page import Column, Page, Table, name_column, number_column
from analyzers.views.text import score
from tracer.records.quantized import Accuracy, LayerError, Quantized


def page(result: Quantized, options: ViewOptions) -> Page:
    """The accuracy, and the layers by the noise that they add."""
    layers = table(result, options).sort_values("added_noise", ascending=False, kind="stable")
    head = () if result.accuracy is None else (_accuracy(result.accuracy, result.settings["test"]),)
    return Page((Table(_title(result), _COLUMNS, layers, head=head, is_long=True),), result.notes)


def table(result: Quantized, options: ViewOptions) -> pd.DataFrame:
    """A row for each layer, in the order of the graph."""
    return pd.DataFrame(result.layers, columns=list(LayerError.__slots__))


def document(result: Quantized, options: ViewOptions) -> dict[str, Any]:
    """Everything but the model itself; layers are in the order of the graph."""
    return fields(result, "model", "settings", "accuracy", "layers", "notes")


def model(result: Quantized, options: ViewOptions) -> bytes:
    """The quantised model."""
    return result.proto.SerializeToString()


def _title(result: Quantized) -> str:
    settings = result.settings
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


def _decibels(value: float) -> str:
    return "exact" if math.isinf(value) else f"{value:.1f}"


def _noise(value: float) -> str:
    return f"{100 * value:.2g} %"


_COLUMNS: tuple[Column, ...] = (
    name_column("node", "node", 0),
    name_column("op", "op_type", 3),
    name_column("module", "module", 4),
    number_column("SQNR dB", "sqnr_db", _decibels, 2),
    number_column("added noise", "added_noise", _noise, 1),
)
