"""The table of totals: time of each model, ratio to the first, shares, work."""

import math
from collections.abc import Sequence

import pandas as pd

from tracer.analyzers.compare.contrast import LEVEL, contrast
from tracer.analyzers.compare.operators import is_convolution
from tracer.analyzers.compare.sides import Side
from tracer.analyzers.grouping import by_node
from tracer.analyzers.operations import backward_share


def table(sides: Sequence[Side]) -> pd.DataFrame:
    """Returns a row for each side.

    Columns: `side`, `model`, `executor`, `batch`, `time_us` (of a run without profiler), its
    standard error `error_us`, `ratio` to the first, `ratio_low`, `ratio_high`, `p`, `significant`,
    `convolution_share` (of node time, fused convolutions included), `backward_share` (if
    backward passes were traced), `macs`, `flops`, `params`, `bytes`, `flops_per_s`.
    """
    return pd.DataFrame([_row(sides[0], side) for side in sides]).astype(
        dict.fromkeys(("batch", "macs", "flops", "params", "bytes"), "Int64")
    )


def _row(first: Side, side: Side) -> dict[str, object]:
    result = contrast(first.wall, side.wall)
    baseline = side is first
    nodes = by_node(side.nodes.assign(time_us=side.time_us))
    backward = backward_share(nodes)
    trains = side.lender is not None and backward is not None
    work = {name: None if trains else side.total_of(name) for name in ("macs", "flops")}
    moved = [side.total_of(name) for name in ("bytes_read", "bytes_written")]
    flops, params = work["flops"], side.trace.model.params
    return {
        "side": side.label,
        "model": side.trace.model.name,
        "executor": side.run.executor,
        "batch": side.run.batch,
        "time_us": side.wall.mean,
        "error_us": side.wall.error,
        "ratio": 1.0 if baseline else result.ratio,
        "ratio_low": math.nan if baseline else result.low,
        "ratio_high": math.nan if baseline else result.high,
        "p": math.nan if baseline else result.p,
        "significant": not baseline and result.p < LEVEL,
        "convolution_share": _convolution_share(nodes),
        "backward_share": math.nan if backward is None else backward,
        **work,
        "params": params if params is not None else side.total_of("params"),
        "bytes": None if None in moved else sum(value for value in moved if value is not None),
        "flops_per_s": 1e6 * flops / side.wall.mean if flops and side.wall.mean else math.nan,
    }


def _convolution_share(nodes: pd.DataFrame) -> float:
    matching = [is_convolution(str(ops)) for ops in nodes["op_type"].tolist()]
    total = float(nodes["time_us"].sum())
    return float(nodes["time_us"][matching].sum()) / total if total else math.nan
