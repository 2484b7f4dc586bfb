"""The report: one HTML file that shows a result from several sides, with one selection for all.

    result ──report()──► Content ──encoding──► data ──┐
                            │                         ├─ assembly ──► one file
                            └── static: its page ─────┤
                                page/*.html, *.css, *.js

A view module with a function `report` gives its result the format `.html`. Python computes every
number; the scripts in `page/` format, fold and draw them.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pandas as pd

from tracer.analyzers.views.page import Page
from tracer.analyzers.views.report.layout import Layout, laid_out
from tracer.records.columns import ColumnSpec
from tracer.records.model_info import ModelInfo
from tracer.text import printable

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
    `kernels` share a kernel. With the same entry of `folded`, which is None where it is the same,
    they are one row of a table that folds constants and conversions into the node that they serve.
    `prefix` are folders that most names begin with, and that long ones leave out. `graph` is the
    position of its graph in the report, `code` what to type or run.
    """

    label: str
    lines: tuple[str, ...]
    rows: pd.DataFrame
    kernels: Sequence[int]
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

    `page` is what readers without scripts see. `graphs` are laid out. `sources` is the text of
    source lines, by `file:line`. `environment` are names and values. `specs` describe columns that
    this kind of result has beside those of the node table. `first` is what the page opens on, by
    the names of `core/state.js`: the `view` in front, the `color` of the graph, and the column that
    `sort`s the table, whose first row is selected.
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
    notes: tuple[str, ...] = ()
    redacted: bool = False
    first: Mapping[str, str] = field(default_factory=dict)
