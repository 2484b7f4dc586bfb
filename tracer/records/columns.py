"""The columns of the node table: `SPECS` describes each of them, and everything else derives.

The order, the types, how rows are folded, what a terminal or a page shows, and the table in
docs/columns.md all follow from it. A new column is one line here and the analyzer that fills
it.
"""

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Literal

Dtype = Literal["string", "Int64", "float64", "Float64"]
Fold = Literal["none", "sum", "min", "max", "time_mean", "time_mode", "roof_mean", "terms_mean",
               "common"]  # fmt: skip
"""How the rows of a group become one: `time_mean` is the mean weighted by `time_us`, `roof_mean`
that of values up to 1, `terms_mean` one weighted by `terms`; `time_mode` is the value of most of
the time, `common` the value of all rows that have one, missing where they differ; `none` leaves the
column out."""

Format = Literal[
    "name", "path", "count", "nonzero", "number", "width", "micros", "si", "percent", "roof",
    "bar", "difference", "cosine", "whole", "tenths", "thousands", "decibels", "noise", "size",
    "exponent", "times",
]  # fmt: skip
"""Names of the functions in `tracer.analyzers.views.text` that write a cell."""

TableName = Literal["work", "overflow", "agreement"]
Kind = Literal["stored", "folded", "displayed"]
"""`folded` columns are in tables of grouped rows alone; `displayed` ones are computed by views."""

Scope = Literal["node", "work", "run", "data"]
"""What a value depends on: the node alone; the sizes of its inputs; the executor that ran it as
well; the values of the inputs, of which it is a statistic."""


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One column: its type, its unit, how it folds, and how it is shown.

    `header` is None for a column that only files hold. A narrow terminal shows the columns with
    the lowest `rank` first; pages show ranks below `PAGE_RANK`. `table` is the table on a terminal
    that the column belongs to, None for every one. `scope` says how traces of one model are merged.
    """

    name: str
    header: str | None
    rank: int
    sentence: str
    fold: Fold = "none"
    _: KW_ONLY
    dtype: Dtype
    unit: str
    format: Format
    table: TableName | None = "work"
    kind: Kind = "stored"
    scope: Scope = "work"

    @property
    def is_name(self) -> bool:
        """Whether the cells are text, which a narrow terminal may cut."""
        return self.format in ("name", "path")


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """How views show a field of a result's record: see `ColumnSpec` for header, rank and format."""

    header: str
    rank: int
    format: Format | Literal["score"]


def as_column(
    header: str, rank: int, format_: Format | Literal["score"] = "name"
) -> dict[str, ResultColumn]:
    """Returns the metadata of a field of a dataclass that views show as this column.

    Formats are those of columns, and `score`, in the unit of the result. A header may have places
    for what the result tells: `energy {unit}`.
    """
    return {"column": ResultColumn(header, rank, format_)}


PAGE_RANK = 12
"""Ranks from here on are for wide terminals and files, and too much for a Markdown page."""


_text = partial(ColumnSpec, dtype="string", unit="", format="name", scope="node")
_kernel = partial(ColumnSpec, dtype="string", unit="", format="name", scope="run")
_time = partial(ColumnSpec, dtype="float64", unit="µs", format="micros", scope="run")
_rate = partial(ColumnSpec, dtype="float64", unit="", format="si", scope="run")
_work = partial(ColumnSpec, dtype="Int64", unit="", format="si")
_overflow = partial(ColumnSpec, dtype="Int64", unit="", format="number", table="overflow",
                    scope="data")  # fmt: skip
_error = partial(ColumnSpec, dtype="float64", unit="", format="difference", table="overflow",
                 scope="data")  # fmt: skip
_value = partial(ColumnSpec, dtype="float64", unit="", format="difference", scope="data")
_agreement = partial(_value, table="agreement")

SPECS = (
    _text("node", "node", 0, "key of the node: its ONNX name where unique, else `OpType_<index>`",
          table=None),
    _work("index", None, 99,
          "position in the model; missing for kernels that belong to the runtime",
          format="count", table=None, scope="node"),
    _text("op_type", "op", 3, "ONNX operator", table=None),
    _text("domain", None, 99, "domain of the operator"),
    _text("module", "module", 4, "framework module of the node, dotted", table=None),
    _text("source", "source", 11, "file and line that created the node", format="path", table=None),
    _work("nodes", "nodes", 10, "nodes in the row", "sum", format="count", kind="folded"),
    _text("executor", None, 99, "executor of the run"),
    _work("batch", None, 99, "batch size of the run", format="count", scope="node"),
    _text("input_shapes", "input", 18, "types of the inputs, as `float32[1,3,32,32]`"),
    _text("output_shapes", "output", 17, "types of the outputs"),
    _rate("calls", "calls", 15, "executions per run", "sum", format="count"),
    _time("time_us", "time µs", 1, "mean time per run, without profiler overhead", "sum"),
    _time("time_us_plus_minus", "±", 5, "half the 95 % confidence interval", kind="displayed"),
    _time("time_us_total", "total µs", 4, "time with the kernels inside", kind="folded"),
    _rate("time_total_share", "total %", 8, "time with the kernels inside ÷ time of all nodes",
          format="percent", kind="folded"),
    _time("time_us_per_call", "µs/call", 6, "mean of the total over calls", kind="folded"),
    _time("time_us_p50", None, 99, "median over runs"),
    _time("time_us_p95", "p95", 12, "95th percentile over runs"),
    _time("time_us_min", None, 99, "minimum over runs"),
    _time("time_us_std", None, 99, "standard deviation over runs"),
    # errors add up in groups: rows of one operator share that of the profiler's cost
    _time("time_us_ci95_low", None, 99, "lower end of the 95 % confidence interval of the mean",
          "sum"),
    _time("time_us_ci95_high", None, 99, "upper end of the 95 % confidence interval of the mean",
          "sum"),
    _rate("time_share", "share", 2, "share of the time of all nodes", "sum", format="percent"),
    _rate("bar", "", 9, "share of the longest row", format="bar", kind="displayed"),
    _time("time_us_raw", "raw µs", 11, "mean time per run as the profiler reported it", "sum"),
    _time("time_us_replayed", "replayed µs", 3, "time per run of the kernels run in isolation"),
    _kernel("kernels", None, 99, "names of the kernels whose time is in this row"),
    _work("macs", "MACs", 5, "multiply-accumulates per run", "sum", unit="MAC"),
    _work("adds", None, 99, "additions per run", "sum"),
    _work("muls", None, 99, "multiplications per run", "sum"),
    _work("flops", "flops", 11, "operations per run: 2 x MACs + other arithmetic",
          "sum", unit="flop"),
    _work("params", "params", 10, "parameters", "sum"),
    _work("param_bytes", None, 99, "bytes of the parameters at their width", "sum", unit="B"),
    _work("bytes_read", None, 99, "bytes read per run", "sum", unit="B"),
    _work("bytes_written", None, 99, "bytes written per run", "sum", unit="B"),
    _work("bytes_moved", "bytes", 14, "bytes read and written", unit="B", kind="displayed"),
    _work("intensity", "flop/B", 16, "`flops` ÷ bytes read and written",
          dtype="Float64", unit="flop/B"),
    _rate("gflops_per_s", "GFLOP/s", 10, "`flops` ÷ time of the kernel",
          "time_mean", unit="10⁹ flop/s"),
    _rate("gbytes_per_s", "GB/s", 13, "bytes that the kernel must move ÷ its time",
          "time_mean", unit="10⁹ B/s"),
    _rate("roof_fraction", "roof", 7, "least possible time at the machine's peaks ÷ time",
          "roof_mean", format="roof"),
    _kernel("bound", "bound", 8,
            "the lower roof, `compute` or `memory`; of a kernel above it why: `cache`, `fewer ops`",
            "time_mode"),
    _work("output_bytes", None, 99, "bytes of the node's outputs", "max", unit="B"),
    _work("peak_bytes", "peak B", 11, "bytes alive while the node runs", "max", unit="B"),
    _work("arena_bytes", "arena B", 19, "bytes in use in the runtime's arena", "max", unit="B",
          scope="run"),
    _text("also_holds", "also holds", 5, "rows whose time is in this row", kind="folded"),
    _overflow("sample", "sample", 0, "number of the sample in the data, from 0", kind="folded"),
    _text("worst_node", "worst node", 3, "node with the most overflows in the sample",
          table="overflow", kind="folded"),
    _overflow("acc_min", None, 99, "least partial sum, integer units", "min"),
    _overflow("acc_max", None, 99, "greatest partial sum, integer units", "max"),
    _overflow("final_min", None, 99, "least final sum, integer units", "min"),
    _overflow("final_max", None, 99, "greatest final sum, integer units", "max"),
    _overflow("bits_observed", "observed", 2, "width that holds every observed partial sum",
              "max", unit="bits", format="width"),
    _overflow("bits_guaranteed", "guaranteed", 2, "width that holds the sums of any input",
              "max", unit="bits", format="width"),
    _overflow("bits_datatype", "datatype", 13, "width that follows from the operands' types",
              "max", unit="bits", format="width"),
    _overflow("bits", "bits", 1, "width of the accumulator",
              unit="bits", format="count", table=None),
    _overflow("outputs", "outputs", 11, "sums computed", "sum"),
    _overflow("overflow_outputs", "overflow", 1, "sums that leave the accumulator's range", "sum"),
    _rate("overflow_share", "of sums", 2, "share of sums that overflow",
          format="percent", table="overflow", kind="displayed"),
    _overflow("transient_outputs", "transient", 4, "overflows whose final sum fits", "sum"),
    _overflow("persistent_outputs", "persistent", 5, "overflows whose final sum is outside", "sum"),
    _overflow("saturation_events", "events", 12, "additions that were clipped or wrapped", "sum"),
    _overflow("outputs_changed", "changed", 9, "sums that the narrow accumulator changes", "sum"),
    _overflow("max_abs_error", "max error", 10, "greatest change of a sum, integer units", "max"),
    _text("partial_sums", "partial sums", 15, "range of the partial sums",
          table="overflow", kind="displayed"),
    _work("energy", "energy", 4, "energy per run under the chosen energy model",
          "sum", dtype="float64", unit="of the model"),
    _value("value_min", "min", 6, "minimum of the first output", "min"),
    _value("value_max", "max", 6, "maximum of the first output", "max"),
    _value("value_mean", "mean", 7, "mean of the first output"),
    _work("nan_values", "NaN", 3, "NaN in the first output", "sum", format="nonzero",
          scope="data"),
    _work("inf_values", "Inf", 3, "infinities in the first output", "sum", format="nonzero",
          scope="data"),
    _agreement("difference_own", "own error", 1,
               "greatest error ÷ greatest value, where the node reads the reference's values",
               "max"),
    _agreement("difference_max", "error", 2, "greatest error ÷ greatest value of the reference",
               "max"),
    _agreement("difference_rms", "RMS error", 4,
               "RMS of the error ÷ RMS of the reference; -20 log10 of it is the SQNR in dB", "max"),
    _agreement("difference_cosine", "cosine", 5,
               "cosine of the angle to the reference, as vectors", "min", format="cosine"),
    _agreement("difference_max_abs", "max abs", 7, "greatest absolute error", "max"),
    _kernel("timed_in", "timed in", 9, "row with the time of the kernel that contains this node"),
    _work("threads", None, 99, "threads of the run; missing where the runtime chose",
          format="count", scope="node"),
    _text("optimization", None, 99, "optimisation level of the run"),
    _text("phase", None, 99, "phase of a language model: `prefill` or `decode`"),
    _work("past", None, 99, "tokens in the cache before the run", format="count", scope="node"),
    _work("bops", "BOPs", 18, "bit operations per run: MACs x bits of both factors", "sum"),
    _time("time_us_split", "≈ part µs", 2, "estimated part of the node in the time of its kernel"),
    _text("accumulator", "accumulator", 1, "float accumulator or preset of the node",
          "common", table=None, scope="data"),
    _text("operands", "operands", 8, "format that the operands were cast to",
          "common", table="overflow", scope="data"),
    _overflow("terms", "terms", 14, "products other than 0 that float accumulators added", "sum"),
    _error("swamped_share", "swamped", 3, "share of the terms that did not change their sum",
           "terms_mean", format="percent"),
    _error("rel_error_p50", "error p50", 6, "median relative error of a sum", "common"),
    _error("rel_error_p99", "error p99", 4, "relative error that 99 % of the sums do not exceed",
           "common"),
    _overflow("bits_guaranteed_inner", "inner", 3,
              "width of registers within the sum that holds the sums of any input",
              "max", unit="bits", format="width"),
    _time("time_us_device", "device µs", 1,
          "time per run on the device of what the kernel launched; no part of `time_us`", "sum"),
    _time("time_us_host", "host µs", 6,
          "time per run on the host, where `time_us` is that on the device", "sum"),
)  # fmt: skip

JOINT = (
    "node", "time_us", "time_share", "macs", "bits_observed", "overflow_outputs", "energy",
    "op_type", "module", "bits", "bits_guaranteed", "overflow_share", "roof_fraction",
    "time_us_plus_minus", "bar",
)  # fmt: skip
"""The columns that get room first in the one table of times and overflow, in this order."""

COLUMNS = tuple(spec.name for spec in SPECS if spec.kind == "stored")
"""The node table's columns in order: the interface other programs rely on."""

BY_NAME = {spec.name: spec for spec in SPECS}

SUMMED = tuple(n for n in COLUMNS if BY_NAME[n].fold == "sum")
"""Columns that add up over nodes; a sum of missing values alone is missing."""

COMMON = tuple(n for n in COLUMNS if BY_NAME[n].fold == "common")
"""Columns that a group has where its rows agree."""

TERMS_MEANS = tuple(n for n in COLUMNS if BY_NAME[n].fold == "terms_mean")
"""Columns whose mean is weighted by `terms`."""

EXTREMES = {n: BY_NAME[n].fold for n in COLUMNS if BY_NAME[n].fold in ("min", "max")}
"""Columns of which the worst of all rows counts."""

_MARK = "@"
_RANKS_BEHIND = 2
"""A marked column gets its room on a terminal after the most important columns."""


def marked(name: str, executor: str) -> str:
    """Returns the column `name` of a second executor: `time_us@reference`."""
    return f"{name}{_MARK}{executor}"


def stored_spec(name: str) -> ColumnSpec | None:
    """Returns the spec of a column of the node table, marked or not; None for any other name.

    Only columns that depend on the run can be marked.
    """
    plain, mark, executor = name.partition(_MARK)
    spec = BY_NAME.get(plain)
    if spec is None or spec.kind != "stored":
        return None
    if not mark:
        return spec
    if spec.scope != "run" or not executor:
        return None
    return replace(
        spec,
        name=marked(spec.name, executor),
        header=None if spec.header is None else marked(spec.header, executor),
        rank=spec.rank + _RANKS_BEHIND,
        sentence=f"{spec.sentence}, under {executor}",
        fold="sum" if spec.fold == "sum" else "none",
    )


def specs_of(names: Iterable[str]) -> tuple[ColumnSpec, ...]:
    """Returns all of `SPECS`, then the specs of the marked columns among `names`."""
    others = (stored_spec(name) for name in names if name not in BY_NAME)
    return (*SPECS, *(spec for spec in others if spec is not None))


def summed(names: Iterable[str]) -> list[str]:
    """Returns `SUMMED`, and the marked columns among `names` that add up over nodes."""
    others = specs_of(names)[len(SPECS) :]
    return [*SUMMED, *(spec.name for spec in others if spec.fold == "sum")]


INTERMEDIATE = frozenset({"random_us", "systematic_us", "misfit_us"})
"""Columns that `analyzers.timing` hands to `analyzers.compare`, and that no table keeps."""
