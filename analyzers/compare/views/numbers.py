"""The numbers of a comparison as a table: outputs, and the first layers that differ."""

from collections.abc import Iterator

import pandas as pd

from tracer.analyzers.compare.numbers import Numbers, sqnr
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.checks import Check
from tracer.analyzers.views.page import Table, name_column, number_column
from tracer.analyzers.views.text import cosine, digits, plural
from tracer.text import brief, printable

_DIFFERING = 3
"""Layers that are shown of those whose values differ: differences spread from the first on."""


def numbers_table(numbers: Numbers, options: ViewOptions) -> Table:
    """The outputs, and the layers that are out of tolerance or else the furthest layer."""
    outputs = numbers.outputs.rename(columns={"output": "layer", "output_b": "layer_b"})
    layers, hidden = _shown(numbers, options)
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
        number_column("own error", "own", digits, 2),
        number_column("error", "max_share", digits, 3),
        number_column("RMS error", "rms_share", digits, 4),
        number_column("SQNR dB", "sqnr", digits, 5),
        number_column("cosine", "cosine", cosine, 6),
        number_column("max abs", "max_abs", digits, 7),
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


def _shown(numbers: Numbers, options: ViewOptions) -> tuple[pd.DataFrame, int]:
    """Returns the first layers that are out of tolerance, or the furthest, and how many remain."""
    layers = numbers.layers
    for column in () if numbers.no_verdict else ("own_fault", "fault"):
        faulty = layers[layers[column] != ""]
        if len(faulty):
            hidden = 0 if options.notes else max(0, len(faulty) - _DIFFERING)
            return faulty.head(len(faulty) - hidden).assign(what="layer"), hidden
    furthest = layers.sort_values("max_share", ascending=False, kind="stable")
    count = _DIFFERING if numbers.no_verdict else 1
    return furthest.head(count).assign(what="furthest layer"), 0


def _divergence(numbers: Numbers) -> Iterator[str]:
    yield f"{_verdict(numbers)} ({numbers.no_verdict or numbers.tolerance})"
    counts = {
        f"{kind} in {which}": int(numbers.outputs[f"{field}_{end}"].fillna(0).sum())
        for kind, field in (("NaN", "nan"), ("Inf", "inf"))
        for which, end in (("A", "a"), ("B", "b"))
    }
    if any(counts.values()):
        yield "outputs: " + ", ".join(f"{count:,} {what}" for what, count in counts.items())


def _loss(numbers: Numbers) -> str:
    """Names the first layer that loses much of the signal, if there is one."""
    loss = numbers.first_loss
    if loss is None:
        return ""
    layer, before, after = loss
    return f"; the first large loss is in '{brief(layer)}': from {before:.1f} dB to {after:.1f}"


def _optimised(numbers: Numbers) -> str:
    """Names the first output that an optimised graph computes in another way than its layers."""
    names = numbers.differing_optimised if numbers.is_isolated else ()
    return f"; output '{printable(names[0])}' differs and its layer does not" if names else ""


def _verdict(numbers: Numbers) -> str:
    """Whether the layers agree; those that differ, and the first of them."""
    layers = plural(len(numbers.layers), "layer")
    if numbers.no_verdict:
        return f"no verdict on {layers}{_loss(numbers)}"
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
    outputs = plural(len(numbers.outputs), "output")
    amounts = f"{apart['layer']:,} of {layers} and {apart['output']:,} of {outputs}"
    if not numbers.is_isolated or numbers.differ:
        return f"{amounts} differ{where}{_optimised(numbers)}"
    return (
        f"every layer is within tolerance on the values of A; rounding adds up to more in {amounts}"
        f"{where}"
    )
