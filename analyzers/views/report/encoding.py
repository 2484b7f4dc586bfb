"""A report's content as the JSON in its file: columns rather than rows, compressed if large."""

import base64
import gzip
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from tracer.analyzers.views.report.content import Content, RunContent
from tracer.analyzers.views.trace.overflow import has_overflow
from tracer.records.columns import JOINT, ColumnSpec, specs_of
from tracer.text import printable

PLAIN = 256_000
"""Bytes of JSON from which on it is compressed. Below, a reader of the file can read it."""

_DIGITS = 7
"""Significant digits of a number with a fraction, as many as float32 has: twice as many would
double the file, and nothing is measured that well."""

_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&'\u2028\u2029"}
"""Characters that could end or open a tag; inside strings of JSON they may be escapes."""


def encoded(content: Content) -> tuple[str, bool]:
    """Returns the text of the data in the page, and whether it is compressed.

    Plain JSON has no character that could end its element; compressed JSON is gzip in base64. The
    same content always gives the same text.
    """
    data = msgspec.json.encode(_document(content))
    if len(data) < PLAIN:
        return data.decode().translate(_ESCAPES), False
    return base64.b64encode(gzip.compress(data, compresslevel=6, mtime=0)).decode(), True


def _document(content: Content) -> dict[str, Any]:
    return {
        "title": content.title,
        "kind": content.kind,
        "redacted": content.redacted,
        "specs": _specs(content),
        "runs": [_run(run) for run in content.runs],
        "graphs": content.graphs,
        "pairs": content.pairs,
        "accuracy": content.accuracy,
        "sources": content.sources or {},
        "environment": content.environment,
        "notes": content.notes,
    }


def _specs(content: Content) -> dict[str, dict[str, Any]]:
    """Returns the specs of all columns; the table of sums ranks as on one page.

    They have the order of the node table. A result's own columns follow those that name a row.
    """
    names = list(dict.fromkeys(name for run in content.runs for name in run.rows.columns))
    counted = any(has_overflow(run.rows) for run in content.runs)
    ranks = {name: rank - len(JOINT) for rank, name in enumerate(JOINT)} if counted else {}
    known = specs_of(names)
    at = [spec.name for spec in known].index("executor")
    every = (*known[:at], *content.specs, *known[at:])
    specs = (s for s in every if s.name in names or s.kind != "stored")
    return {spec.name: _spec(replace(spec, rank=ranks.get(spec.name, spec.rank))) for spec in specs}


def _spec(spec: ColumnSpec) -> dict[str, Any]:
    return {key: value for key, value in asdict(spec).items() if key not in ("name", "_", "scope")}


def _run(run: RunContent) -> dict[str, Any]:
    fields = {
        name: getattr(run, name) for name in RunContent.__slots__ if name not in ("rows", "kernels")
    }
    filled = [name for name in run.rows if run.rows[name].notna().any()]
    columns = {str(name): _column(run.rows[name]) for name in filled}
    return {**fields, "size": len(run.rows), "kernels": list(run.kernels), "columns": columns}


def _column(values: "pd.Series[Any]") -> list[Any] | Mapping[str, Any]:
    """Returns a list of numbers, or text as codes of a list of distinct texts (-1: missing)."""
    if not pd.api.types.is_numeric_dtype(values):
        codes, distinct = pd.factorize(values)
        return {"values": [printable(str(text)) for text in distinct], "codes": codes.tolist()}
    if pd.api.types.is_integer_dtype(values):
        return [None if pd.isna(value) else int(value) for value in values]
    numbers = values.to_numpy(np.float64, na_value=np.nan)
    return [_number(value) for value in _rounded(numbers).tolist()]


def _rounded(numbers: "np.ndarray[Any, np.dtype[np.float64]]") -> Any:
    """Returns numbers of `_DIGITS` digits; those beyond 10^±15 stay as they are."""
    size = np.abs(numbers)
    common = (size > 1e-15) & (size < 1e15)  # neither NaN nor infinite
    decimals = _DIGITS - 1 - np.floor(np.log10(np.where(common, size, 1.0)))
    # Powers of ten up to 22 are exact, so the quotient is the double nearest to the short decimal.
    scale = 10.0 ** np.abs(decimals)
    whole = np.where(common, numbers, 0.0)
    short = np.where(
        decimals >= 0, np.round(whole * scale) / scale, np.round(whole / scale) * scale
    )
    return np.where(common, short, numbers)


def _number(value: float) -> Any:
    if value != value:
        return None
    if value in (float("inf"), float("-inf")):  # JSON has no infinity; readers overflow to it
        return msgspec.Raw(b"1e999" if value > 0 else b"-1e999")
    return int(value) if value.is_integer() and abs(value) < 1e15 else value
