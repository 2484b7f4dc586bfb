"""The node table: columns of all analyzers joined, columns of values, and tables of several traces.

`merge` takes the rows of the base: the first trace with times of the model itself, else the first
trace. Every other trace adds

- rows, if its executor is the base's, and its batch size, threads or optimisation are others;
- its columns of times, marked with the name of its executor, to the rows of the same batch size;
- every other column that the rows lack. Statistics over data belong to rows of every batch size.

An emulation of accumulators adds its statistics. Its times are left out: they say nothing of the
hardware that it emulates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tracer.errors import InputError
from tracer.graph.model import Model, Node
from tracer.graph.shape_inference import TensorTypes
from tracer.records.columns import BY_NAME, COLUMNS, marked, stored_spec
from tracer.records.environment import Environment
from tracer.records.trace import (
    BACKWARD,
    BACKWARD_PHASE,
    EMULATED,
    NodeValues,
    Run,
    Trace,
    typed_table,
)

OF_RUN = tuple(name for name in COLUMNS if BY_NAME[name].scope == "run")
"""Columns that depend on the executor; a merged trace has them once for each."""
MERGED = "merged"
"""The setting that holds the settings and the environment of every trace but the base."""

_OF_DATA = tuple(name for name in COLUMNS if BY_NAME[name].scope == "data")
_SUMS = tuple(name for name in _OF_DATA if BY_NAME[name].table == "overflow")
_WORK = tuple(name for name in COLUMNS if BY_NAME[name].scope == "work" and name != "energy")
_ENERGY = "energy"
_COUNTED = "outputs"
"""The column that every node with counted sums has."""


def node_table(
    model: Model, types: TensorTypes, parts: Sequence[pd.DataFrame], run: Run | None = None
) -> pd.DataFrame:
    """A row for each node of `model` in its order, then the runtime's own kernels.

    `parts` are the columns of the analyzers, indexed by node key. Columns nobody filled are
    missing values.
    """
    nodes = model.nodes
    texts: dict[tuple[int, ...], str] = {}
    columns = {
        "index": [node.index for node in nodes],
        "op_type": [node.op_type for node in nodes],
        "domain": [node.domain for node in nodes],
        "module": [node.module for node in nodes],
        "source": [node.source for node in nodes],
        "input_shapes": [_shapes(node.inputs, node, types, texts) for node in nodes],
        "output_shapes": [_shapes(node.outputs, node, types, texts) for node in nodes],
    }
    keys = [node.key for node in nodes]
    identity = pd.DataFrame(columns, index=pd.Index(keys, dtype="object"))
    known = set(identity.index)
    extra = list(dict.fromkeys(key for part in parts for key in part.index if key not in known))
    rows = pd.Index([*identity.index, *extra], dtype="object")
    columns_of_rows = [
        part.set_axis(rows) if part.index.equals(rows) else part.reindex(rows)
        for part in (identity, *parts)
    ]
    table = pd.concat(columns_of_rows, axis=1)
    table["node"] = table.index
    if run is not None:
        table = table.assign(**run.key)
        by_name = {kernel.name: kernel for kernel in run.kernels}
        for key in extra:  # kernels without nodes are described by the profile
            kernel = by_name.get(str(table.at[key, "kernels"]))
            if kernel is not None:
                table.at[key, "op_type"] = kernel.op_type
                table.at[key, "domain"] = kernel.domain
                table.at[key, "input_shapes"] = ", ".join(map(str, kernel.input_types))
                table.at[key, "output_shapes"] = ", ".join(map(str, kernel.output_types))
                table.at[key, "arena_bytes"] = kernel.arena_bytes
    return typed_table(table)


def own_rows(trace: Trace, run: Run) -> pd.DataFrame:
    """Returns the rows of one run of a trace; none for a run that is joined to another's rows."""
    nodes = trace.nodes
    own = pd.Series(True, nodes.index)
    for name, value in run.key.items():
        own &= nodes[name].isna() if value is None else (nodes[name] == value).fillna(False)
    return nodes if own.all() else nodes[own.astype(bool)]


def rows_of(trace: Trace, run: Run) -> pd.DataFrame:
    """Returns the rows of one run of a trace.

    In a merged trace, the columns of a run that is joined to another's rows lose their mark.
    """
    own = own_rows(trace, run)
    names = {marked(name, run.executor): name for name in OF_RUN}
    if len(own) or names.keys().isdisjoint(trace.nodes):
        return own
    joined = trace.nodes[of_batch(trace.nodes, run.batch)].drop_duplicates("node")
    return typed_table(joined.drop(columns=list(OF_RUN)).rename(columns=names).assign(**run.key))


def of_batch(nodes: pd.DataFrame, batch: int | None) -> pd.Series[bool]:
    """Returns which rows of a node table are of this batch size."""
    same = nodes["batch"].isna() if batch is None else nodes["batch"] == batch
    return same.fillna(False).astype(bool)


def _shapes(
    names: Sequence[str], node: Node, types: TensorTypes, texts: dict[tuple[int, ...], str]
) -> str:
    """Returns the types of tensors; `texts` has what earlier nodes with the same types have."""
    kinds = [types.of(name, node.scope) for name in names if name]
    key = tuple(map(id, kinds))
    text = texts.get(key)
    if text is None:
        text = texts[key] = ", ".join([str(kind or "?") for kind in kinds])
    return text


_STATISTICS = {
    "value_min": "minimum", "value_max": "maximum", "value_mean": "mean",
    "nan_values": "nan", "inf_values": "inf",
}  # fmt: skip
DIFFERENCES = {
    "difference_max": "max_share", "difference_rms": "rms_share", "difference_cosine": "cosine",
    "difference_max_abs": "max_abs",
}  # fmt: skip
"""Columns of the node table, and the fields of `Difference` that they hold."""


def value_columns(values: Sequence[NodeValues]) -> pd.DataFrame:
    """Returns the value columns (float64), indexed by node key; missing where not measured."""
    rows = {
        node.node: {
            **{name: getattr(node.statistics, field, None) for name, field in _STATISTICS.items()},
            **{name: getattr(node.difference, field, None) for name, field in DIFFERENCES.items()},
            "difference_own": getattr(node.own, "max_share", None),
        }
        for node in values
    }
    columns = [*_STATISTICS, "difference_own", *DIFFERENCES]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).astype("float64")


def origins(values: Sequence[NodeValues]) -> Sequence[NodeValues]:
    """Returns the nodes that differ beyond the tolerance on the reference's own values.

    They are in the order in which they ran. The other nodes that differ pass on the rounding of
    the nodes before them.
    """
    return [node for node in values if node.own is not None and node.own.fault]


@dataclass(frozen=True, slots=True)
class Source:
    """A trace, and its name in messages."""

    label: str
    trace: Trace

    @property
    def timed(self) -> tuple[Run, ...]:
        """The runs with times of the model itself."""
        return tuple(run for run in self.trace.runs if not run.is_emulated)


def merged(sources: Sequence[Source]) -> Trace:
    """Returns one trace with the runs, the notes and the settings of all `sources`.

    Raises InputError for traces of different models, for two that timed the same executor at one
    batch size or both counted overflow, and for times at a batch size that the base lacks.
    """
    base = next((source for source in sources if source.timed), sources[0])
    others = [source for source in sources if source is not base]
    ours = base.trace.model
    for other in others:
        theirs = other.trace.model
        if ours.sha256 != theirs.sha256:
            raise InputError(
                f"{base.label} is a trace of {ours.name} (sha256 {ours.sha256[:12]}), and "
                f"{other.label} one of {theirs.name} (sha256 {theirs.sha256[:12]})",
                "Merge traces of one model; tracer compare takes different models.",
            )
    ordered = (base, *others)
    _check_runs(ordered)
    # energies belong to the widths that sums were counted at; else those of the first trace count
    having = [each for each in ordered if each.trace.nodes[_ENERGY].notna().any()]
    counting = (each for each in having if _counts(each.trace.nodes))
    priced = next(counting, next(iter(having), None))
    more_rows = [
        own_rows(other.trace, run)
        for other in others
        for run in other.timed
        if run.executor in _executors(base)
    ]
    nodes = pd.concat([base.trace.nodes, *more_rows], ignore_index=True)
    for other in others:
        nodes = _with_times(nodes, base, other)
        nodes = _with_columns(nodes, other, with_energy=other is priced)
    models = (each.trace.model for each in ordered)
    counted = next((each for each in models if each.params is not None), base.trace.model)
    return replace(
        base.trace,
        model=replace(base.trace.model, params=counted.params, param_bytes=counted.param_bytes),
        settings=_settings(ordered, priced),
        runs=tuple(run for each in ordered for run in each.trace.runs),
        nodes=typed_table(nodes),
        notes=tuple(dict.fromkeys(_notes(base, others, priced))),
    )


def _check_runs(sources: Sequence[Source]) -> None:
    taken: dict[object, Source] = {}
    for source in sources:
        for run in source.timed:
            earlier = taken.setdefault(tuple(run.key.values()), source)
            if earlier is not source:
                raise _timed_twice(run, earlier.label, source.label)
    counting = [source.label for source in sources if _counts(source.trace.nodes)]
    if len(counting) > 1:
        raise InputError(
            f"{counting[0]} and {counting[1]} both count overflow", "Merge one of them."
        )


def _timed_twice(run: Run, one: str, other: str) -> InputError:
    return InputError(
        f"{one} and {other} both time {run.executor} at batch {run.batch}",
        "Merge one of them; tracer compare shows them side by side.",
    )


def _counts(nodes: pd.DataFrame) -> bool:
    return bool(nodes[_COUNTED].notna().any())


def _executors(source: Source) -> frozenset[str]:
    """Returns the executors of the rows of a trace."""
    return frozenset(source.trace.nodes["executor"].dropna()) if source.timed else frozenset()


def _with_times(nodes: pd.DataFrame, base: Source, other: Source) -> pd.DataFrame:
    """Returns `nodes` with the times of the other executors of `other`, marked."""
    identity = [name for name in COLUMNS if BY_NAME[name].scope == "node"]
    for run in other.timed:
        if run.executor in _executors(base):
            continue
        here = nodes[of_batch(nodes, run.batch)]
        if here.empty:
            sizes = ", ".join(str(size) for size in nodes["batch"].dropna().unique())
            raise InputError(
                f"{other.label} times {run.executor} at batch {run.batch}, and {base.label} has "
                f"batch {sizes or 'none'}",
                "Time both at one batch size, with --batch.",
            )
        if here.get(marked("time_us", run.executor), pd.Series()).notna().any():
            raise _timed_twice(run, "another trace", other.label)
        theirs = rows_of(other.trace, run)
        extra = theirs[~theirs["node"].isin(here["node"])]  # kernels that stand for no node
        extra = extra[identity].assign(**here[list(Run.KEY)].iloc[0])
        nodes = pd.concat([nodes, extra], ignore_index=True)
        for name in OF_RUN:
            nodes = _filled(nodes, run.batch, marked(name, run.executor), theirs, name)
    return nodes


def _with_columns(nodes: pd.DataFrame, other: Source, with_energy: bool) -> pd.DataFrame:
    """Returns `nodes` with the columns of `other` that they lack, and with its energies."""
    table = other.trace.nodes
    lacking = {name for name in (*_WORK, *_OF_DATA) if nodes[name].isna().all()}
    lacking |= {*(_SUMS if _counts(table) else ()), *([_ENERGY] if with_energy else ())}
    for batch in list(dict.fromkeys(nodes["batch"])):
        size = None if pd.isna(batch) else int(batch)
        same = table[of_batch(table, size)]
        sampled = same if len(same) else table[table["batch"].isin(table["batch"].iloc[:1])]
        # energy is proportional to the multiplications of a node, as these are to the batch size
        here = nodes[of_batch(nodes, size)].drop_duplicates("node").set_index("node")["macs"]
        ours = here.astype("float64").reindex(sampled["node"]).to_numpy()
        theirs = sampled["macs"].astype("float64")
        sampled = sampled.assign(energy=(sampled[_ENERGY] * ours / theirs).where(theirs > 0))
        for name in sorted(lacking):
            nodes = _filled(nodes, size, name, same if name in _WORK else sampled, name)
    return nodes


def _filled(
    nodes: pd.DataFrame, batch: int | None, target: str, theirs: pd.DataFrame, name: str
) -> pd.DataFrame:
    """Returns `nodes` with `target` in the rows of a batch size: the column `name` of `theirs`."""
    spec = stored_spec(target)
    assert spec is not None
    if target not in nodes:
        nodes[target] = pd.array([None] * len(nodes), dtype=spec.dtype)
    rows = of_batch(nodes, batch)
    values = theirs.drop_duplicates("node").set_index("node")[name]
    nodes.loc[rows, target] = values.reindex(nodes.loc[rows, "node"]).array
    return nodes


def _settings(sources: Sequence[Source], priced: Source | None) -> dict[str, Any]:
    """Returns the settings of the base, the energy model, and under MERGED the others' settings."""
    base, *others = (source.trace for source in sources)
    merged_in = list(base.settings.get(MERGED, []))
    for trace in others:
        own = {name: value for name, value in trace.settings.items() if name != MERGED}
        environment = msgspec.json.decode(msgspec.json.encode(trace.environment))
        merged_in += [{"settings": own, "environment": environment}]
        merged_in += trace.settings.get(MERGED, [])
    settings = {**base.settings, MERGED: merged_in}
    if priced is not None:
        settings[_ENERGY] = priced.trace.settings.get(_ENERGY)
    return settings if settings[MERGED] else dict(base.settings)


def _notes(base: Source, others: Sequence[Source], priced: Source | None) -> Iterator[str]:
    yield from base.trace.notes
    machine = _without_peaks(base)
    for other in others:
        if _without_peaks(other) != machine:
            yield (
                f"{other.label} was recorded on another machine, or with other versions: "
                f"{other.trace.environment.summary}"
            )
        for note in other.trace.notes:
            if note not in base.trace.notes and not note.endswith(EMULATED):
                yield f"{other.label}: {note}"
    having = [s.label for s in (base, *others) if s.trace.nodes[_ENERGY].notna().any()]
    if priced is not None and len(having) > 1:
        yield f"energies are those of {priced.label}"


def _without_peaks(source: Source) -> Environment:
    return replace(source.trace.environment, peaks=None, other_peaks=())


def of_backward(nodes: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Returns which rows are of a backward pass: of an operator, or of no operator's own."""
    of_operators = nodes["op_type"].str.endswith(BACKWARD)
    of_phase = nodes["node"].str.startswith(f"{BACKWARD_PHASE}/") & nodes["module"].isna()
    return (of_operators | of_phase).fillna(False).to_numpy(np.bool_)


def backward_share(nodes: pd.DataFrame) -> float | None:
    """Returns the share of the backward pass in the time of all rows; None without one."""
    rows = of_backward(nodes)
    return float(nodes["time_us"][rows].sum() / nodes["time_us"].sum()) if rows.any() else None
