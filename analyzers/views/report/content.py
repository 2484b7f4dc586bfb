"""What a report shows. Each field is in the file under its name, so scripts read the same words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from analyzers.views.page import Page

Kind = Literal["profile", "interpret", "count", "whatif", "compare", "fusions", "quantize"]
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
    """Peak rates per second: flop, integer operations, bytes; `threads` reached them."""

    float32: float
    int8: float | None
    memory: float
    threads: int


@dataclass(frozen=True, slots=True)
class Widths:
    """How many sums overflow at every width. Entry i of a list is about the row `rows[i]`.

    `overflow[i][j]` sums of the row leave a range of `bits[j]` bits, and of `persistent[i][j]` the
    final sum does too. `accumulator` names order and overflow mode of each row.
    """

    rows: tuple[int, ...]
    bits: tuple[int, ...]
    overflow: tuple[tuple[int, ...], ...]
    persistent: tuple[tuple[int, ...], ...]
    outputs: tuple[int, ...]
    accumulator: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunContent:
    """One run, or one side of a comparison, whose `letter` is A or B.

    `rows` have the columns of the node table and those that views compute. Rows with the same entry
    of `kernels` share a kernel. `graph` is the position of its graph in the report.
    """

    label: str
    lines: tuple[str, ...]
    rows: pd.DataFrame
    kernels: Sequence[int]
    letter: Literal["A", "B"] | None = None
    sum: Sum | None = None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    roofs: Roofs | None = None
    widths: Widths | None = None
    graph: int | None = None


@dataclass(frozen=True, slots=True)
class Pairs:
    """Layers of two runs: the rows of each side, and how their times differ.

    `ratio` is B ÷ A, between `low` and `high` with the level of the comparison; `p` is its p-value,
    adjusted for the number of layers. `significant` says which differences are not noise.
    """

    a: int
    b: int
    rows_a: tuple[tuple[int, ...], ...]
    rows_b: tuple[tuple[int, ...], ...]
    ratio: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    p: tuple[float | None, ...]
    significant: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The score of one variant at every width; `marks` are the widths of the answers A and B."""

    label: str
    metric: str
    unit: str
    bits: tuple[int, ...]
    score: tuple[float | None, ...]
    marks: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Content:
    """All that a report shows of one result.

    `page` is what readers without scripts see. `graphs` are laid out. `sources` is the text of
    source lines, by `file:line`. `environment` are names and values.
    """

    title: str
    kind: Kind
    page: Page
    runs: tuple[RunContent, ...] = ()
    graphs: tuple[Any, ...] = ()
    pairs: Pairs | None = None
    accuracy: tuple[Accuracy, ...] = ()
    sources: Mapping[str, str] | None = None
    environment: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    redacted: bool = False
