"""Show the epochs of a training as a table and as curves."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from experiments import _page
from models.training.loop import Epoch
from tracer.analyzers.views.drawing import HIGH, PLAIN, empty_figure, saved

_COLOURS = (PLAIN, HIGH)
_COLUMNS = {
    "epoch": "{epoch}",
    "loss": "{loss:.4f}",
    "accuracy": "{accuracy:.2%}",
    "val. loss": "{validation_loss:.4f}",
    "val. accuracy": "{validation_accuracy:.2%}",
    "seconds": "{seconds:.1f}",
}


def learning(rows: Sequence[Epoch]) -> str:
    """Returns a row for each epoch."""
    return _page.records(_COLUMNS, map(asdict, rows))


def learning_curves(rows: Sequence[Epoch]) -> bytes:
    """Returns a PNG of loss and accuracy by epoch, for training and validation."""
    panels = {
        "loss": {
            "training": [row.loss for row in rows],
            "validation": [row.validation_loss for row in rows],
        },
        "accuracy": {
            "training": [row.accuracy for row in rows],
            "validation": [row.validation_accuracy for row in rows],
        },
    }
    return _curves(panels, [row.epoch for row in rows], "epoch")


def _curves(
    panels: Mapping[str, Mapping[str, Sequence[float]]], x: Sequence[float], label: str
) -> bytes:
    """Returns a PNG with a panel for each of `panels`: lines by name over `x`, named `label`."""
    figure = empty_figure(4.6 * len(panels), 3.4)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for panel, (title, lines) in zip(axes, panels.items(), strict=True):
        for colour, (name, values) in zip(_COLOURS, lines.items(), strict=False):
            panel.plot(x, values, marker="o", markersize=3, color=colour, label=name)
        panel.set_title(title, fontsize=10, loc="left")
        panel.set_xlabel(label)
        panel.set_xticks(x)
        panel.spines[["top", "right"]].set_visible(False)
        if len(lines) > 1:
            panel.legend(fontsize=8, frameon=False)
    return saved(figure, "png")
