"""Names the layers that are slower in quantised integers than in floats, as measured."""

from collections.abc import Iterator, Sequence

import pandas as pd

from tracer.analyzers.compare.alignment import Layer
from tracer.analyzers.compare.layers import letter
from tracer.analyzers.compare.sides import Side
from tracer.analyzers.views.text import plural
from tracer.graph.operators import computes_in_integers
from tracer.text import brief

_NAMED = 3


def notes(sides: Sequence[Side], table: pd.DataFrame, layers: Sequence[Layer]) -> Iterator[str]:
    """Yields a note for each side with layers that are significantly slower than A's in floats.

    `table` has a row for each of `layers` (see `tracer.analyzers.compare.layers`).
    """
    in_integers = [_in_integers(side, place, layers) for place, side in enumerate(sides)]
    for index, side in enumerate(sides[1:], 1):
        end = letter(index)
        slower = table[f"significant_{end}"] & (table[f"ratio_{end}"] > 1)
        rows = table[slower & in_integers[index] & ~in_integers[0]]
        if rows.empty:
            continue
        rows = rows.sort_values(f"change_us_{end}", ascending=False)
        first = rows.head(_NAMED)
        named = ", ".join(
            f"{brief(str(layer))} ({before:.3g} to {after:.3g} µs)"
            for layer, before, after in zip(
                first["layer"], first["time_us_a"], first[f"time_us_{end}"], strict=True
            )
        )
        verbs = ("computes", "is") if len(rows) == 1 else ("compute", "are")
        lost = float(rows[f"change_us_{end}"].sum())
        yield (
            f"{plural(len(rows), 'layer')} of {side.label} {verbs[0]} in 8 bits and {verbs[1]} "
            f"slower than in floats, by {lost:.3g} µs: {named}"
            f"{', …' if len(rows) > _NAMED else ''}; tracer quantize --exclude leaves them in "
            "floats"
        )


def _in_integers(side: Side, place: int, layers: Sequence[Layer]) -> "pd.Series[bool]":
    """Returns whether a kernel of each layer computes in integers on this side."""
    integer = {k.name for k in side.run.kernels if computes_in_integers(k.op_type)}
    rows = side.nodes["kernels"].isin(integer) | side.nodes["op_type"].map(computes_in_integers)
    return pd.Series([bool(rows.iloc[list(layer.rows[place])].any()) for layer in layers])
