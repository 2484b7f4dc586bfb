"""The view of a Narrowed: the score by width, and what was changed of each node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pandas as pd

from analyzers.options import ViewOptions
from analyzers.views.drawing import HIGH, PLAIN, empty_figure, plain
from analyzers.views.file_formats.json import fields
from analyzers.views.page import Page, Table, name_column, number_column
from analyzers.views.text import plural, score
from analyzers.whatif import words
from tracer.graph import data_file
from tracer.records.narrowed import Narrowed, NarrowedNode

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INCHES = (6.4, 3.6)
_COLUMNS = (
    name_column("node", "node", 0),
    name_column("op", "op_type", 3),
    name_column("module", "module", 5),
    number_column("bits", "bits", "{:.0f}".format, 1),
    number_column("any input before", "guaranteed_before", "{:.0f}".format, 2),
    number_column("any input after", "guaranteed", "{:.0f}".format, 2),
    number_column("on data before", "observed_before", "{:.0f}".format, 6),
    number_column("on data after", "observed", "{:.0f}".format, 6),
    number_column("input bits", "activation_bits", "{:.0f}".format, 4),
    number_column("SQNR dB", "sqnr_db", "{:.1f}".format, 3),
    number_column("nodes", "parts", "{:.0f}".format, 6),
    number_column("overflows", "overflows", "{:,.0f}".format, 5),
    name_column("changed", "measure", 4),
)

_USUAL = {"parts": 1, "overflows": 0}
"""Columns that are left out where all nodes have this number."""


def page(result: Narrowed, options: ViewOptions) -> Page:
    """The scores, each width where there are several, and the nodes."""
    title = f"{result.model.name} · sums of {result.bits} bits{_tiles(result)}"
    head = (*_sentences(result), *_promises(result))
    shown = tuple(each for each in _COLUMNS if _tells(result, each.field))
    nodes = Table(title, shown, table(result, options), head=head, is_long=True)
    return Page((*([_curve(result)] if len(result.curve) > 1 else []), nodes), result.notes)


def table(result: Narrowed, options: ViewOptions) -> pd.DataFrame:
    """A row for each node that sums, in the order of the graph."""
    names = list(NarrowedNode.__slots__)
    rows = pd.DataFrame([asdict(node) for node in result.nodes], columns=names)
    return rows.astype({"activation_bits": "Int64", "sqnr_db": "float64"})


def document(result: Narrowed, options: ViewOptions) -> dict[str, Any]:
    """Everything but the model itself."""
    about = ("model", "settings", "judgement", "score", "samples", "bits")
    return fields(result, *about, "curve", "nodes", "notes")


def model(result: Narrowed, options: ViewOptions) -> bytes:
    """The narrowed model. Raises UsageError where its weights are in a file beside the output."""
    data_file.refuse_apart(result.proto)
    return result.proto.SerializeToString()


def figure(result: Narrowed, options: ViewOptions) -> Figure:
    """The scores by width: narrowed, and saturated."""
    chart = empty_figure(*_INCHES)
    axes = chart.subplots()
    widths = [each.bits for each in result.curve]
    for label, colour in (("narrowed", PLAIN), ("saturated", HIGH)):
        scores = [getattr(each, label) for each in result.curve]
        axes.plot(widths, scores, color=colour, marker="o", markersize=4, label=label)
    axes.axhline(result.score, color="#777777", linewidth=0.8, linestyle="--", label="wide")
    axes.set_xticks(widths)
    axes.set_xlabel("bits of the accumulators")
    axes.set_ylabel(plain(words.metric(result.judgement)))
    axes.set_title(plain(result.model.name), loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return chart


def _curve(result: Narrowed) -> Table:
    unit = result.judgement.unit
    rows = pd.DataFrame([asdict(each) for each in result.curve])
    rows["change"] = rows["narrowed"] - result.score
    rows["kept"] = ["kept" if bits == result.bits else "" for bits in rows["bits"]]
    columns = (
        number_column("bits", "bits", "{:.0f}".format, 0),
        number_column("narrowed", "narrowed", lambda v: score(v, unit), 1),
        number_column("change", "change", lambda v: f"{v:+.3g}", 2),
        number_column("saturated", "saturated", lambda v: score(v, unit), 1),
        name_column("", "kept", 0),
    )
    return Table(f"{result.model.name} · {words.metric(result.judgement)} by width", columns, rows)


def _tells(result: Narrowed, field: str) -> bool:
    """Whether a column of counts has any but the usual number."""
    usual = _USUAL.get(field)
    return usual is None or any(getattr(node, field) != usual for node in result.nodes)


def _tiles(result: Narrowed) -> str:
    tile = result.settings["tile"]
    return "" if tile is None else f", {tile} terms each"


def _sentences(result: Narrowed) -> Iterator[str]:
    judgement, scores = result.judgement, result.scores
    before, after, saturated = (
        words.score(judgement, value) for value in (result.score, scores.narrowed, scores.saturated)
    )
    data = f"{plural(result.samples, 'sample')} of {result.settings['test']}"
    yield (
        f"{before} in wide accumulators, {after} narrowed, {saturated} where sums saturate ({data})"
    )


def _promises(result: Narrowed) -> Iterator[str]:
    """Yields what is known of the sums: of any input, and of the data of the scores."""
    wide = [node for node in result.nodes if not node.fits]
    if not wide:
        yield f"no input makes a sum of the {plural(len(result.nodes), 'node')} overflow"
        return
    if result.settings["guarantee"] == "any-input":
        names = ", ".join(f"{node.node} ({node.guaranteed} bits)" for node in wide)
        yield f"some inputs may overflow: nothing could be changed of {names}"
    over = [node for node in wide if node.overflows]
    count = sum(node.overflows for node in over)
    if not over:
        yield f"nothing overflows on these data; some inputs may, in {plural(len(wide), 'node')}"
    else:
        where = plural(len(over), "node")
        yield f"{plural(count, 'output')} of {where} overflowed on these data, and saturated"
