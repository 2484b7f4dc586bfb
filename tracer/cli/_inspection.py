"""How an inspected inference is shown: tables on the terminal, or JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from tracer.graph.model import Model
    from tracer.inputs.feedset import FeedSet
    from tracer.interpreter.inspection import Inspection, Output, Row
    from tracer.interpreter.recording import Statistics

_ROOMY = 110
"""Characters of a terminal that has room for every column."""

_NAMES = ("node", "op", "output", "type")
_GAP = 3
_LEAST = 8
"""Characters between columns, and those a name is left with on any terminal."""

_Column = tuple[str, Callable[[Any], str]]


def as_tables(model: Model, feedset: FeedSet, found: Inspection) -> None:
    """Print a table of the nodes and one of the outputs."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(f"{model.name} · reference interpreter · {' · '.join(feedset.notes)}")
    compared = any(row.difference for row in found.rows)
    columns: list[_Column] = [("node", _key), ("op", _op)]
    roomy = console.width >= _ROOMY or not compared
    if roomy:
        columns.append(("output", lambda row: ", ".join(row.record.types)))
    columns += [("µs", _time), ("calls", _calls)]
    columns += _statistics(lambda row: row.record.statistics)[0 if roomy else 3 :]
    if compared:
        columns += [("max abs", _max_abs), ("max rel", _max_rel), ("ULP", _ulp)]
    console.print(_table(columns, found.rows, console.width))
    columns = [("output", _name), ("type", lambda output: output.type)]
    columns += _statistics(lambda output: output.statistics)
    console.print(_table(columns, found.outputs, console.width))


def as_json(model: Model, feedset: FeedSet, found: Inspection) -> None:
    """Print one object: model, notes, nodes, outputs; what is unknown or infinite is null."""
    import msgspec

    from tracer.records.trace import ModelInfo

    rows = [
        {
            "node": row.record.node.key,
            "op_type": row.record.node.op_type,
            "domain": row.record.node.domain,
            "outputs": row.record.types,
            "calls": row.record.calls,
            "time_us": row.record.time_us,
            "statistics": row.record.statistics,
            "difference": row.difference,
        }
        for row in found.rows
    ]
    outputs = [{"name": o.name, "type": o.type, "statistics": o.statistics} for o in found.outputs]
    info = ModelInfo.of(model)
    whole = {"model": info, "notes": feedset.notes, "nodes": rows, "outputs": outputs}
    click.echo(msgspec.json.format(msgspec.json.encode(whole), indent=1))


def _table(columns: Sequence[_Column], rows: Sequence[Any], width: int) -> Any:
    """Names may be cut, numbers never; a column without any content is left out."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    filled = [(head, cells) for head, text in columns if any(cells := [text(r) for r in rows])]
    numbers = [max(map(len, (head, *cells))) for head, cells in filled if head not in _NAMES]
    room = width - sum(numbers) - _GAP * len(filled)
    most = max(room // max(len(filled) - len(numbers), 1), _LEAST)
    for head, cells in filled:
        if head in _NAMES:
            table.add_column(head, no_wrap=True, overflow="ellipsis", max_width=most)
        else:
            needed = max(map(len, (head, *cells)))
            table.add_column(head, justify="right", no_wrap=True, min_width=needed)
    for row in zip(*(cells for _, cells in filled), strict=True):
        table.add_row(*(Text(cell) for cell in row))
    return table


def _statistics(of: Callable[[Any], Statistics | None]) -> list[_Column]:
    def column(text: Callable[[Statistics], str]) -> Callable[[Any], str]:
        return lambda row: "" if (found := of(row)) is None else text(found)

    return [
        ("min", column(lambda found: _number(found.minimum))),
        ("max", column(lambda found: _number(found.maximum))),
        ("mean", column(lambda found: _number(found.mean))),
        ("NaN", column(lambda found: str(found.nan or ""))),
        ("Inf", column(lambda found: str(found.inf or ""))),
    ]


def _key(row: Row) -> str:
    from analyzers.views.text import printable

    return printable(row.record.node.key)


def _op(row: Row) -> str:
    from analyzers.views.text import printable

    return printable(row.record.node.qualified_type)


def _name(output: Output) -> str:
    from analyzers.views.text import printable

    return printable(output.name)


def _time(row: Row) -> str:
    from analyzers.views.text import micros

    return micros(row.record.time_us)


def _calls(row: Row) -> str:
    return "" if row.record.calls == 1 else str(row.record.calls)


def _max_abs(row: Row) -> str:
    return "" if row.difference is None else _number(row.difference.max_abs)


def _max_rel(row: Row) -> str:
    return "" if row.difference is None else _number(row.difference.max_rel)


def _ulp(row: Row) -> str:
    steps = None if row.difference is None else row.difference.max_ulp
    return "" if steps is None else _number(float(steps))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
