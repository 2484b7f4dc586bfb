"""The node table folded: by node, operator, module, source line, or what the runtime really ran."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analyzers.kernels import by_kernel
from analyzers.options import GROUPINGS, refuse_depth
from analyzers.roofline import averaged
from analyzers.timing import RUNTIME
from tracer.errors import UsageError
from tracer.records.columns import EXTREMES, SUMMED
from tracer.records.trace import Run

ROOT, OF_RUNTIME = "(root)", f"({RUNTIME})"
UNKNOWN = {"module": "(no module)", "source": "(no source)"}
"""The row of the nodes that do not say where they came from."""

KERNEL = "kernel"
NAMES = {
    "node": "node", "op": "op_type", "module": "module", "source": "source", KERNEL: "op_type",
}  # fmt: skip
"""The column that names the rows of each grouping of `analyzers.options.GROUPINGS`."""

_SEPARATOR = "; "


def grouped(
    nodes: pd.DataFrame, by: str, run: Run | None = None, depth: int | None = None
) -> pd.DataFrame:
    """Fold the rows of one run, or, by kernel, show what `run` really ran.

    `depth` is how many levels of modules are kept apart. Raises UsageError for a grouping there is
    none of, for a depth of anything but modules, and for kernels without a run.
    """
    if by not in NAMES:
        raise UsageError(f"cannot group by '{by}'", f"Group by {', '.join(GROUPINGS)}.")
    refuse_depth(by, depth)
    if by == KERNEL:
        columns = ["op_type", *SUMMED, "time_us_total", "time_us_per_call", "nodes"]
        return by_kernel(run).reindex(columns=columns)
    if by in UNKNOWN:
        return by_origin(nodes, by, depth)
    return by_op(nodes) if by == "op" else by_node(nodes)


def by_node(nodes: pd.DataFrame) -> pd.DataFrame:
    """A row for each kernel or single node, in the order of the graph; fused nodes share one.

    `node`, `module`, `source` and the statistics are those of the first node; `op_type` names all,
    `nodes` counts.
    """
    of = _kernels(nodes)
    groups = nodes.groupby(of, sort=False)
    folded = groups.first()
    folded[list(SUMMED)] = groups[list(SUMMED)].sum(min_count=1)
    folded["calls"] = groups["calls"].first()
    folded["nodes"] = groups.size()
    shared = groups["op_type"].transform("size") > 1
    joined = nodes[shared].groupby(of[shared], sort=False)["op_type"].agg("+".join)
    folded.loc[joined.index, "op_type"] = joined
    return folded.reset_index(drop=True)


def by_op(nodes: pd.DataFrame) -> pd.DataFrame:
    """A row for each operator, or combination of fused ones."""
    return _fold(by_node(nodes), "op_type")


def by_origin(nodes: pd.DataFrame, of: str, depth: int | None = None) -> pd.DataFrame:
    """A row for each `module` or `source`, in the order of the graph, whatever was fused.

    Modules below `depth` are summed into the one they are in. The time of a kernel that stands for
    nodes of several rows is told once, in that of the first: `also_holds` names the others there,
    and in these `timed_in` names it. Nodes that do not say where they came from are one row, the
    kernels of the runtime's own another.
    """
    own = nodes["node"].str.startswith(f"{RUNTIME}:") & nodes["index"].isna()
    names = [named(name, of, depth) for name in nodes[of].mask(own, OF_RUNTIME)]
    rows = nodes.assign(**{of: pd.array(names, "string")}, nodes=1)
    return _fold(rows, of).join(_across(rows, of), on=of)


def named(name: object, of: str = "module", depth: int | None = None) -> str:
    """What the row of a module or source is called, a module that lies deeper by its ancestor."""
    if not isinstance(name, str):
        return UNKNOWN[of]
    levels = name.split(".") if of == "module" else [name]
    return ".".join(levels[:depth]) or ROOT


def remark(folded: pd.DataFrame, by: str) -> str | None:
    """What to know of rows of `by_origin`: that some hold time of others, or none is known."""
    if by not in UNKNOWN or folded.empty:
        return None
    if folded[by].isin([UNKNOWN[by], OF_RUNTIME]).all():
        return f"no node says its {by}; models that tracer export writes do"
    if folded["also_holds"].isna().all():
        return None
    hosts = folded[folded["also_holds"].notna()]
    first, holds = hosts[[by, "also_holds"]].iloc[0]
    row = {"module": "module", "source": "line"}[by]
    told = f"time of others, fused into the same kernels: {first} holds {holds}"
    if len(hosts) == 1:
        return f"1 {row} also holds {told}"
    return f"{len(hosts):,} {row}s also hold {told}, for one"


def _across(rows: pd.DataFrame, of: str) -> pd.DataFrame:
    """By name of a row, which others its kernels hold nodes of, and which ones hold its own."""
    holds: dict[str, dict[str, None]] = {}
    timed: dict[str, dict[str, None]] = {}
    for _, names in rows[of].groupby(_kernels(rows), sort=False):
        first, *others = dict.fromkeys(names)
        for other in others:
            holds.setdefault(first, {})[other] = None
            timed.setdefault(other, {})[first] = None
    told = {"also_holds": holds, "timed_in": timed}
    columns = {
        column: pd.Series({name: _SEPARATOR.join(found[name]) for name in found}, dtype="string")
        for column, found in told.items()
    }
    return pd.DataFrame(columns, index=pd.unique(rows[of]))


def _kernels(nodes: pd.DataFrame) -> npt.NDArray[np.integer[Any]]:
    """A number for each row: the same for rows of one kernel."""
    timed = bool(nodes["time_us"].notna().any())
    # A kernel of the runtime's own stands for no other row, whatever it shares its name with.
    fused = nodes["kernels"].notna() & nodes["index"].notna() & timed
    label = nodes["node"].where(~fused, nodes["kernels"])
    # Numbers, for a node may be called as a kernel is; and an array, for pandas takes a Series
    # called "node" for that column and leaves it out of the result.
    groups = nodes.groupby([fused.to_numpy(), label.to_numpy()], sort=False)
    return groups.ngroup().to_numpy()


def _fold(rows: pd.DataFrame, key: str) -> pd.DataFrame:
    groups = rows.groupby(key, sort=False)
    folded = groups[[*SUMMED, "nodes"]].sum(min_count=1)
    worst = groups.agg(EXTREMES)
    # A group is guaranteed what all its narrow nodes are.
    guaranteed = groups["bits_guaranteed"].count() == groups["bits"].count()
    worst["bits_guaranteed"] = worst["bits_guaranteed"].where(guaranteed)
    return folded.join(worst).join(averaged(rows, key)).reset_index()
