"""How a quantised model is shown: accuracy and layers on the terminal, or JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tracer.cli import _output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

    from tracer.records.quantized import Accuracy, LayerError, Quantized

_NUMBERS = ("SQNR dB", "added noise")
"""Wider than any of the figures below them."""


def as_json(made: Quantized, top: int) -> None:
    """Print one object: model, settings, accuracy, layers in their order, notes."""
    import msgspec

    whole = {
        "model": made.model,
        "settings": made.settings,
        "accuracy": made.accuracy,
        "layers": made.layers,
        "notes": made.notes,
    }
    _output.write_stdout(msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n")


def as_table(made: Quantized, top: int) -> None:
    """Print the accuracy before and after, and the `top` layers that lose most; all for 0."""
    ranked = sorted(made.layers, key=lambda layer: -layer.added_noise)
    shown = ranked[: top or None]

    def render(console: Console) -> None:
        console.print(_settings(made), markup=False)
        if made.accuracy is not None:
            console.print(_accuracy(made.accuracy, str(made.settings["test"])), markup=False)
        console.print(_layers(shown))
        if len(shown) < len(ranked):
            console.print(f"… {len(ranked) - len(shown)} more; --top 0 shows all")
        for note in made.notes:
            console.print(f"note: {note}", markup=False)

    _output.write_screen(render)


def _settings(made: Quantized) -> str:
    said = made.settings
    scales = "per channel" if said["per_channel"] else "per tensor"
    return (
        f"{made.model.name} · {said['weight_type']} weights {scales}, "
        f"{said['activation_type']} activations · {said['format']}, {said['method']} of "
        f"{said['calibrate']}"
    )


def _accuracy(found: Accuracy, data: str) -> str:
    figures = [f"{value:.4g}" if found.unit != "%" else f"{value:.2f}"
               for value in (found.before, found.after)]  # fmt: skip
    unit = f" {found.unit}" if found.unit else ""
    return (
        f"{found.metric}: {figures[0]}{unit} before, {figures[1]}{unit} after "
        f"({found.samples:,} samples of {data})"
    )


def _layers(layers: Sequence[LayerError]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from analyzers.views.text import printable

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("node", "op", "module"):
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for name in _NUMBERS:  # names may be cut, numbers never
        table.add_column(name, justify="right", no_wrap=True, min_width=len(name))
    for layer in layers:
        sqnr = "exact" if math.isinf(layer.sqnr_db) else f"{layer.sqnr_db:.1f}"
        names = (Text(printable(text)) for text in (layer.node, layer.op_type, layer.module or ""))
        table.add_row(*names, sqnr, f"{100 * layer.added_noise:.2g} %")
    return table
