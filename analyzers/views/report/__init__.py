"""The report: one HTML file that shows a result from several sides, with one selection for all.

    result ──report()──► Content ──encoding──► data ──┐
                            │                         ├─ assembly ──► one file
                            └── static: its page ─────┤
                                page/*.html, *.css, *.js

A view module with a function `report` gives its result the format `.html`. Python computes every
number; the scripts in `page/` format, fold and draw them.
"""

import base64
import gzip
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pandas as pd

from tracer.analyzers.views.page import Page, html
from tracer.analyzers.views.redaction import without_paths
from tracer.analyzers.views.report.layout import Layout, laid_out
from tracer.analyzers.views.trace.overflow import has_overflow
from tracer.records.columns import JOINT, ColumnSpec, specs_of
from tracer.records.model_info import ModelInfo
from tracer.text import line, printable

_MOST_BYTES = 4_000_000
"""Size of a source file. Larger ones are not written by people."""


def texts(places: Iterable[object]) -> Mapping[str, str]:
    """Returns the text of each line that `file.py:36` names, by the place as a table shows it.

    A model may name any file, and a report is sent to others: only Python files below the current
    folder are read. Places whose file or line is missing are left out.
    """
    distinct = dict.fromkeys(place for place in places if isinstance(place, str))
    files: dict[str, list[str]] = {}
    found = {}
    for place in distinct:
        name, _, number = place.rpartition(":")
        if name not in files:
            files[name] = []
            with suppress(OSError, ValueError):  # not there, not readable, or no name of a file
                path = Path(name).resolve()
                is_own = path.suffix == ".py" and path.is_relative_to(Path.cwd())
                if is_own and path.stat().st_size <= _MOST_BYTES:
                    files[name] = path.read_text("utf-8", errors="replace").splitlines()
        if number.isdecimal() and 0 < int(number) <= len(files[name]):
            found[printable(place)] = printable(files[name][int(number) - 1].strip())
    return found


def drawings(models: Sequence[ModelInfo]) -> tuple[tuple[Layout, ...], tuple[int | None, ...]]:
    """Returns the drawings, and for each model the position of its drawing.

    The position is None for a model without nodes, for one whose connections are not known, and for
    one too large to draw.
    """
    layouts: list[Layout] = []
    positions: dict[str, int | None] = {}
    for model in models:
        if model.sha256 in positions:
            continue
        topology = model.topology
        layout = laid_out(topology) if topology is not None and topology.nodes else None
        positions[model.sha256] = None if layout is None else len(layouts)
        layouts += [] if layout is None else [layout]
    return tuple(layouts), tuple(positions[model.sha256] for model in models)


Kind = Literal[
    "profile", "interpret", "count", "whatif", "compare", "fusions", "quantize", "narrow", "tune",
    "diff",
]  # fmt: skip
"""The command whose result it is."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of advice, and the positions of the rows that it is about."""

    rule: str
    text: str
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sum:
    """The check of the times, µs per run: nodes + rest = wall.

    `low_us` and `high_us` are the 95 % confidence interval of the wall time. `empty_us` is the time
    of a run without nodes, which is part of the rest; None if it was not measured.
    """

    wall_us: float
    low_us: float
    high_us: float
    nodes_us: float
    rest_us: float
    empty_us: float | None
    coverage: float


@dataclass(frozen=True, slots=True)
class Roofs:
    """Peak rates per second: flop, integer operations, bytes; `threads` reached them.

    `others` are flop of further types, by name.
    """

    float32: float
    int8: float | None
    memory: float
    threads: int
    others: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Roofline:
    """Kernels as points, the longest first: `x` in flop/byte, `y` in 10⁹ flop/s.

    `rows` have their times; `sure` says whether a time is well above its uncertainty. `hidden` is a
    sentence on the other kernels. With `integer`, some kernels compute in 8-bit integers.
    """

    rows: tuple[int, ...]
    x: tuple[float, ...]
    y: tuple[float, ...]
    sure: tuple[bool, ...]
    hidden: str
    integer: bool


@dataclass(frozen=True, slots=True)
class Widths:
    """How many sums overflow at every width. Entry i of a list is about the row `rows[i]`.

    `overflow[i][j]` of the row's `outputs[i]` sums leave a range of `bits[j]` bits, and of
    `persistent[i][j]` the final sum does too.
    """

    rows: tuple[int, ...]
    bits: tuple[int, ...]
    overflow: tuple[tuple[int, ...], ...]
    persistent: tuple[tuple[int, ...], ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RunContent:
    """One run, or one side of a comparison, whose `letter` is A, B and so on.

    `label` tells it from the other runs, and `title` stands at the head while it is shown. `rows`
    have the columns of the node table and those that views compute. Rows with the same entry of
    `kernels` share a kernel; with None, each has its own. With the same entry of `folded`, which is
    None where it is the same, they are one row of a table that folds constants and conversions into
    the node that they serve.
    `prefix` are folders that most names begin with, and that long ones leave out. `graph` is the
    position of its graph in the report, `code` what to type or run.
    """

    label: str
    lines: tuple[str, ...]
    rows: pd.DataFrame
    kernels: Sequence[int] | None = None
    folded: Sequence[int] | None = None
    prefix: str = ""
    letter: str | None = None
    sum: Sum | None = None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    roofs: Roofs | None = None
    roofline: Roofline | None = None
    widths: Widths | None = None
    graph: int | None = None
    title: str = ""
    code: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pairs:
    """Layers of the runs `a` and `b`: their rows on each side, and how their times differ.

    The largest change is first. `ratio` is B ÷ A, between `low` and `high` with the level of the
    comparison; `p` is its p-value, adjusted for the number of layers. `significant` says which
    differences are not noise.
    """

    a: int
    b: int
    names: tuple[str, ...]
    rows_a: tuple[tuple[int, ...], ...]
    rows_b: tuple[tuple[int, ...], ...]
    ratio: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    p: tuple[float | None, ...]
    significant: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The score of a run at every width, and the energy per sample.

    `marks` are the widths of the answers A and B. `name` tells scores of the same run apart.
    """

    run: int
    metric: str
    unit: str
    bits: tuple[int, ...]
    score: tuple[float | None, ...]
    energy: tuple[float, ...]
    energy_unit: str
    marks: Mapping[str, int]
    name: str = ""


@dataclass(frozen=True, slots=True)
class Content:
    """All that a report shows of one result.

    `page` is what readers without scripts see; its notes are those of the report. `graphs` are laid
    out. `sources` is the text of source lines, by `file:line`. `environment` are names and values.
    `specs` describe columns that this kind of result has beside those of the node table. `first` is
    what the page opens on, by the names of `core/state.js`: the `view` in front, the `color` of the
    graph, and the column that `sort`s the table, whose first row is selected.
    """

    title: str
    kind: Kind
    page: Page
    runs: tuple[RunContent, ...] = ()
    graphs: tuple[Layout, ...] = ()
    specs: tuple[ColumnSpec, ...] = ()
    pairs: tuple[Pairs, ...] = ()
    accuracy: tuple[Accuracy, ...] = ()
    sources: Mapping[str, str] | None = None
    environment: tuple[tuple[str, str], ...] = ()
    redacted: bool = False
    first: Mapping[str, str] = field(default_factory=dict)


_STATIC_ROWS = 30
"""Rows that readers without scripts see: little beside the data of large models."""

_SHEETS = ("style", "pictures")

_PLACE = re.compile(r"\{\{(\w+)\}\}")
_ROOT = resources.files(__package__).joinpath("page")


def assembled(content: Content) -> bytes:
    """Returns the whole file. Its policy allows the one script and the one style sheet in it."""
    data, is_compressed = encoded(content)
    rules = (
        "default-src 'none'",
        f"script-src '{_digest(script())}'",
        f"style-src '{_digest(style())}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
    parts = {
        "policy": escape("; ".join(rules), quote=False),
        "title": escape(line(content.title)),
        "style": style(),
        "static": html(content.page, _STATIC_ROWS),
        "encoding": "gzip" if is_compressed else "plain",
        "data": data,
        "script": script(),
    }
    return _PLACE.sub(
        lambda place: parts[place[1]], _ROOT.joinpath("index.html").read_text("utf-8")
    ).encode()


@cache
def style() -> str:
    """Returns the style sheet: that of the page, then that of its pictures."""
    return "\n".join(_ROOT.joinpath(f"{name}.css").read_text("utf-8") for name in _SHEETS)


@cache
def script() -> str:
    """Returns all scripts as one: `core`, then `views`, each by name, and `start.js` at last."""
    files = [
        file
        for folder in ("core", "views")
        for file in sorted(_ROOT.joinpath(folder).iterdir(), key=lambda file: file.name)
        if file.name.endswith(".js")
    ]
    sources = [file.read_text("utf-8") for file in (*files, _ROOT.joinpath("start.js"))]
    return "\n".join(('"use strict";', *sources))


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


_SYSTEM = ("OS", "compiled code")
"""Facts of the environment that tell of the system rather than of what was measured."""


_NAMES = ("node", "module", "kernels", "op_type")
"""Columns whose texts may have slashes and are no paths."""


def redacted(content: Content) -> Content:
    """Returns `content` without paths, system, host name and texts of source lines."""
    columns = (run.rows[name] for run in content.runs for name in _NAMES if name in run.rows)
    names = {name for column in columns for name in column.dropna()}
    write = partial(without_paths, names=frozenset(names))
    tables = tuple(
        replace(
            table,
            title=write(table.title),
            rows=_rows(table.rows, write),
            head=tuple(map(write, table.head)),
            lines=tuple(map(write, table.lines)),
            advice=tuple(map(write, table.advice)),
        )
        for table in content.page.tables
    )
    return replace(
        content,
        title=write(content.title),
        page=Page(tables, tuple(map(write, content.page.notes)), ""),
        runs=tuple(
            replace(
                run,
                label=write(run.label),
                lines=tuple(map(write, run.lines)),
                rows=_rows(run.rows, write),
                code=tuple(map(write, run.code)),
                findings=tuple(replace(each, text=write(each.text)) for each in run.findings),
                notes=tuple(map(write, run.notes)),
            )
            for run in content.runs
        ),
        sources={},
        environment=tuple(
            (name, write(value)) for name, value in content.environment if name not in _SYSTEM
        ),
        redacted=True,
    )


_SENTENCES = ("why", "verdict", "effect")
"""Columns of texts that may name files."""


def _rows(rows: pd.DataFrame, write: Callable[[str], str]) -> pd.DataFrame:
    """Returns rows whose sources and sentences have files without their folders."""
    writers = {"source": without_paths, **dict.fromkeys(_SENTENCES, write)}
    known = writers.keys() & set(rows.columns)
    return rows.assign(**{n: rows[n].map(writers[n], na_action="ignore") for n in known})


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
    data = msgspec.json.encode(
        {
            "title": content.title,
            "kind": content.kind,
            "first": content.first,
            "redacted": content.redacted,
            "specs": _specs(content),
            "runs": [_run(run) for run in content.runs],
            "graphs": content.graphs,
            "pairs": content.pairs,
            "accuracy": content.accuracy,
            "sources": content.sources or {},
            "environment": content.environment,
            "notes": content.page.notes,
        }
    )
    if len(data) < PLAIN:
        return data.decode().translate(_ESCAPES), False
    return base64.b64encode(gzip.compress(data, compresslevel=6, mtime=0)).decode(), True


def _specs(content: Content) -> dict[str, dict[str, Any]]:
    """Returns the specs of all columns; the table of sums ranks as on one page.

    They have the order of the node table. A result's own columns follow those that name a row.
    """
    names = list(dict.fromkeys(name for run in content.runs for name in run.rows.columns))
    counted = content.kind != "whatif" and any(has_overflow(run.rows) for run in content.runs)
    ranks = {name: rank - len(JOINT) for rank, name in enumerate(JOINT)} if counted else {}
    own = {spec.name for spec in content.specs}  # may stand in place of those of the node table
    known = [spec for spec in specs_of(names) if spec.name not in own]
    at = [spec.name for spec in known].index("executor")
    every = [*known[:at], *content.specs, *known[at:]]
    if content.kind == "interpret":  # the times of an emulation tell little
        every.sort(key=lambda spec: {None: 0, "overflow": 1}.get(spec.table, 2))
    specs = (s for s in every if s.name in names or s.kind != "stored")
    return {
        spec.name: {
            key: value
            for key, value in asdict(replace(spec, rank=ranks.get(spec.name, spec.rank))).items()
            if key not in ("name", "_", "scope")
        }
        for spec in specs
    }


def _run(run: RunContent) -> dict[str, Any]:
    fields = {
        name: getattr(run, name) for name in RunContent.__slots__ if name not in ("rows", "kernels")
    }
    filled = [name for name in run.rows if run.rows[name].notna().any()]
    columns = {str(name): _column(run.rows[name]) for name in filled}
    size = len(run.rows)
    kernels = list(range(size) if run.kernels is None else run.kernels)
    return {**fields, "size": size, "kernels": kernels, "columns": columns}


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
    if value in (float("inf"), float("-inf")):  # JSON has no infinity; readers overflow to it
        return msgspec.Raw(b"1e999" if value > 0 else b"-1e999")
    return int(value) if value.is_integer() and abs(value) < 1e15 else value
