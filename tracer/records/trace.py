"""Trace, Run, Turns and Kernel: what ran, how long, and a table with a row per node.

An executor makes a `Run`, or `Turns` beside those of other models; analyzers turn runs into columns
of the node table; a `Trace` holds both, and a view renders it. `records.counted_runs` says which
runs count.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracer.errors import UsageError
from tracer.graph.tensor_type import CallTypes, TensorType
from tracer.records import environment
from tracer.records.columns import BY_NAME, INTERMEDIATE, Dtype, stored_spec
from tracer.records.columns import COLUMNS as COLUMNS  # part of the interface beside Trace
from tracer.records.counted_runs import CountedRuns, MachineUse, counted_runs
from tracer.records.environment import Environment
from tracer.records.model_info import ModelInfo
from tracer.records.result import Result, ViewOptions
from tracer.support.tolerance import Difference
from tracer.support.types import FloatArray
from tracer.text import plural

if TYPE_CHECKING:
    from pathlib import Path

    from tracer.accumulators.statistics.float_partial_sums import FloatPartialSums
    from tracer.accumulators.statistics.partial_sums import PartialSums, SampleSums
    from tracer.analyzers.compare import Comparison
    from tracer.interpreter.observers import Statistics

EMULATED = "times are those of emulating the accumulators"
"""The note of a run with narrow accumulators."""

BACKWARD = " (backward)"
"""Ends the `node` and the `op_type` of the row of an operator's backward pass."""
BACKWARD_PHASE = "backward"
"""The phase in which an operator without a forward operator belongs to the row before it."""
BUSY = "the card was busy "
"""Begins the note on the share of a run in which an accelerator worked."""

INCOMPLETE = "incomplete: "
"""Begins the note of a trace without all the runs that were asked for."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that a runtime ran: one node or several fused nodes.

    `name` speaks of nodes by their keys. `node` is the key of the node whose name this is or is
    derived from, if any; which nodes a kernel stands for is the attribution's to say. `inputs`
    and `outputs` are tensor names of the graph that ran, `scope` the path of that graph. When it
    had run for the first time, `arena_bytes` of the runtime's memory were in use, and never more
    than `arena_peak_bytes` until then; None where the runtime does not tell. `parts` are the nodes
    of a subgraph that the runtime compiled into this kernel, as the kernels that they would be, in
    their order. What the kernel launched took `device_us` on the device per run, a time that is not
    in the samples of a run; None where nothing measured it. `varying` are the types of calls whose
    types differ, where all calls were looked at; a size that differs is None in `output_types`.
    Where samples are times on the device, `host_us` is the kernel's own time on the host, µs per
    run; None elsewhere.
    """

    name: str
    op_type: str
    domain: str
    provider: str
    node: str | None
    scope: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[str, ...]
    input_types: tuple[TensorType, ...]
    output_types: tuple[TensorType, ...]
    calls: float
    arena_bytes: int | None = None
    arena_peak_bytes: int | None = None
    parts: tuple[Kernel, ...] = ()
    device_us: float | None = None
    varying: tuple[CallTypes, ...] = ()
    host_us: float | None = None

    @property
    def is_compiled(self) -> bool:
        """Whether it is a subgraph that a provider compiled."""
        return environment.is_compiled(self.provider, self.op_type, self.name)


@dataclass(frozen=True, slots=True)
class NodeValues:
    """Statistics of a node's first output, and its difference from a reference.

    `own` is the difference where the node reads the values of the reference: what it adds itself.
    None where the values are not numbers, or were not compared.
    """

    node: str
    statistics: Statistics | None
    difference: Difference | None = None
    own: Difference | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One executor on one batch size, over many inferences.

    `wall_us` are inferences without the instrument, µs each. `instrumented_us` are those with
    it, and `samples` (inferences × kernels) the self time of each kernel in them, as the
    instrument reported it; `bias_us` is what it adds to one call of each kernel, off by
    `bias_error_us` (standard deviation) for a single kernel, and `tick_us` the step of its clock.
    `empty_us` are inferences of the same inputs without a node, whose outputs have few bytes, where
    there are any; `returning_us` is what it takes to hand the outputs of the model to the caller
    beyond that, NaN where it was not measured. `use` tells how busy the machine was, if known;
    `replayed_us` the time of one call of each kernel that was run alone, NaN for the others. `sums`
    are those of nodes with a narrow accumulator, `float_sums` of nodes with a float accumulator, in
    the order of the model; `sums_by_sample` are those of each sample, where they were asked for.
    `values` describe the values of nodes, in the order they ran; a file has them as columns of the
    node table alone. `threads` is None where the runtime chose them, `optimization` where it has no
    levels. `phase` is `prefill` or `decode` of a language model with `past` tokens in its cache,
    None of any other run.
    """

    KEY: ClassVar = ("executor", "batch", "threads", "optimization", "phase", "past")
    """Fields that tell the runs of a trace apart, which are columns of the node table as well."""

    executor: str
    batch: int | None
    inputs: Mapping[str, str]
    wall_us: FloatArray = field(repr=False)
    instrumented_us: FloatArray = field(repr=False)
    samples: FloatArray = field(repr=False)
    bias_us: FloatArray = field(repr=False)
    kernels: tuple[Kernel, ...] = field(repr=False)
    notes: tuple[str, ...] = ()
    sums: tuple[PartialSums, ...] = field(default=(), repr=False)
    bias_error_us: FloatArray | None = field(default=None, repr=False)
    tick_us: float = 0.0
    empty_us: FloatArray | None = field(default=None, repr=False)
    replayed_us: FloatArray | None = field(default=None, repr=False)
    values: tuple[NodeValues, ...] = field(default=(), repr=False)
    sums_by_sample: SampleSums | None = field(default=None, repr=False)
    float_sums: tuple[FloatPartialSums, ...] = field(default=(), repr=False)
    threads: int | None = None
    optimization: str | None = None
    phase: str | None = None
    past: int | None = None
    returning_us: float = math.nan
    use: MachineUse | None = field(default=None, repr=False)

    @property
    def median_us(self) -> float:
        """The median of the undisturbed runs without the instrument, µs."""
        return float(np.median(self.counted.wall_us))

    @property
    def summary(self) -> str:
        """The number of runs and their time; that of emulated runs says nothing of hardware."""
        runs = plural(len(self.wall_us), "run")
        if self.is_emulated:
            return runs
        median = self.median_us
        time = f"{median:,.0f}" if median >= 100 else f"{median:.3g}"
        return f"{runs} of {time} µs{' on a busy machine' * self.counted.is_busy}"

    @property
    def counted(self) -> CountedRuns:
        """The runs that count; disturbed ones and outliers are left out."""
        return counted_runs(self.wall_us, self.instrumented_us, self.samples, self.use)

    @property
    def is_emulated(self) -> bool:
        """Whether sums were computed as an accumulator does: then times are those of emulation."""
        return bool(self.sums or self.float_sums)

    @property
    def is_on_device(self) -> bool:
        """Whether samples are times on an accelerator, which works while the host goes on."""
        return any(kernel.host_us is not None for kernel in self.kernels)

    @property
    def has_undisturbed(self) -> bool:
        """Whether runs without the instrument were timed; another program's profile has none."""
        return not np.array_equal(self.wall_us, self.instrumented_us)

    @property
    def key(self) -> dict[str, str | int | None]:
        """The fields of `KEY`: the cells of this run's rows in columns of these names."""
        return {name: getattr(self, name) for name in self.KEY}


def distinctions(runs: Sequence[Run], always: Collection[str] = ()) -> tuple[str, ...]:
    """Returns what tells each run from the others, as in `batch 4, threads 2`.

    A single run has the text ''. The columns `always` are named even where they do not differ.
    """
    keys = [run.key for run in runs]
    named = [n for n in Run.KEY if n in always or len({key[n] for key in keys}) > 1]
    return tuple(
        ", ".join(str(key[n]) if n == "executor" else f"{n} {key[n]}" for n in named)
        for key in keys
    )


@dataclass(frozen=True, slots=True)
class Turns:
    """Times of runs in µs; the runs of a turn lie together, between turns of other sides.

    `profiled_us` (turns × runs) are recorded runs, and `samples_us` (turns × runs × kernels) the
    own times that the profiler tells of their `kernels`, which are listed by name. `wall_us` (runs)
    are undisturbed runs before the first turn, and `empty_us` runs without nodes, if measured.
    """

    kernels: tuple[str, ...]
    samples_us: FloatArray = field(repr=False)
    profiled_us: FloatArray = field(repr=False)
    wall_us: FloatArray = field(repr=False)
    empty_us: FloatArray | None = field(default=None, repr=False)

    def __len__(self) -> int:
        """Returns the number of turns."""
        return len(self.samples_us)

    def head(self, count: int) -> Turns:
        """Returns the first turns."""
        samples, profiled = self.samples_us[:count], self.profiled_us[:count]
        return Turns(self.kernels, samples, profiled, self.wall_us, self.empty_us)


@dataclass(frozen=True, slots=True)
class CacheSize:
    """What a token of the cache takes: keys and values of `layers`, bytes of one batch entry.

    `heads` × `head_size` numbers of `dtype` are a key. `token_bytes` is 2 × layers × heads × size ×
    bytes of a number where all layers are alike, else their sum.
    """

    layers: int
    heads: int
    head_size: int
    dtype: str
    token_bytes: int

    def nbytes(self, batch: int, tokens: int) -> int:
        """Returns the bytes of `tokens` tokens of `batch` entries, by the formula."""
        return batch * tokens * self.token_bytes


@dataclass(frozen=True, slots=True)
class Generated:
    """Whole generations in one configuration: prefills, each with its decode steps; µs.

    `step_us` has a row for each generation; each step reads the cache that the step before
    returned. `allocated_bytes` are those of the cache that the last step returned.
    """

    batch: int
    threads: int | None
    optimization: str | None
    prefill_us: tuple[float, ...] = field(repr=False)
    step_us: tuple[tuple[float, ...], ...] = field(repr=False)
    allocated_bytes: int


@dataclass(frozen=True, slots=True)
class Generation:
    """The phases of a trace: tokens of the prefill, decode steps after it, and the cache.

    `measured` is empty for a count.
    """

    prefill: int
    decode: int | None
    cache: CacheSize
    measured: tuple[Generated, ...] = ()


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Trace(Result):
    """One model, its runs, and the node table over all of them (see `tracer.records.columns`).

    `nodes` is the table that is saved and shown: change a copy, `trace.nodes.copy()`.

    `generation` tells of the phases of a language model, where the runs are those of phases.
    """

    view: ClassVar[str] = "tracer.analyzers.views.trace"

    model: ModelInfo
    environment: Environment
    settings: Mapping[str, Any]
    runs: tuple[Run, ...]
    nodes: pd.DataFrame
    notes: tuple[str, ...] = ()
    generation: Generation | None = None

    @property
    def is_incomplete(self) -> bool:
        """Whether the measurement was broken off."""
        return any(note.startswith(INCOMPLETE) for note in self.notes)

    @property
    def wall_us(self) -> float:
        """The median time of an undisturbed run, µs, which the headline has behind the mean.

        Raises UsageError for a trace that has not one run: `runs` has the `median_us` of each.

        >>> import tracer
        >>> tracer.profile("models/lenet/lenet.onnx", runs=10).wall_us > 0
        True
        """
        if len(self.runs) != 1:
            raise UsageError(
                f"{self.model.name}: the trace has {plural(len(self.runs), 'run')}, not one",
                "Read [run.median_us for run in trace.runs].",
            )
        return self.runs[0].median_us

    def top(self, count: int = 10, by: str = "node") -> pd.DataFrame:
        """Returns the `count` slowest rows, or without times those with the most MACs.

        Nodes that ran in one kernel share a row. `by` is `node`, `op`, `module`, `source` or
        `kernel`. The columns are the main ones of the page; `to_pandas` has all.

        >>> import tracer
        >>> tracer.count("models/lenet/lenet.onnx").top(2)[["node", "op_type", "macs"]]
                   node op_type    macs
        0  node_Conv_22    Conv  352800
        1  node_Conv_23    Conv  240000
        """
        views = importlib.import_module("tracer.analyzers.views.trace")
        rows: pd.DataFrame = views.top(self, ViewOptions(by=by, top=count))
        return rows

    def compare(self, *others: Trace | str | Path, by: str = "layer") -> Comparison:
        """Compares other traces, or models that are run now, with this trace: `tracer.compare`.

        >>> import tracer
        >>> trace = tracer.profile("models/lenet/lenet.onnx", runs=10)
        >>> trace.compare(trace).totals["ratio"].tolist()
        [1.0, 1.0]
        """
        api = importlib.import_module("tracer.api.compare")
        comparison: Comparison = api.compare([self, *others], by=by)
        return comparison

    def headline(self) -> str:
        """The model, its nodes, and each run."""
        told = distinctions(self.runs, always=("executor", "batch"))
        runs = [f"{text}, {run.summary}" for text, run in zip(told, self.runs, strict=True)]
        nodes = f"{self.model.name}, {plural(self.model.nodes, 'node')}"
        return "; ".join([nodes, *(runs or ["not run"])])


def typed_table(table: pd.DataFrame) -> pd.DataFrame:
    """All columns in their order, each with its type; columns that `table` lacks are missing.

    Raises ValueError for a column that has no `ColumnSpec`.
    """
    specs = {name: spec for name in table.columns if (spec := stored_spec(name)) is not None}
    unknown = sorted(set(table.columns) - set(specs) - INTERMEDIATE)
    if unknown:
        raise ValueError(f"no ColumnSpec in tracer/records/columns.py names {', '.join(unknown)}")
    names = [*COLUMNS, *(name for name in specs if name not in COLUMNS)]
    lacking = {dtype: pd.array(np.full(len(table), np.nan), dtype) for dtype in get_args(Dtype)}
    given, columns = dict(table.items()), dict[str, Any]()
    for name in names:
        dtype = (specs.get(name) or BY_NAME[name]).dtype
        column = given.get(name)
        if column is None:
            columns[name] = lacking[dtype]
        elif column.dtype.name == dtype:
            columns[name] = column.array
        else:
            numbers = pd.to_numeric(column) if dtype == "Int64" else column
            columns[name] = numbers.astype(dtype).array
    return pd.DataFrame(columns, index=pd.RangeIndex(len(table)))


def plain_cells(column: pd.Series[Any]) -> npt.NDArray[Any]:
    """Returns the cells of a column: numbers as float64, NaN where they are missing, else objects.

    Rows of such columns are chosen and read several times as fast as those of pandas' own types.
    """
    if pd.api.types.is_numeric_dtype(column):
        return column.to_numpy("float64", na_value=math.nan)
    return column.to_numpy(object)
