"""The view of a what-if: for each variant the answer, the widths, and the nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tracer.accumulators.statistics.partial_sums import PartialSums, bin_edges
from tracer.analyzers import whatif
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.overflow import bits_observed, overflow, widest
from tracer.analyzers.views import drawing, environment
from tracer.analyzers.views.file_formats.json import fields, records
from tracer.analyzers.views.page import Page, Table, name_column, number_column
from tracer.analyzers.views.report import Accuracy, Content, RunContent, Widths, drawings
from tracer.analyzers.views.text import count, number, percent, score, si, width
from tracer.analyzers.whatif import axes, label, nodes, width_rows
from tracer.records.columns import ColumnSpec
from tracer.records.whatif import Variant, WhatIf, known_sum
from tracer.storage import whatif_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_EACH = "#3a923a"
_COLUMNS = 3
_PANEL_INCHES = 4.6, 2.9
_HEAD_INCHES = 0.5
MOST_NODES = 6
"""Panels of nodes unless `--top` sets another number; with those of the whole network, 3 rows."""
_TICK_BITS = 8
_TICK_GAP = 3
"""Bits between two labels of an axis, on which every bit is an octave."""
_ALL = "all nodes; blue: final sums, yellow: extremes of partial sums"


def figure(result: WhatIf, options: ViewOptions) -> Figure:
    """For each variant its panels: score and energy, Pareto front, sums of all and of each node."""
    top = MOST_NODES if options.top is None else options.top
    width, height = _PANEL_INCHES
    shown_of = [widest(variant.answer.sums, top) for variant in result.variants]
    counts = [math.ceil((_FIRST + len(shown)) / _COLUMNS) for shown in shown_of]
    chart = drawing.empty_figure(
        width * _COLUMNS, height * sum(counts) + _HEAD_INCHES * len(counts)
    )
    parts = chart.subfigures(len(counts), 1, squeeze=False, height_ratios=counts)[:, 0]
    for part, panel_rows, variant, shown in zip(
        parts, counts, result.variants, shown_of, strict=True
    ):
        title = drawing.plain(f"{result.model.name} · {label(result, variant)}")
        part.suptitle(title, x=0.01, ha="left", fontsize=10)
        panels = part.subplots(panel_rows, _COLUMNS, squeeze=False).ravel()
        _by_width(panels[0], result, variant)
        _front(panels[1], result, variant)
        _histogram(panels[2], _ALL, variant.answer.sums, variant)
        names = drawing.labels(sums.node for sums in shown)
        for panel, name, sums in zip(panels[_FIRST:], names, shown, strict=False):
            widths = f"{bits_observed(sums)} bits observed, {sums.guaranteed} guaranteed"
            _histogram(panel, f"{name}: {widths}", [sums], variant)
        for panel in panels[_FIRST + len(shown) :]:
            panel.set_axis_off()
    return chart


_FIRST = 3
"""Panels about the whole network, before those of nodes."""


def _by_width(axes: Axes, result: WhatIf, variant: Variant) -> None:
    from matplotlib.ticker import MaxNLocator

    answer = variant.answer
    bits = [row.bits for row in answer.rows]
    axes.plot(
        bits, [row.score for row in answer.rows], color=drawing.PLAIN, marker="o", markersize=3
    )
    axes.set_ylabel(drawing.plain(whatif.metric(result.judgement)), fontsize=8, color=drawing.PLAIN)
    axes.set_xlabel("bits of the accumulator", fontsize=8)
    other = axes.twinx()
    other.plot(
        bits, [row.energy for row in answer.rows], color=drawing.EXTREMES, marker="s", markersize=2
    )
    other.set_ylim(bottom=0)
    other.set_ylabel(
        drawing.plain(f"energy [{result.energy.unit or 'units'}]"),
        fontsize=8,
        color=drawing.EXTREMES,
    )
    other.yaxis.set_major_formatter(lambda value, _: si(value))
    other.tick_params(labelsize=7)
    other.spines["top"].set_visible(False)
    for at, name in _answers(variant).items():
        axes.axvline(at, color=drawing.HIGH, linewidth=0.8, linestyle="--")
        bottom = axes.get_xaxis_transform()
        axes.text(at, 0.02, f" {name}", fontsize=8, color=drawing.HIGH, transform=bottom)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title("score and energy by width", fontsize=8, loc="left")
    _finish(axes)


def _answers(variant: Variant) -> dict[int, str]:
    """Returns the names of the answers A and B, by their bits."""
    observed, uniform = variant.answer.observed, variant.answer.uniform
    if uniform is None:
        return {observed: "A"}
    bits = variant.swept(uniform)[0]
    return {observed: "A B"} if bits == observed else {observed: "A", bits: "B"}


def _front(axes: Axes, result: WhatIf, variant: Variant) -> None:
    """Draws energy against score of every evaluation; the Pareto front is red."""
    answer = variant.answer
    indices = {work.node: index for index, work in enumerate(variant.work)}
    energies = [
        known_sum(variant.energies[width][indices[node]] for node, width in evaluation.bits.items())
        for evaluation in answer.evaluations
    ]
    scores = [each.score for each in answer.evaluations]
    axes.scatter(energies, scores, s=6, color=drawing.OTHERS, label="evaluations")
    front = answer.front
    axes.plot([p.energy for p in front], [p.score for p in front], color=drawing.HIGH, marker="o",
              markersize=3, linewidth=0.9, label="Pareto front")  # fmt: skip
    for name, choice, colour in (("B", answer.uniform, drawing.PLAIN), ("C", answer.each, _EACH)):
        if choice is not None:
            axes.plot(choice.energy, choice.score, marker="*", markersize=10, color=colour,
                      linestyle="none", label=name)  # fmt: skip
    axes.xaxis.set_major_formatter(lambda value, _: si(value))
    axes.set_xlabel(
        drawing.plain(f"energy of a sample [{result.energy.unit or 'units'}]"), fontsize=8
    )
    axes.set_ylabel(drawing.plain(whatif.metric(result.judgement)), fontsize=8)
    title = f"energy against score, within {whatif.budget(result.judgement)}: B and C"
    axes.set_title(drawing.plain(title), fontsize=8, loc="left")
    falls = bool(front) and front[-1].score < front[0].score  # an error: the upper right is free
    axes.legend(fontsize=7, frameon=False, loc="upper right" if falls else "lower right")
    _finish(axes)


def _histogram(axes: Axes, title: str, sums: Sequence[PartialSums], variant: Variant) -> None:
    """Draws final sums, extremes of partial sums, and the ends of accumulators by width."""
    tallies = [each.tally for each in sums]
    final = np.sum([tally.final_histogram for tally in tallies], axis=0)
    extremes = np.sum([t.low_histogram + t.high_histogram for t in tallies], axis=0)
    filled = np.flatnonzero(final + extremes)
    first, last = (int(filled[0]), int(filled[-1])) if len(filled) else (0, len(final) - 1)
    bins = bin_edges()[first : last + 2]
    axes.set_xscale("symlog", base=2, linthresh=drawing.LINEAR)
    axes.stairs(final[first : last + 1], bins, fill=True, color=drawing.PLAIN)
    axes.stairs(extremes[first : last + 1], bins, color=drawing.EXTREMES, linewidth=1.0)
    axes.set_yscale("log")
    left, right = float(bins[0]), float(bins[-1])
    widths = [row.bits for row in variant.answer.rows]
    for bits in widths:
        low, high = variant.answer.accumulator.range_of(bits)
        for end in (low, high + 1):
            if left < end < right:
                axes.axvline(end, color=drawing.HIGH, linewidth=0.5, alpha=0.6)
    axes.set_xlim(left, right)
    gap = max(math.ceil(len(widths) / _TICK_BITS), _TICK_GAP)  # ends of some have their bits
    labelled = [widths[0]]
    labelled += [bits for bits in widths if (bits - widths[0]) % gap == 0 and bits > labelled[-1]]
    ends = [(variant.answer.accumulator.range_of(bits), bits) for bits in labelled]
    marks = [(0.0, "0")]
    marks += [(float(high + 1), str(bits)) for (_, high), bits in ends if high + 1 < right]
    marks += [(float(low), str(bits)) for (low, _), bits in ends if left < low]
    axes.set_xticks([value for value, _ in marks], [name for _, name in marks])
    axes.minorticks_off()
    axes.set_title(title, fontsize=8, loc="left")
    axes.set_ylabel("outputs", fontsize=7)
    axes.set_xlabel("sum; red: ends of accumulators of this many bits", fontsize=7)
    _finish(axes)


def _finish(axes: Axes) -> None:
    axes.tick_params(labelsize=7)
    axes.spines["top"].set_visible(False)


_NAMES = {"guaranteed": "bits_guaranteed", "observed": "bits_observed"}
"""Columns of the table of nodes that the node table has under other names."""

_OBSERVED = ("bits_datatype", "acc_min", "acc_max", "final_min", "final_max", "outputs")
"""Overflow columns that hold for sums in wide accumulators."""


def report(result: WhatIf, options: ViewOptions) -> Content:
    """Each variant as a run: overflow and score at every width, the answers for each node."""
    own_page = page(result, options)
    graphs, (graph,) = drawings([result.model])
    keys = () if result.model.topology is None else result.model.topology.nodes
    position = {node: index for index, node in enumerate(keys)}
    bits = partial(ColumnSpec, dtype="Int64", unit="bits", format="width")
    energy = partial(ColumnSpec, dtype="float64", unit=result.energy.unit, format="si")
    return Content(
        title=result.model.name,
        kind="whatif",
        page=own_page,
        runs=tuple(_run(result, variant, position, graph) for variant in result.variants),
        graphs=graphs,
        specs=(
            bits("bits_uniform", "B", 1, "width in answer B, the same for all nodes", "max"),
            bits("bits_each", "C", 1, "width in answer C, one for each node", "max"),
            bits("bits_pinned", "pinned", 3, "width that was given", "max"),
            energy("energy_uniform", "energy B", 5, "energy per sample in answer B", "sum"),
            energy("energy_each", "energy C", 6, "energy per sample in answer C", "sum"),
        ),
        accuracy=tuple(
            Accuracy(
                run=run,
                metric=result.judgement.metric.rpartition(":")[2],
                unit=result.judgement.unit,
                bits=tuple(row.bits for row in variant.answer.rows),
                score=tuple(row.score for row in variant.answer.rows),
                energy=tuple(row.energy for row in variant.answer.rows),
                energy_unit=result.energy.unit,
                marks={"A": variant.answer.observed}
                | ({"B": variant.swept(uniform)[0]} if (uniform := variant.answer.uniform) else {}),
            )
            for run, variant in enumerate(result.variants)
        ),
        environment=environment.machine_fields(result.environment),
        first={"view": "overflow", "sort": "bits_observed", "color": "bits_observed"},
    )


def _run(
    result: WhatIf, variant: Variant, position: Mapping[str, int], graph: int | None
) -> RunContent:
    title = label(result, variant)
    table = nodes(variant).rename(columns=_NAMES)
    index = pd.array([position.get(node) for node in table["node"]], "Int64")
    observed = overflow(variant.answer.sums)[list(_OBSERVED)]
    table = table.assign(index=index).join(observed, on="node")
    bits = [name for name in table.columns if name.startswith("bits_")]
    width_rows = table.astype(dict.fromkeys(bits, "Int64"))
    row_of = {node: row for row, node in enumerate(width_rows["node"])}
    widths, swept = None, variant.answer.rows
    if swept:  # the overflows of the sweep, in which all nodes have the same width
        counts = {node: [row.overflows[node] for row in swept] for node in swept[0].overflows}
        widths = Widths(
            rows=tuple(row_of[node] for node in counts),
            bits=tuple(row.bits for row in swept),
            overflow=tuple(tuple(c.overflow_outputs for c in each) for each in counts.values()),
            persistent=tuple(tuple(c.persistent_outputs for c in each) for each in counts.values()),
            outputs=tuple(each[0].outputs for each in counts.values()),
        )
    return RunContent(
        label=title,
        title=f"{result.model.name} · {title}",
        lines=(*whatif.sentences(result, variant), whatif.effort(result, variant)),
        rows=width_rows,
        widths=widths,
        graph=graph,
    )


def page(result: WhatIf, options: ViewOptions) -> Page:
    """For each variant the answer in words, the widths, and the nodes."""
    judgement, unit = result.judgement, result.energy.unit
    by_width = [
        number_column("bits", "bits", count, 0),
        name_column("", "answer", 1),
        number_column(
            whatif.metric(judgement), "score", lambda value: score(value, judgement.unit), 2
        ),
        number_column("overflow", "overflow_outputs", number, 3),
        number_column("share", "share", percent, 6),
        number_column("transient", "transient_outputs", number, 7),
        number_column("persistent", "persistent_outputs", number, 8),
        number_column("changed", "outputs_changed", number, 10),
        number_column("events", "saturation_events", number, 11),
        number_column("outputs", "outputs", number, 12),
        number_column(f"energy {unit}".strip(), "energy", si, 4),
        number_column("saved", "saved", percent, 5),
        number_column("vs A", "saved_against_safe", percent, 9),
    ]
    by_node = [
        name_column("node", "node", 0),
        name_column("module", "module", 8),
        name_column("op", "op_type", 7),
        number_column("guaranteed", "guaranteed", width, 4),
        number_column("A", "observed", width, 1),
        number_column("pinned", "bits_pinned", width, 2),
        number_column("B", "bits_uniform", width, 2),
        number_column("C", "bits_each", width, 3),
        number_column(f"energy B {unit}".strip(), "energy_uniform", si, 5),
        number_column("energy C", "energy_each", si, 6),
        number_column("muls", "muls", si, 9),
        number_column("adds", "adds", si, 10),
    ]
    tables = []
    for variant in result.variants:
        title = f"{result.model.name} · {label(result, variant)}"
        head = (*whatif.sentences(result, variant), whatif.effort(result, variant))
        table, answers = width_rows(variant), _answers(variant)
        table["answer"] = [answers.get(bits, "") for bits in table["bits"]]
        table["share"] = table["overflow_outputs"] / table["outputs"].where(table["outputs"] > 0)
        tables.append(Table(title, by_width, table, head=head))
        tables.append(Table("Node by node", by_node, nodes(variant), is_long=True))
    notes = (*result.notes, whatif.basis_text(result.energy))
    return Page(tuple(tables), notes, result.environment.summary)


def table(result: WhatIf, options: ViewOptions) -> pd.DataFrame:
    """A row for each width of each variant, with what makes the variant first."""
    whole = {"product_bits": "Int64", "weight_bits": "Int64", "activation_bits": "Int64"}
    tables = []
    for variant in result.variants:
        own = width_rows(variant)
        for position, (axis, value) in enumerate(axes(variant).items()):
            own.insert(position, axis, value)
        tables.append(own.astype(whole))
    return pd.concat(tables, ignore_index=True)


def document(result: WhatIf, options: ViewOptions) -> dict[str, Any]:
    """Everything that was evaluated (docs/whatif.md has the fields)."""
    return {
        **fields(result, "model", "environment", "settings", "notes", "judgement", "energy"),
        "variants": [
            {
                "accumulator": axes(variant),
                **fields(variant.answer, "score", "samples", "guaranteed", "observed", "limiting"),
                **fields(variant, "coverage"),
                **fields(variant.answer, "uniform", "each"),
                "widths": records(width_rows(variant)),
                "nodes": records(nodes(variant)),
                "energies": variant.energies,
                **fields(variant.answer, "front", "evaluations", "screening", "ended"),
            }
            for variant in result.variants
        ],
    }


def stored(result: WhatIf, options: ViewOptions) -> bytes:
    """The what-if as an SQLite file."""
    return whatif_file.dumps(result)
