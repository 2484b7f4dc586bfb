"""The columns of the node table: `SPECS` describes each of them, and everything else derives.

The order, the types, how rows are folded, what a terminal or a page shows, and the table in
docs/architecture.md all follow from it. A new column is one line here and the analyzer that fills
it.
"""

from dataclasses import dataclass
from typing import Literal

Dtype = Literal["string", "Int64", "float64", "Float64"]
Fold = Literal["none", "sum", "min", "max", "time_mean", "time_mode"]
"""How the rows of a group become one: `time_mean` is the mean weighted by `time_us`, `time_mode`
the value of most of the time, `none` leaves the column out."""

Format = Literal[
    "name", "path", "count", "nonzero", "number", "width", "micros", "si", "percent", "roof",
    "bar", "difference",
]  # fmt: skip
"""Names of the functions in `analyzers.views.text` that write a cell."""

TableName = Literal["work", "overflow"]
Kind = Literal["stored", "folded", "displayed"]
"""`folded` columns are in tables of grouped rows alone; `displayed` ones are computed by views."""


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One column: its type, its unit, how it folds, and how it is shown.

    `header` is None for a column that only files hold. A narrow terminal shows the columns with
    the lowest `rank` first; pages show ranks below `PAGE_RANK`. `table` is the table on a terminal
    that the column belongs to, None for every one.
    """

    name: str
    dtype: Dtype
    unit: str
    fold: Fold
    header: str | None
    format: Format
    rank: int
    sentence: str
    table: TableName | None = "work"
    kind: Kind = "stored"

    @property
    def is_name(self) -> bool:
        """Whether the cells are text, which a narrow terminal may cut."""
        return self.format in ("name", "path")


PAGE_RANK = 12
"""Ranks from here on are for wide terminals and files, and too much for a Markdown page."""


def _text(
    name: str,
    header: str | None,
    rank: int,
    sentence: str,
    kind: Kind = "stored",
    table: TableName | None = "work",
) -> ColumnSpec:
    form: Format = "path" if name == "source" else "name"
    return ColumnSpec(name, "string", "", "none", header, form, rank, sentence, table, kind)


def _time(
    name: str,
    header: str | None,
    rank: int,
    sentence: str,
    fold: Fold = "none",
    kind: Kind = "stored",
) -> ColumnSpec:
    return ColumnSpec(name, "float64", "µs", fold, header, "micros", rank, sentence, kind=kind)


def _whole(
    name: str,
    unit: str,
    fold: Fold,
    header: str | None,
    rank: int,
    sentence: str,
    kind: Kind = "stored",
) -> ColumnSpec:
    return ColumnSpec(name, "Int64", unit, fold, header, "si", rank, sentence, kind=kind)


def _overflow(
    name: str, fold: Fold, header: str | None, rank: int, sentence: str, form: Format = "number"
) -> ColumnSpec:
    unit = "bits" if name.startswith("bits") else ""
    return ColumnSpec(name, "Int64", unit, fold, header, form, rank, sentence, "overflow")


def _value(
    name: str, dtype: Dtype, fold: Fold, header: str, form: Format, rank: int, sentence: str
) -> ColumnSpec:
    return ColumnSpec(name, dtype, "", fold, header, form, rank, sentence)


SPECS = (
    _text("node", "node", 0, "key of the node: its ONNX name where unique, else `OpType_<index>`",
          table=None),
    ColumnSpec("index", "Int64", "", "none", None, "count", 99,
               "position in the model; missing for kernels that belong to the runtime", None),
    _text("op_type", "op", 3, "ONNX operator", table=None),
    _text("domain", None, 99, "domain of the operator"),
    _text("module", "module", 6, "framework module of the node, dotted", table=None),
    _text("source", "source", 11, "file and line that created the node", table=None),
    ColumnSpec("nodes", "Int64", "", "sum", "nodes", "count", 10, "nodes in the row", "work",
               "folded"),
    _text("executor", None, 99, "executor of the run"),
    ColumnSpec("batch", "Int64", "", "none", None, "count", 99, "batch size of the run"),
    _text("input_shapes", "input", 18, "types of the inputs, as `float32[1,3,32,32]`"),
    _text("output_shapes", "output", 17, "types of the outputs"),
    ColumnSpec("calls", "float64", "", "sum", "calls", "count", 15, "executions per run"),
    _time("time_us", "time µs", 1, "mean time per run, without profiler overhead", "sum"),
    _time("time_us_plus_minus", "±", 5, "half the 95 % confidence interval", kind="displayed"),
    _time("time_us_total", "total µs", 4, "time with the kernels inside", kind="folded"),
    _time("time_us_per_call", "µs/call", 6, "mean of the total over calls", kind="folded"),
    _time("time_us_p50", None, 99, "median over runs"),
    _time("time_us_p95", "p95", 12, "95th percentile over runs"),
    _time("time_us_min", None, 99, "minimum over runs"),
    _time("time_us_std", None, 99, "standard deviation over runs"),
    _time("time_us_ci95_low", None, 99, "lower end of the 95 % confidence interval of the mean"),
    _time("time_us_ci95_high", None, 99, "upper end of the 95 % confidence interval of the mean"),
    ColumnSpec("time_share", "float64", "", "sum", "share", "percent", 2,
               "share of the time of all nodes"),
    ColumnSpec("bar", "float64", "", "none", "", "bar", 7, "share of the longest row",
               kind="displayed"),
    _time("time_us_raw", "raw µs", 9, "mean time per run as the profiler reported it", "sum"),
    _time("time_us_replayed", "replayed µs", 3, "time per run of the kernels run in isolation"),
    _text("kernels", None, 99, "names of the kernels whose time is in this row"),
    _whole("macs", "MAC", "sum", "MACs", 4, "multiply-accumulates per run"),
    _whole("adds", "", "sum", None, 99, "additions per run"),
    _whole("muls", "", "sum", None, 99, "multiplications per run"),
    _whole("flops", "flop", "sum", "flops", 11, "operations per run: 2 x MACs + other arithmetic"),
    _whole("params", "", "sum", "params", 8, "parameters"),
    _whole("param_bytes", "B", "sum", None, 99, "bytes of the parameters"),
    _whole("bytes_read", "B", "sum", None, 99, "bytes read per run"),
    _whole("bytes_written", "B", "sum", None, 99, "bytes written per run"),
    _whole("bytes_moved", "B", "none", "bytes", 14, "bytes read and written", "displayed"),
    ColumnSpec("intensity", "Float64", "flop/B", "none", "flop/B", "si", 16,
               "`flops` ÷ bytes read and written"),
    ColumnSpec("gflops_per_s", "float64", "10⁹ flop/s", "time_mean", "GFLOP/s", "si", 10,
               "`flops` ÷ time of the kernel"),
    ColumnSpec("gbytes_per_s", "float64", "10⁹ B/s", "time_mean", "GB/s", "si", 13,
               "bytes that the kernel must move ÷ its time"),
    ColumnSpec("roof_fraction", "float64", "", "time_mean", "roof", "roof", 8,
               "least possible time at the machine's peaks ÷ time"),
    ColumnSpec("bound", "string", "", "time_mode", "bound", "name", 9,
               "peak that limits the kernel: `compute` or `memory`"),
    _whole("output_bytes", "B", "max", None, 99, "bytes of the node's outputs"),
    _whole("peak_bytes", "B", "max", "peak B", 11, "bytes alive while the node runs"),
    _whole("arena_bytes", "B", "max", "arena B", 19, "bytes in use in the runtime's arena"),
    _text("also_holds", "also holds", 5, "rows whose time is in this row", "folded"),
    _text("timed_in", "timed in", 9, "rows that hold time of this row", "folded"),
    _overflow("acc_min", "min", None, 99, "least partial sum, integer units"),
    _overflow("acc_max", "max", None, 99, "greatest partial sum, integer units"),
    _overflow("final_min", "min", None, 99, "least final sum, integer units"),
    _overflow("final_max", "max", None, 99, "greatest final sum, integer units"),
    _overflow("bits_observed", "max", "observed", 2, "width that holds every observed partial sum",
              "width"),
    _overflow("bits_guaranteed", "max", "guaranteed", 2, "width that holds the sums of any input",
              "width"),
    _overflow("bits_datatype", "max", "datatype", 13, "width that follows from the operands' types",
              "width"),
    _overflow("bits", "none", "bits", 1, "width of the accumulator", "count"),
    _overflow("outputs", "sum", "outputs", 11, "sums computed"),
    _overflow("overflow_outputs", "sum", "overflow", 1, "sums that leave the accumulator's range"),
    ColumnSpec("overflow_share", "float64", "", "none", "share", "percent", 2,
               "share of sums that overflow", "overflow", "displayed"),
    _overflow("transient_outputs", "sum", "transient", 4, "overflows whose final sum fits"),
    _overflow("persistent_outputs", "sum", "persistent", 5, "overflows whose final sum is outside"),
    _overflow("saturation_events", "sum", "events", 12, "additions that were clipped or wrapped"),
    _overflow("outputs_changed", "sum", "changed", 9, "sums that the narrow accumulator changes"),
    _overflow("max_abs_error", "max", "max error", 10, "greatest change of a sum, integer units"),
    _text("partial_sums", "partial sums", 15, "range of the partial sums", "displayed", "overflow"),
    ColumnSpec("energy", "float64", "of the model", "sum", "energy", "si", 7,
               "energy per run under the chosen energy model"),
    _value("value_min", "float64", "min", "min", "difference", 4, "minimum of the first output"),
    _value("value_max", "float64", "max", "max", "difference", 4, "maximum of the first output"),
    _value("value_mean", "float64", "none", "mean", "difference", 7, "mean of the first output"),
    _value("nan_values", "Int64", "sum", "NaN", "nonzero", 3, "NaN in the first output"),
    _value("inf_values", "Int64", "sum", "Inf", "nonzero", 3, "infinities in the first output"),
    _value("difference_max_abs", "float64", "max", "max abs", "difference", 2,
           "greatest absolute difference from the reference"),
    _value("difference_max_rel", "float64", "max", "max rel", "difference", 2,
           "greatest relative difference from the reference"),
    _value("difference_max_ulp", "float64", "max", "ULP", "difference", 3,
           "greatest difference from the reference in units in the last place"),
)  # fmt: skip

COLUMNS = tuple(spec.name for spec in SPECS if spec.kind == "stored")
"""The node table's columns in order: the interface other programs rely on."""

BY_NAME = {spec.name: spec for spec in SPECS}

SUMMED = tuple(n for n in COLUMNS if BY_NAME[n].fold == "sum")
"""Columns that add up over nodes; a sum of missing values alone is missing."""

EXTREMES = {n: BY_NAME[n].fold for n in COLUMNS if BY_NAME[n].fold in ("min", "max")}
"""Columns of which the worst of all rows counts."""

INTERMEDIATE = frozenset({"random_us", "systematic_us"})
"""Columns that `analyzers.timing` hands to `analyzers.compare`, and that no table keeps."""
