"""The node table grouped by node, operator, module, source line or kernel; samples of a run.

Also which provider of onnxruntime ran which nodes, in how many kernels, and for how long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracer.analyzers.attribution import SERVING
from tracer.analyzers.options import GROUPINGS, KERNEL, NAMES, OF_KERNELS, SAMPLE, refuse_depth
from tracer.analyzers.roofline import TIMES, averaged
from tracer.analyzers.timing import RUNTIME, timing
from tracer.errors import UsageError
from tracer.records import environment
from tracer.records.columns import COMMON, EXTREMES, SUMMED, TERMS_MEANS, summed
from tracer.records.environment import COPIES
from tracer.records.model_info import Topology
from tracer.records.trace import Run

ROOT, OF_RUNTIME = "(root)", f"({RUNTIME})"
UNKNOWN = {"module": "(no module)", "source": "(no source)"}
"""The row of nodes without an origin."""

_SEPARATOR = "; "
_LISTED = 12
"""Operators of a kernel up to which each is named; beyond it they are counted."""
_OF_RESULTS = "QuantizeLinear"


def served(topology: Topology | None) -> Mapping[str, str]:
    """Returns for each node of `SERVING` the node that it serves, by key; none if there is none.

    A QuantizeLinear serves the node whose result it converts. All others, and a QuantizeLinear of
    an input or a weight, serve the first node that reads their result.
    """
    if topology is None:
        return {}
    readers: list[list[int]] = [[] for _ in topology.nodes]
    for position, producers in enumerate(topology.producers):
        for producer in producers:
            readers[producer].append(position)
    serving = [kind in SERVING for kind in topology.op_types]
    served_by: dict[int, int] = {}
    for position in reversed(range(len(serving))):  # readers come after what they read
        for reader in readers[position] if serving[position] else ():
            target = served_by.get(reader, reader)
            if not serving[target]:
                served_by[position] = target
                break
    for position, kind in enumerate(topology.op_types):
        makers = [each for each in topology.producers[position] if not serving[each]]
        if kind == _OF_RESULTS and makers:
            served_by[position] = makers[0]
    return {topology.nodes[one]: topology.nodes[other] for one, other in served_by.items()}


def grouped(
    nodes: pd.DataFrame,
    by: str,
    run: Run | None = None,
    depth: int | None = None,
    serves: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Folds the rows of one run; by kernel or sample, returns those of `run`.

    `depth` is the number of module levels that stay separate; `serves` is as in `by_node`. Raises
    UsageError for an unknown grouping, for a depth without modules, for kernels without a run, and
    for samples that were not counted apart.
    """
    if by not in NAMES:
        raise UsageError(f"cannot group by '{by}'", f"Group by {', '.join(GROUPINGS)}.")
    refuse_depth(by, depth)
    if by == KERNEL:
        return by_kernel(run).reindex(columns=["op_type", *SUMMED, *OF_KERNELS, "nodes"])
    if by == SAMPLE:
        return by_sample(run)
    if by in UNKNOWN:
        return by_origin(nodes, by, depth)
    if by == "op":
        return by_op(nodes)
    kernels = by_node(nodes, serves)
    return kernels.assign(node=row_names(kernels)).drop(columns="more")


def by_node(nodes: pd.DataFrame, serves: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Returns a row for each kernel or single node, in the order of the graph.

    Fused nodes share a row: `node`, `module`, `source` and the values of the main node, the worst
    extremes of all, and their number, `nodes`. `op_type` names the operators without constants and
    conversions of quantised graphs, unless there are no others; `more` is their number less one.
    The main node, which has the time of the kernel, comes first. A node in no kernel is in the row
    of the node that it `serves`.
    """
    # a row has its own time, all of it
    nodes = nodes.drop(columns=["timed_in", "time_us_split"], errors="ignore")
    kernels = kernel_numbers(nodes)
    served = served_numbers(nodes, kernels, serves or {})
    order = np.lexsort((served != kernels, nodes["time_us"].isna(), served))  # the last key first
    nodes = nodes.assign(kernel=served, nodes=_count_nodes(nodes)).iloc[order]
    groups = nodes.groupby("kernel")
    names = [str(name) for name in nodes if name not in ("kernel", "nodes")]
    added = [name for name in summed(names) if name != "calls"]
    own = [name for name in names if name not in EXTREMES and name not in added]
    parts = groups[own].first(), groups[added].sum(min_count=1), _worst(groups)
    folded = pd.concat(parts, axis=1)[names]
    of_floats = [*COMMON, *TERMS_MEANS]
    if nodes[of_floats].notna().any(axis=None):  # else the first rows lack them as all others do
        folded[of_floats] = _of_floats(nodes, "kernel")
    folded["nodes"] = groups["nodes"].sum()
    computing = ~nodes["op_type"].isin(SERVING)
    alone = ~computing.groupby(nodes["kernel"]).transform("any")
    telling = nodes[computing | alone]
    folded["op_type"] = _operators(telling)
    folded["more"] = telling.groupby("kernel").size() - 1
    return folded.reset_index(drop=True)


def row_names(kernels: pd.DataFrame) -> pd.Series[str]:
    """Returns the names of the rows of `by_node`: `conv1 +2` is a Conv with two more nodes."""
    names, more = kernels["node"], kernels["more"]
    return names.where(more == 0, names + " +" + more.astype(str))


def _operators(nodes: pd.DataFrame) -> pd.Series[str]:
    """Returns the operators of each kernel, joined. pandas would take 50 µs for each kernel."""
    operators, known = nodes["op_type"].to_numpy(object), nodes["op_type"].notna()
    of_kernel: dict[int, list[str | None]] = {}
    for kernel, operator, is_known in zip(nodes["kernel"], operators, known, strict=True):
        of_kernel.setdefault(kernel, []).append(operator if is_known else None)
    joined = dict[int, str | None]()
    for kernel, every in of_kernel.items():
        names = [operator for operator in every if operator is not None]
        if len(names) < len(every):
            joined[kernel] = every[0]
        elif len(names) <= _LISTED:
            joined[kernel] = "+".join(names)
        else:  # a compiled subgraph has hundreds
            counts = Counter(names).most_common()
            joined[kernel] = "+".join(f"{n} {name}" if n > 1 else name for name, n in counts)
    return pd.Series(joined, dtype="string")


def by_op(nodes: pd.DataFrame) -> pd.DataFrame:
    """Returns a row for each operator or combination of fused operators."""
    return _fold(by_node(nodes), "op_type")


def by_origin(nodes: pd.DataFrame, of: str, depth: int | None = None) -> pd.DataFrame:
    """Returns a row for each `module` or `source`, in the order of the graph.

    Modules below `depth` are summed into their ancestor. The time of a kernel with nodes of several
    rows is divided by their estimated parts. Without these it is in the row of its main node, whose
    `also_holds` names the other rows, and their `timed_in` names this row. Nodes without an origin
    share a row, and so do the runtime's own kernels.
    """
    counts = _count_nodes(nodes)
    names = [named(name, of, depth) for name in nodes[of].mask(counts == 0, OF_RUNTIME)]
    rows = nodes.assign(**{of: pd.array(names, "string")}, nodes=counts)
    whole = rows[rows["time_us"].notna() | rows["time_us_split"].isna()]
    parts = rows["time_us_split"]
    if parts.notna().any():
        of_kernels = rows[list(TIMES)].groupby(kernel_numbers(rows)).transform("first")
        rows[list(TIMES)] = of_kernels.mul(parts / of_kernels["time_us"], axis=0)
        rows["time_us"] = parts
    return _fold(rows, of).join(_across(whole, of), on=of)


def _count_nodes(nodes: pd.DataFrame) -> pd.Series[int]:
    """Returns 1 for each node of the model, and 0 for each kernel of the runtime's own."""
    own = nodes["node"].str.startswith(f"{RUNTIME}:") & nodes["index"].isna()
    return (~own).astype(int)


def named(name: object, of: str = "module", depth: int | None = None) -> str:
    """Returns the row name of a module or source; a deeper module gets its ancestor's name."""
    if not isinstance(name, str):
        return UNKNOWN[of]
    levels = name.split(".") if of == "module" else [name]
    return ".".join(levels[:depth]) or ROOT


def remark(folded: pd.DataFrame, by: str) -> str | None:
    """Returns a line about rows of `by_origin` that hold time of other rows, or None."""
    if by not in UNKNOWN or folded.empty:
        return None
    if folded[by].isin([UNKNOWN[by], OF_RUNTIME]).all():
        return f"no node has a {by}; models written by tracer export do"
    if folded["also_holds"].isna().all():
        return None
    hosts = folded[folded["also_holds"].notna()]
    first, holds = hosts[[by, "also_holds"]].iloc[0]
    row = {"module": "module", "source": "line"}[by]
    shared = f"time of others, fused into the same kernels: {first} holds {holds}"
    if len(hosts) == 1:
        return f"1 {row} also holds {shared}"
    return f"{len(hosts):,} {row}s also hold {shared}, for one"


def _across(rows: pd.DataFrame, of: str) -> pd.DataFrame:
    """Returns by row name the rows whose nodes its kernels hold, and the rows that hold its own."""
    holds: dict[str, dict[str, None]] = {}
    timed: dict[str, dict[str, None]] = {}
    main_first = rows[of].loc[rows["time_us"].isna().sort_values(kind="stable").index]
    kernels = pd.Series(kernel_numbers(rows), rows.index).loc[main_first.index]
    for _, names in main_first.groupby(kernels, sort=False):
        first, *others = dict.fromkeys(names)
        for other in others:
            holds.setdefault(first, {})[other] = None
            timed.setdefault(other, {})[first] = None
    relations = {"also_holds": holds, "timed_in": timed}
    columns = {
        column: pd.Series(
            {name: _SEPARATOR.join(others_of[name]) for name in others_of}, dtype="string"
        )
        for column, others_of in relations.items()
    }
    return pd.DataFrame(columns, index=pd.unique(rows[of]))


def kernel_numbers(nodes: pd.DataFrame) -> npt.NDArray[np.integer[Any]]:
    """Returns a number for each row, equal for the rows of one kernel."""
    timed = bool(nodes["time_us"].notna().any())
    # A kernel without nodes stays apart, even if a node has its name.
    fused = nodes["kernels"].notna() & nodes["index"].notna() & timed
    label = nodes["node"].where(~fused, nodes["kernels"])
    # A node and a kernel may have the same name, so groups are numbers. pandas would take a Series
    # called "node" for that column and omit it from the result, so they are an array.
    groups = nodes.groupby([fused.to_numpy(), label.to_numpy()], sort=False)
    return groups.ngroup().to_numpy()


def served_numbers(
    nodes: pd.DataFrame, kernels: npt.NDArray[np.integer[Any]], serves: Mapping[str, str]
) -> npt.NDArray[np.integer[Any]]:
    """Returns the `kernel_numbers`; a node in no kernel has the number of the node it serves."""
    if not serves:
        return kernels
    names, ran = nodes["node"].to_numpy(object), nodes["kernels"].notna()
    number_of = dict(zip(names, kernels, strict=True))
    numbers = [
        number if timed else number_of.get(serves.get(node, node), number)
        for node, timed, number in zip(names, ran, kernels, strict=True)
    ]
    return np.array(numbers, kernels.dtype)


def _fold(rows: pd.DataFrame, key: str) -> pd.DataFrame:
    groups = rows.groupby(key, sort=False)
    folded = groups[[*summed(rows.columns), "nodes"]].sum(min_count=1)
    folded["time_share"] = _shares(folded)
    parts = (_worst(groups), averaged(rows, key), _of_floats(rows, key))
    return folded.join(list(parts)).reset_index()


def _is_bound(folded: pd.DataFrame) -> pd.Series[bool]:
    """Returns whether less than the end of its interval is all that is known of a row's time."""
    time, low, high = (folded[name] for name in TIMES)
    return (low == 0) & (time < high)


def _shares(folded: pd.DataFrame) -> pd.Series[float]:
    """Returns the share of each row in the time of all; missing where a time is only a bound."""
    share = folded["time_us"] / (folded["time_us"].sum() or np.nan)
    return share.mask(_is_bound(folded))


def _of_floats(rows: pd.DataFrame, key: str) -> pd.DataFrame:
    """Returns the columns that groups have where rows agree, and the means over the terms.

    Percentiles of rows that agree are those of the rows together.
    """
    groups = rows.groupby(key, sort=False)
    same = groups[list(COMMON)].nunique() == 1
    columns = groups[list(COMMON)].first().where(same)
    for name in TERMS_MEANS:
        terms = rows["terms"].where(rows[name].notna()).astype("float64")
        weighed = (rows[name] * terms).groupby(rows[key]).sum(min_count=1)
        columns[name] = weighed / terms.groupby(rows[key]).sum(min_count=1)
    return columns


def _worst(groups: Any) -> pd.DataFrame:
    """Returns the worst values of each group; it is guaranteed what all its narrow nodes are."""
    low, high = ([n for n, fold in EXTREMES.items() if fold == each] for each in ("min", "max"))
    worst: pd.DataFrame = pd.concat([groups[low].min(), groups[high].max()], axis=1)[list(EXTREMES)]
    guaranteed = groups["bits_guaranteed"].count() == groups["bits"].count()
    worst["bits_guaranteed"] = worst["bits_guaranteed"].where(guaranteed)
    return worst


def by_kernel(run: Run | None) -> pd.DataFrame:
    """Returns a row for each kind of kernel of a run.

    `time_us` is its own time. `time_us_total` includes the kernels inside it, if the runtime says
    which; `time_total_share` is its part of the time of all kernels, and `time_us_per_call` its
    mean over the calls. A kernel that only calls a kernel of the
    same name counts as one call with it, as in torch's tables. Raises UsageError without a run.
    """
    if run is None:
        raise UsageError("nothing ran, so there are no kernels", "Group by node, op or module.")
    times = timing(run, [(str(i),) for i in range(len(run.kernels))])
    times = times.reindex([str(i) for i in range(len(run.kernels))])
    op_types = {kernel.name: kernel.op_type for kernel in run.kernels}
    inside = Counter(kernel.scope for kernel in run.kernels)
    alone = [op_types.get(k.scope) == k.op_type and inside[k.scope] == 1 for k in run.kernels]
    outer = ~np.array(alone, np.bool_)
    totals = _totals(run, times["time_us"].to_numpy(np.float64))
    rows = pd.DataFrame(
        {
            "op_type": [kernel.op_type for kernel in run.kernels],
            "calls": times["calls"].where(outer).to_numpy(),
            **{name: times[name].to_numpy() for name in (*TIMES, "time_us_raw")},
            "time_us_total": np.where(outer, totals, np.nan),
        }
    )
    folded = rows.groupby("op_type", sort=False).sum(min_count=1).reset_index()
    folded["time_share"] = _shares(folded)
    is_alone = folded["time_us_total"] <= folded["time_us"]
    folded["time_us_total"] = folded["time_us_total"].mask(_is_bound(folded) & is_alone)
    folded["time_total_share"] = folded["time_us_total"] / (folded["time_us"].sum() or np.nan)
    folded["time_us_per_call"] = folded["time_us_total"] / folded["calls"]
    return folded


def _totals(run: Run, own: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns the time of each kernel with all kernels in its scope; NaN for unknown scopes."""
    indices = {kernel.name: index for index, kernel in enumerate(run.kernels)}
    if any(kernel.scope and kernel.scope not in indices for kernel in run.kernels):
        return np.full(len(own), np.nan)
    totals = own.copy()
    for index in reversed(range(len(own))):  # a kernel comes after the kernel around it
        scope = run.kernels[index].scope
        if scope:
            totals[indices[scope]] += totals[index]
    return totals


_SEEN = ("acc_min", "acc_max", "final_min", "final_max", "bits_observed", "max_abs_error")
"""Quantities that a sample without sums does not have."""


def by_sample(run: Run | None) -> pd.DataFrame:
    """Returns a row for each sample in the order of the data, numbered from 0.

    Columns: `sample`, `worst_node` (missing where nothing overflows), and the overflow columns of
    the node table over all nodes (Int64). Raises UsageError for a run without these statistics.
    """
    if run is None or run.sums_by_sample is None:
        raise UsageError(
            "there are no statistics by sample",
            "Measure them with: tracer interpret MODEL.onnx --accumulator 16 --by sample.",
        )
    samples = run.sums_by_sample
    table = pd.DataFrame(samples.arrays()).astype("Int64")
    table.loc[table["outputs"] == 0, list(_SEEN)] = pd.NA
    names = dict(enumerate(samples.nodes))
    table["worst_node"] = table["worst_node"].map(names.get).astype("string")
    table["sample"] = pd.Series(range(len(table)), dtype="Int64")
    first = ["sample", "worst_node"]
    return table[[*first, *table.columns.drop(first)]]


@dataclass(frozen=True, slots=True)
class Placement:
    """What one provider ran.

    `nodes` counts the operators of the model's nodes. `subgraphs` are the numbers of nodes of the
    kernels that it compiled, the largest first; 0 stands for one whose nodes are not known.
    `copies` counts the kernels of `COPIES`; `copies_us` is their time, `time_us` the time of the
    others. `device_us` is the time on the device, of a provider that only queues its kernels; None
    where it was not recorded.
    """

    provider: str
    nodes: Counter[str]
    subgraphs: tuple[int, ...]
    copies: Counter[str]
    time_us: float
    copies_us: float
    device_us: float | None = None


def has_providers(run: Run) -> bool:
    """Returns whether onnxruntime ran kernels on a provider other than the CPU."""
    names = {kernel.provider for kernel in run.kernels} - {""}
    return run.executor == "onnxruntime" and any(not environment.is_cpu(name) for name in names)


def placements(run: Run, nodes: pd.DataFrame) -> tuple[Placement, ...]:
    """Returns what each provider of `run` ran, the longest first; `nodes` are the run's rows."""
    of_name = {kernel.name: kernel for kernel in run.kernels}
    rows = nodes[nodes["kernels"].notna()]
    kernels = [of_name.get(text.split(_SEPARATOR)[0]) for text in rows["kernels"]]
    rows = rows.assign(
        provider=[kernel.provider if kernel else "" for kernel in kernels],
        copies=[kernel is not None and kernel.op_type in COPIES for kernel in kernels],
    )
    found = []
    for name, held in rows.groupby("provider", sort=False):
        if not name:
            continue
        own = [kernel for kernel in run.kernels if kernel.provider == name]
        copying = held[held["copies"]]
        modelled = held[held["index"].notna() & ~held["copies"]]
        sizes = modelled["kernels"].value_counts()
        compiled = [kernel.name for kernel in own if kernel.is_compiled]
        on_device = [
            k.device_us for k in own if k.op_type not in COPIES and k.device_us is not None
        ]
        placement = Placement(
            provider=str(name),
            nodes=Counter(modelled["op_type"].astype(str)),
            subgraphs=tuple(sorted((int(sizes.get(n, 0)) for n in compiled), reverse=True)),
            copies=Counter(kernel.op_type for kernel in own if kernel.op_type in COPIES),
            time_us=float(held["time_us"].sum() - copying["time_us"].sum()),
            copies_us=float(copying["time_us"].sum()),
            device_us=sum(on_device) if on_device else None,
        )
        found.append(placement)
    return tuple(sorted(found, key=lambda each: -each.time_us))


def unplaced(nodes: pd.DataFrame) -> int:
    """Returns how many nodes of the model no kernel has."""
    return int((nodes["index"].notna() & nodes["kernels"].isna()).sum())
