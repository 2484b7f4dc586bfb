"""The node table folded: by node, by operator, by module, by what the runtime really ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from analyzers.kernels import by_kernel
from tracer.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

    from tracer.trace import Run

SUMMED = (
    "calls", "time_us", "time_us_raw", "time_share", "macs", "adds", "muls", "flops", "params",
    "param_bytes", "bytes_read", "bytes_written",
    "outputs", "overflow_outputs", "transient_outputs", "persistent_outputs", "saturation_events",
    "outputs_changed",
)  # fmt: skip
"""Columns that add up over nodes; a sum of missing values alone is missing."""

EXTREMES = {
    "acc_min": "min", "acc_max": "max", "final_min": "min", "final_max": "max",
    "peak_bytes": "max", "bits_observed": "max", "bits_guaranteed": "max", "bits_datatype": "max",
    "max_abs_error": "max",
}  # fmt: skip
"""Columns of which the worst of all nodes counts."""

UNKNOWN_MODULE, ROOT = "(no module)", "(root)"


def by_node(nodes: pd.DataFrame) -> pd.DataFrame:
    """A row for each kernel or single node, in the order of the graph; fused nodes share one.

    `node`, `module` and the statistics are those of the first node; `op_type` and `modules` name
    all, `nodes` counts.
    """
    timed = bool(nodes["time_us"].notna().any())
    # A kernel of the runtime's own stands for no other row, whatever it shares its name with.
    fused = nodes["kernels"].notna() & nodes["index"].notna() & timed
    label = nodes["node"].where(~fused, nodes["kernels"])
    # Numbers, for a node may be called as a kernel is; and an array, for pandas takes a Series
    # called "node" for that column and leaves it out of the result.
    of = nodes.groupby([fused.to_numpy(), label.to_numpy()], sort=False).ngroup().to_numpy()
    groups = nodes.groupby(of, sort=False)
    folded = groups.first()
    folded[list(SUMMED)] = groups[list(SUMMED)].sum(min_count=1)
    folded["calls"] = groups["calls"].first()
    folded["nodes"] = groups.size()
    shared = groups["op_type"].transform("size") > 1
    joined = nodes[shared].groupby(of[shared], sort=False)["op_type"].agg("+".join)
    folded.loc[joined.index, "op_type"] = joined
    modules = nodes[shared].dropna(subset="module")
    spanned = modules.groupby(of[shared & nodes["module"].notna()], sort=False)["module"].agg(_span)
    folded["modules"] = folded["module"]
    folded.loc[spanned.index, "modules"] = spanned
    return folded.reset_index(drop=True)


def _span(modules: pd.Series[Any]) -> str:
    """One module, or all that a kernel was fused across."""
    names = list(dict.fromkeys(modules))
    return "+".join(name or ROOT for name in names) if len(names) > 1 else str(names[0])


def by_op(nodes: pd.DataFrame) -> pd.DataFrame:
    """A row for each operator, or combination of fused ones."""
    return _fold(by_node(nodes), "op_type")


def by_module(nodes: pd.DataFrame) -> pd.DataFrame:
    """A row for each module; nodes of no known module are together."""
    folded = by_node(nodes)
    module = folded["modules"].fillna(UNKNOWN_MODULE).replace("", ROOT)
    return _fold(folded.assign(module=module), "module")


_FOLDS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "node": by_node,
    "op": by_op,
    "module": by_module,
}
KERNEL = "kernel"
GROUPINGS = (*_FOLDS, KERNEL)


def grouped(nodes: pd.DataFrame, by: str, run: Run | None = None) -> pd.DataFrame:
    """Fold the rows of one run, or, by kernel, show what `run` really ran.

    Raises UsageError for a grouping there is none of, and for kernels without a run.
    """
    if by == KERNEL:
        columns = ["op_type", *SUMMED, "time_us_total", "time_us_per_call", "nodes"]
        return by_kernel(run).reindex(columns=columns)
    if by not in _FOLDS:
        raise UsageError(f"cannot group by '{by}'", f"Group by {', '.join(GROUPINGS)}.")
    return _FOLDS[by](nodes)


def _fold(rows: pd.DataFrame, key: str) -> pd.DataFrame:
    groups = rows.groupby(key, sort=False)
    summed = groups[[*SUMMED, "nodes"]].sum(min_count=1)
    worst = groups.agg(EXTREMES)
    # A group is guaranteed what all its narrow nodes are.
    guaranteed = groups["bits_guaranteed"].count() == groups["bits"].count()
    worst["bits_guaranteed"] = worst["bits_guaranteed"].where(guaranteed)
    return summed.join(worst).reset_index()
