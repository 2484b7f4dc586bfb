"""What charts have in common: colours, labels, and how a figure becomes a file."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tracer.analyzers.views.text import MOST_CHARACTERS, short_names, without_prefix
from tracer.text import line, printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLAIN, HIGH, EXTREMES, OTHERS = "#4878a8", "#c44e52", "#d9a441", "#bbbbbb"
LINEAR = 16
"""Up to this sum the axis of a histogram is linear, and logarithmic beyond."""

_DPI = 120


def empty_figure(width: float, height: float) -> Figure:
    """An empty figure, inches. Formats of charts check before that matplotlib is there."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=_DPI, layout="constrained")


@contextmanager
def accept_boxes() -> Iterator[None]:
    """Draws a name in a script that the font lacks as boxes, without a warning.

    There is nothing that the user could act upon.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def saved(figure: Figure, kind: str) -> bytes:
    """The figure as `png` or `svg`; the same figure gives the same file."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "tracer"}), accept_boxes():
        figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()


def labels(names: Iterable[object]) -> list[str]:
    """Short forms of names, all different where the names are, safe to draw.

    Folders that most of them begin with are left out where names are too long.
    """
    return labels_and_folders(names)[0]


def labels_and_folders(names: Iterable[object]) -> tuple[list[str], str]:
    """The `labels` of names, and a remark on the folders that they leave out, or ''."""
    texts, folders = [printable(str(name)) for name in names], ""
    if any(len(text) > MOST_CHARACTERS for text in texts):
        texts, folders = without_prefix(texts)
    remark = f"… before a name stands for {plain(folders)}" if folders else ""
    return [plain(name) for name in short_names(texts)], remark


def plain(text: str) -> str:
    """`text`, safe to draw: control characters as escapes, and no `$`, which starts a formula."""
    return line(text).replace("$", r"\$")
