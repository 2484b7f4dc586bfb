"""The rows of a run that have a time, as viewers of other programs show them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tracer.analyzers.views.timeline import Value
from tracer.analyzers.views.trace.sections import Section, sections
from tracer.errors import UsageError
from tracer.records.trace import Run, Trace

DEEPEST = 64
"""Most levels of modules that are kept apart; viewers refuse stacks of some hundred levels."""

_INFINITE = (float("inf"), float("-inf"))

SHOWN = (
    "node", "op_type", "module", "source", "input_shapes", "output_shapes", "calls", "time_us",
    "time_us_ci95_low", "time_us_ci95_high", "time_share", "macs", "flops", "params", "bytes_read",
    "bytes_written", "gflops_per_s", "gbytes_per_s", "roof_fraction", "bound", "peak_bytes",
    "bits_observed", "bits_guaranteed", "bits", "overflow_outputs", "energy", "kernels",
)  # fmt: skip
"""Columns of the node table that viewers show beside a node."""


@dataclass(frozen=True, slots=True)
class TimedRow:
    """A row with a time in µs: its module as a path of names, and the values to show beside it."""

    name: str
    path: tuple[str, ...]
    time_us: float
    kernels: tuple[str, ...]
    values: Mapping[str, Value]


def timed(trace: Trace, what: str) -> tuple[tuple[Section, Run], ...]:
    """Returns the runs that have times, with their rows. Raises UsageError if there is none."""
    every = [(section, section.run) for section in sections(trace) if section.run is not None]
    having = [(s, run) for s, run in every if s.nodes["time_us"].notna().any()]
    if not having:
        raise UsageError(
            f"{what} needs times, and this trace has none",
            "Make a trace with times: tracer profile MODEL.onnx -o run.trace.",
        )
    return tuple(having)


def timed_rows(section: Section, run: Run) -> list[TimedRow]:
    """Returns the rows with a time, in the order in which their kernels ran."""
    nodes = ordered(section.nodes, run)
    fused = _fused(nodes)
    return [_row(values, fused) for values in present(nodes[nodes["time_us"].notna()], SHOWN)]


def ordered(nodes: pd.DataFrame, run: Run | None) -> pd.DataFrame:
    """Returns rows in the order in which their kernels ran; others stay where they are."""
    kernels = () if run is None else run.kernels
    place = {kernel.name: place for place, kernel in reversed([*enumerate(kernels)])}
    firsts = nodes["kernels"].fillna("").str.split("; ").str[0].map(place).astype("float64")
    return nodes.loc[firsts.ffill().fillna(-1).sort_values(kind="stable").index]


def present(rows: pd.DataFrame, names: tuple[str, ...]) -> Iterator[dict[str, Value]]:
    """Yields the values that each row has in these columns, as plain Python values.

    Infinities are left out like missing values, for few formats can hold them.
    """
    columns = {name: rows[name] for name in names if name in rows}
    known = [(series.notna() & ~series.isin(_INFINITE)).tolist() for series in columns.values()]
    values = [series.astype(object).tolist() for series in columns.values()]
    for has, cells in zip(zip(*known, strict=True), zip(*values, strict=True), strict=True):
        yield {
            name: cell for name, is_known, cell in zip(columns, has, cells, strict=True) if is_known
        }


def module_path(module: str | None) -> tuple[str, ...]:
    """Returns the names of a dotted module path, outermost first; the deepest stay together."""
    return tuple(module.split(".", DEEPEST - 1)) if module else ()


def _row(record: dict[str, Any], fused: Mapping[str, str]) -> TimedRow:
    name = record["node"]
    kernels = tuple(str(record.get("kernels", "")).split("; "))
    values = {**record, "also holds": fused[name]} if name in fused else record
    return TimedRow(name, module_path(record.get("module")), record["time_us"], kernels, values)


def _fused(nodes: pd.DataFrame) -> dict[str, str]:
    """Returns the other nodes of the kernels of a row, by the name of the row."""
    others = nodes[nodes["timed_in"].notna()]
    held: dict[str, list[str]] = {}
    for name, host in zip(others["node"], others["timed_in"], strict=True):
        held.setdefault(host, []).append(name)
    return {host: ", ".join(names) for host, names in held.items()}
