"""The tables of a comparison: layers, compiled subgraphs, scores, and numbers."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd

from tracer.analyzers.compare import Comparison
from tracer.analyzers.compare.contrast import LEVEL
from tracer.analyzers.compare.layers import LayerSum, letter
from tracer.analyzers.compare.numbers import Numbers, Scores, sqnr
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views import text as texts
from tracer.analyzers.views.page import (
    Check,
    Column,
    Row,
    Table,
    name_column,
    number_column,
    signed_percent,
)
from tracer.text import agree, brief, printable

_NAMES = {
    "layer": (("layer", 0), ("module", 111), ("op", 110)),
    "module": (("module", 0), ("op", 130), ("also_holds", 131)),
    "op": (("op", 0),),
}  # fmt: skip
"""The columns that name the rows, and their ranks, by grouping."""

_CHANGES, _LIMITS = ("change_us_b",), ("change_low_us_b", "change_high_us_b")
_FAR = 1e7
"""Times from here on, which are bounds of too few sessions, have an exponent."""
_LISTED = 10

_WORK = (("MACs", "macs"), ("parameters", "params"))

_ROUNDED = 0.01
"""Share by which the ratio of two times of three digits differs through their rounding."""

_DIFFERING = 3
"""Layers that are shown of those whose values differ: differences spread from the first on."""

MARK = "*"
"""Marks a statistically significant difference."""
INTERVAL = f"{1 - LEVEL:.0%} interval"
"""Header of confidence intervals."""


def layers_table(result: Comparison, rows: pd.DataFrame) -> Table:
    """Returns the rows with their times on all sides, and what is found in lines below them."""
    columns: list[Column] = [
        name_column(field.replace("_", " "), field, rank) for field, rank in _NAMES[result.by]
    ]
    ends = [letter(index) for index in range(len(result.sides))]
    times_us = tuple(f"time_us_{end}" for end in ends)
    columns += [
        number_column(f"{end.upper()} µs", field, texts.time_number, rank, times_us)
        for rank, (end, field) in enumerate(zip(ends, times_us, strict=True), 1)
    ]
    for position, end in enumerate(ends[1:]):
        header = f"{end.upper()} ÷ A"
        columns.append(Column(header, f"change_us_{end}", ratio(f"_{end}"), 100 + 2 * position))
    if len(ends) == 2:
        bounds = interval("ratio_low_b", "ratio_high_b", texts.times)
        columns.append(Column(INTERVAL, "ratio_low_b", bounds, 103))
        columns.append(number_column("Δ µs", "change_us_b", signed, 112, _CHANGES))
        bounds = interval(*_LIMITS, signed)
        columns.append(
            Column("Δ interval", _LIMITS[0], bounds, 113, times=_CHANGES, bounds=_LIMITS)
        )
    for position, (what, field) in enumerate(_WORK):
        first, *others = (rows[f"{field}_{end}"].fillna(0) for end in ends)
        are_equal = all(first.eq(other).all() for other in others)
        columns += [
            number_column(f"{what} {end.upper()}", f"{field}_{end}", texts.si, 120 + position)
            for end in (ends[:1] if are_equal else ends)
        ]
    # A terminal counts ranks from 0: names and times come first, then ratios, then the rest.
    headers = [column.header for column in sorted(columns, key=lambda column: column.rank)]
    shown = [replace(column, rank=headers.index(column.header)) for column in columns]
    title = f"By {result.by}, the largest change in time first"
    return Table(title, shown, rows, tuple(_layer_lines(result, rows)), is_long=True)


def _layer_lines(result: Comparison, rows: pd.DataFrame) -> Iterator[str]:
    ends = [letter(index) for index in range(len(result.sides))]
    everyone = "".join(ends).upper()
    yield from paired_note(
        (rows["time_us_a"], rows[f"time_us_{e}"], rows[f"ratio_{e}"]) for e in ends[1:]
    )
    for end in ends[1:]:
        tested = int(rows[f"p_{end}"].notna().sum())
        significant = int(rows[f"significant_{end}"].sum())
        yield (
            f"{end.upper()}: {significant} of {texts.plural(tested, 'row')} "
            f"{agree(significant, 'differs', 'differ')} significantly from A "
            f"({MARK}; Holm, {LEVEL:.0%} over all rows)"
        )
    labels = [side.label for side in result.sides]
    for each in result.sums:
        yield f"{letter(labels.index(each.side)).upper()}: {_sum_text(each)}"
    for on, group in rows[rows["on"] != everyone].groupby("on", sort=False):
        cells = []
        for row in group.to_dict("records"):
            times_us = [row[f"time_us_{end}"] for end in str(on).lower()]
            known = ", ".join(texts.duration(time) for time in times_us if not math.isnan(time))
            text = printable(row[result.by])
            if result.by == "layer" and row["op"] != row["layer"]:
                text += f" ({printable(row['op'])})"
            cells.append(f"{text} {known}" if known else text)
        yield f"only in {on}: {_listing(cells)}"
    common = rows[rows["on"] == everyone]
    for what, field in _WORK:
        first, *others = (common[f"{field}_{end}"] for end in ends)
        unequal = np.logical_or.reduce([(other != first).to_numpy(bool) for other in others])
        cells = []
        for row in common[unequal].to_dict("records"):
            values = [row[f"{field}_{end}"] for end in ends]
            amounts = ["" if pd.isna(value) else f"{value:,.0f}" for value in values]
            if len(set(amounts)) > 1 and "" not in amounts:
                cells.append(f"{printable(row[result.by])} {' and '.join(amounts)}")
        if cells:
            yield f"{what} differ: {_listing(cells)}"


def paired_note(sides: Iterable[tuple[Any, Any, Any]]) -> Iterator[str]:
    """Says why ratios are others than those of the times beside them, where some clearly are.

    Each side has the times of A, its own times and its ratios to A.
    """
    if any((abs(time / first / ratio - 1) > _ROUNDED).any() for first, time, ratio in sides):
        yield (
            "÷ A and Δ compare runs that took turns, so that noise common to both cancels out; "
            "the times are means of each side"
        )


def _sum_text(each: LayerSum) -> str:
    """Returns whether the layers of a side differ by as much as its whole runs do."""
    layers, whole = (
        f"{signed_percent(share)} ({signed_percent(low)} to {signed_percent(high)})"
        for share, low, high in (
            (each.layers, each.layers_low, each.layers_high),
            (each.whole, each.whole_low, each.whole_high),
        )
    )
    both = f"all layers together {layers} of a run of A, whole runs {whole}"
    if each.agrees:
        return f"{both}: they agree"
    return (
        f"{both}: they do not agree. {signed_percent(each.whole - each.layers)} is in "
        "no layer: outside the nodes, or an effect of the profiler"
    )


def _listing(cells: Sequence[str]) -> str:
    more = len(cells) - _LISTED
    shown = "; ".join(cells[:_LISTED])
    return f"{shown}; and {more:,} more" if more > 0 else shown


def ratio(end: str = "") -> Callable[[Row], str]:
    """Returns the text of a ratio to A, marked where it differs significantly from 1.

    A row that one side alone has is `new`, or `gone` where that side is A. A ratio to a time that
    may be 0 is anything, and empty like its interval, unless it differs.
    """

    def text(row: Row) -> str:
        shown = texts.times(float(row[f"ratio{end}"]))
        is_tested = bool(end) and not math.isnan(row[f"p{end}"])
        if is_tested and math.isnan(row[f"ratio_low{end}"]) and not row[f"significant{end}"]:
            return ""
        if not shown and end and not math.isnan(row[f"change_us{end}"]):
            has = str(row["on"])
            shown = "new" if "A" not in has else "" if end[1:].upper() in has else "gone"
        return f"{shown}{MARK if row[f'significant{end}'] else ' '}" if shown else ""

    return text


def interval(low: str, high: str, shown: Callable[[float], str]) -> Callable[[Row], str]:
    """Returns the text of the interval between two columns, empty where it is not known."""

    def text(row: Row) -> str:
        ends = float(row[low]), float(row[high])
        return "" if math.isnan(ends[0]) else " to ".join(map(shown, ends))

    return text


def signed(value: float) -> str:
    """Returns a time with its sign: `+0.20`; a bound that is far away as `+6.9e+11`."""
    if abs(value) >= _FAR:
        return f"{value:+.1e}"
    return f"{'-' if value < 0 else '+'}{texts.time_number(abs(value))}"


def subgraph_tables(result: Comparison) -> Iterator[Table]:
    """Yields the timed rows of each side in a layer that is a compiled subgraph of another."""
    for layer in result.groups:
        timed = [
            [row for row in rows if not math.isnan(side.time_us[row])]
            for side, rows in zip(result.sides, layer.rows, strict=True)
        ]
        for index, side in enumerate(result.sides):
            compiled = {kernel.name for kernel in side.run.kernels if kernel.is_compiled}
            kernels = side.nodes["kernels"].iloc[timed[index]].tolist()
            if len(kernels) != 1 or kernels[0] not in compiled:
                continue
            time = texts.duration(float(side.time_us[timed[index][0]]))
            what = f"{printable(str(kernels[0]))}, a compiled subgraph of {letter(index).upper()}"
            for other, rows in enumerate(timed):
                if other == index or len(rows) < 2:
                    continue
                name, of_other = letter(other).upper(), result.sides[other]
                own_us = of_other.time_us[rows]
                table = of_other.nodes.iloc[rows][["node", "op_type"]].assign(
                    time_us=own_us, share=own_us / (own_us.sum() or 1.0)
                )
                table = table.sort_values("time_us", ascending=False, kind="stable")
                columns = (
                    name_column("node", "node", 0),
                    name_column("op", "op_type", 2),
                    number_column(f"{name} µs", "time_us", texts.time_number, 1, ("time_us",)),
                    number_column("share", "share", texts.percent, 3),
                )
                yield Table(
                    f"Rows of {name} in place of {what} ({time})", columns,
                    table.reset_index(drop=True), is_long=True, weight=("share", "time"),
                )  # fmt: skip


def scores_table(scores: Sequence[Scores]) -> Table:
    """The value of each metric on A and on the other side, and the change."""

    def value(field: str) -> Callable[[Row], str]:
        return lambda row: (
            "" if pd.isna(row[field]) else texts.score(float(row[field]), str(row["unit"]))
        )

    change = "{:+.4f}".format
    columns = (
        name_column("metric", "named", 0),
        name_column("side", "side", 1),
        Column("A", "first_value", value("first_value"), 3),
        Column("side's", "value", value("value"), 2),
        number_column("change", "change", change, 4),
        Column(INTERVAL, "low", interval("low", "high", change), 5),
    )
    rows = pd.DataFrame([asdict(each) for each in scores])
    rows["named"] = [f"{each.metric} {each.unit}".strip() for each in scores]
    first = scores[0]
    title = f"Accuracy on {texts.plural(first.samples, 'sample')} of {first.data}"
    return Table(title, columns, rows)


def numbers_table(numbers: Numbers, options: ViewOptions) -> Table:
    """The outputs, and the layers that are out of tolerance or else the furthest layer."""
    outputs = numbers.outputs.rename(columns={"output": "layer", "output_b": "layer_b"})
    layers, hidden = _differing_layers(numbers, options)
    rows = pd.concat([outputs.assign(what="output"), layers], ignore_index=True)
    for field in ("nan", "inf"):
        rows[field] = [
            f"{a}, {b}" if a or b else None
            for a, b in zip(rows[f"{field}_a"].fillna(0), rows[f"{field}_b"].fillna(0), strict=True)
        ]
    columns = (
        name_column("what", "what", 0),
        name_column("tensor of A", "layer", 1),
        name_column("tensor of B", "layer_b", 8),
        number_column("own error", "own", texts.digits, 2),
        number_column("error", "max_share", texts.digits, 3),
        number_column("RMS error", "rms_share", texts.digits, 4),
        number_column("SQNR dB", "sqnr", texts.digits, 5),
        number_column("cosine", "cosine", texts.cosine, 6),
        number_column("max abs", "max_abs", texts.digits, 7),
        name_column("NaN", "nan", 10),
        name_column("Inf", "inf", 11),
        name_column("beyond tolerance", "beyond", 9),
    )
    if numbers.no_verdict:
        rows["sqnr"] = sqnr(rows["rms_share"])
    else:
        rows["beyond"] = rows["own_fault"].where(rows["own_fault"].fillna("") != "", rows["fault"])
    title = f"Numbers of {numbers.second} against {numbers.first}, same input"
    more = (f"{hidden:,} more of these layers: --notes",) if hidden else ()
    return Table(title, columns, rows, (*_divergence(numbers), *more, *numbers.notes), is_long=True)


def values_check(numbers: Numbers) -> Check:
    """Whether the values of a side are those of the first, as a test."""
    text = "; ".join(_divergence(numbers))
    name = f"{numbers.second} against {numbers.first}"
    return Check("values", name, text, "failure" if numbers.differ else "")


def _differing_layers(numbers: Numbers, options: ViewOptions) -> tuple[pd.DataFrame, int]:
    """Returns the first layers that are out of tolerance, or the furthest, and how many remain."""
    layers = numbers.layers
    for column in () if numbers.no_verdict else ("own_fault", "fault"):
        faulty = layers[layers[column] != ""]
        if len(faulty):
            hidden = 0 if options.notes else max(0, len(faulty) - _DIFFERING)
            return faulty.head(len(faulty) - hidden).assign(what="layer"), hidden
    # the share of a reference of zeros is infinite, however small the error
    furthest = layers.sort_values(
        "max_share", ascending=False, kind="stable", key=lambda share: share.mask(share == math.inf)
    )
    count = _DIFFERING if numbers.no_verdict else 1
    return furthest.head(count).assign(what="furthest layer"), 0


def _divergence(numbers: Numbers) -> Iterator[str]:
    yield f"{_verdict(numbers)} ({numbers.no_verdict or numbers.tolerance})"
    other = numbers.layers[numbers.layers["max_abs"].isna() & (numbers.layers["fault"] != "")]
    if len(other):
        layer, fault = map(printable, other[["layer", "fault"]].iloc[0])
        differ = f"{texts.plural(len(other), 'layer')} {agree(len(other), 'differs', 'differ')}"
        yield f"{differ} in size or text, first '{layer}': {fault}"
    counts = {
        f"{kind} in {which}": int(numbers.outputs[f"{field}_{end}"].fillna(0).sum())
        for kind, field in (("NaN", "nan"), ("Inf", "inf"))
        for which, end in (("A", "a"), ("B", "b"))
    }
    if any(counts.values()):
        yield "outputs: " + ", ".join(f"{count:,} {what}" for what, count in counts.items())


def _verdict(numbers: Numbers) -> str:
    """Whether the layers agree; those that differ, and the first of them."""
    layers = texts.plural(len(numbers.layers), "layer")
    if numbers.no_verdict:
        text = f"no verdict on {layers}"
        if numbers.first_loss is None:
            return text
        layer, before, after = numbers.first_loss
        where = f"'{brief(layer)}': from {before:.1f} dB to {after:.1f}"
        return f"{text}; the first large loss is in {where}"
    first = numbers.first_divergence
    where = f", first in '{printable(first)}'" if first else ""
    own = int((numbers.layers["own_fault"] != "").sum())
    if own:
        verb = "computes" if own == 1 else "compute"
        return f"{own:,} of {layers} {verb} something else on the values of A{where}"
    apart = {
        what: int((table["fault"] != "").sum())
        for table, what in ((numbers.layers, "layer"), (numbers.outputs, "output"))
    }
    if not any(apart.values()):
        return f"every one of {layers} is within tolerance"
    outputs = texts.plural(len(numbers.outputs), "output")
    amounts = f"{apart['layer']:,} of {layers} and {apart['output']:,} of {outputs}"
    if not numbers.is_isolated or numbers.differ:
        # An output that an optimised graph computes in another way than its layers.
        names = numbers.differing_optimised if numbers.is_isolated else ()
        output = f"; output '{printable(names[0])}' differs and its layer does not" if names else ""
        return f"{amounts} differ{where}{output}"
    return (
        "every layer is within tolerance on the values of A; small differences add up to more in "
        f"{amounts}{where}"
    )
