"""What other sides have in place of a subgraph that a provider compiled into one kernel."""

from collections.abc import Iterator, Sequence

import pandas as pd

from tracer.analyzers.compare import Comparison
from tracer.analyzers.compare.alignment import Layer
from tracer.analyzers.compare.layers import letter
from tracer.analyzers.compare.sides import Side
from tracer.analyzers.views.page import Table, name_column, number_column
from tracer.analyzers.views.text import micros, percent
from tracer.text import printable


def subgraph_tables(result: Comparison) -> Iterator[Table]:
    """Yields the timed rows of each side in a layer that is a compiled subgraph of another."""
    for layer in result.groups:
        for index, side in enumerate(result.sides):
            if not _is_subgraph(side, layer.rows[index]):
                continue
            for other, rows in enumerate(result.sides):
                timed = _timed(rows, layer.rows[other])
                if other != index and len(timed) > 1:
                    yield _table(result, layer, index, other)


def _is_subgraph(side: Side, rows: Sequence[int]) -> bool:
    compiled = {kernel.name for kernel in side.run.kernels if kernel.is_compiled}
    timed = _timed(side, rows)
    return len(timed) == 1 and side.nodes["kernels"].iloc[timed[0]] in compiled


def _timed(side: Side, rows: Sequence[int]) -> list[int]:
    return [row for row in rows if side.time_us[row] == side.time_us[row]]  # NaN is not timed


def _table(result: Comparison, layer: Layer, index: int, other: int) -> Table:
    side = result.sides[other]
    rows = _timed(side, layer.rows[other])
    times = side.time_us[rows]
    table = side.nodes.iloc[rows][["node", "op_type"]].assign(
        time_us=times, share=times / (times.sum() or 1.0)
    )
    table = table.sort_values("time_us", ascending=False, kind="stable").reset_index(drop=True)
    subgraph = result.sides[index]
    (row,) = _timed(subgraph, layer.rows[index])
    kernel = printable(str(subgraph.nodes["kernels"].iloc[row]))
    letters = letter(other).upper(), letter(index).upper()
    return Table(
        f"Rows of {letters[0]} in place of {kernel}, a compiled subgraph of {letters[1]} "
        f"({micros(float(subgraph.time_us[row]))} µs)",
        (
            name_column("node", "node", 0),
            name_column("op", "op_type", 2),
            number_column(f"{letters[0]} µs", "time_us", micros, 1),
            number_column("share", "share", percent, 3),
        ),
        pd.DataFrame(table),
        is_long=True,
        weight=("share", "time"),
    )
