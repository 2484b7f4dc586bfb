"""The numbers of a comparison as a table: outputs, and the first layers that differ."""

from collections.abc import Iterator

import pandas as pd

from analyzers.compare.numbers import Numbers
from analyzers.options import ViewOptions
from analyzers.views.page import Table, name_column, number_column
from analyzers.views.text import digits, plural
from tracer.text import printable

_DIFFERING = 3
"""Layers that are shown of those whose values differ: differences spread from the first on."""


def numbers_table(numbers: Numbers, options: ViewOptions) -> Table:
    """The outputs, and the layers that are out of tolerance or else the furthest layer."""
    outputs = numbers.outputs.rename(columns={"output": "layer", "output_b": "layer_b"})
    layers = numbers.layers[numbers.layers["fault"] != ""].assign(what="layer")
    hidden = 0 if options.notes else max(0, len(layers) - _DIFFERING)
    if hidden:
        layers = layers.head(_DIFFERING)
    elif not len(layers):
        furthest = numbers.layers.sort_values("max_abs", ascending=False, kind="stable").head(1)
        layers = furthest.assign(what="furthest layer")
    rows = pd.concat([outputs.assign(what="output"), layers], ignore_index=True)
    for field in ("nan", "inf"):
        rows[field] = [
            f"{a}, {b}" if a or b else None
            for a, b in zip(rows[f"{field}_a"].fillna(0), rows[f"{field}_b"].fillna(0), strict=True)
        ]
    columns = (
        name_column("what", "what", 0),
        name_column("tensor of A", "layer", 1),
        name_column("tensor of B", "layer_b", 6),
        number_column("max abs", "max_abs", digits, 2),
        number_column("max rel", "max_rel", digits, 3),
        number_column("ULP", "max_ulp", digits, 4),
        name_column("NaN", "nan", 7),
        name_column("Inf", "inf", 8),
        name_column("beyond tolerance", "fault", 5),
    )
    rows["fault"] = rows["fault"].where(rows["fault"] != "")
    title = f"Numbers of {numbers.second} against {numbers.first}, same input"
    more = (f"{hidden:,} more of these layers: --notes",) if hidden else ()
    return Table(title, columns, rows, (*_divergence(numbers), *more, *numbers.notes), is_long=True)


def _divergence(numbers: Numbers) -> Iterator[str]:
    within = f"({numbers.tolerance})"
    if not numbers.differ:
        yield f"every one of {plural(len(numbers.layers), 'layer')} is within tolerance {within}"
    else:
        amounts = [
            f"{int((table['fault'] != '').sum()):,} of {plural(len(table), what)}"
            for table, what in ((numbers.layers, "layer"), (numbers.outputs, "output"))
        ]
        first = numbers.first_divergence
        where = f"; the first is '{printable(first)}'" if first else ""
        yield f"{' and '.join(amounts)} differ {within}{where}"
    counts = {
        f"{kind} in {which}": int(numbers.outputs[f"{field}_{end}"].fillna(0).sum())
        for kind, field in (("NaN", "nan"), ("Inf", "inf"))
        for which, end in (("A", "a"), ("B", "b"))
    }
    if any(counts.values()):
        yield "outputs: " + ", ".join(f"{count:,} {what}" for what, count in counts.items())
