"""The node table of a model that ran in its framework: a row for each operator that was called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracer.analyzers.roofline import TimedRow, roofline
from tracer.analyzers.timing import timing
from tracer.records.trace import BACKWARD, BACKWARD_PHASE, typed_table

if TYPE_CHECKING:
    from tracer.executors.registry import Profiled, Works
    from tracer.records.environment import Peaks


def operation_table(profile: Profiled) -> pd.DataFrame:
    """Returns the node table, with operators in the order of their first call.

    The time of a row is the time of all its kernels; its `calls` are calls of the operator itself.
    `kernels` names the row and the kernels inside. The columns of work are missing.
    """
    run = profile.run
    times = timing(run, [(str(kernel.node),) for kernel in run.kernels])
    rows = [
        {
            "node": operation.node,
            "index": index,
            "op_type": operation.op_type,
            "domain": operation.domain,
            "module": operation.module,
            **run.key,
            "input_shapes": ", ".join(map(str, operation.inputs)) or None,
            "peak_bytes": operation.peak_bytes,
        }
        for index, operation in enumerate(profile.operations)
    ]
    table = pd.DataFrame(rows, index=[operation.node for operation in profile.operations])
    table = table.join(times.drop(columns=["calls", "kernels"]))
    # The first kernel of a row encloses the others. The name of the row makes the text unique.
    table["calls"] = pd.Series({str(kernel.node): kernel.calls for kernel in reversed(run.kernels)})
    inside: dict[str, dict[str, None]] = {}
    for kernel in run.kernels:
        inside.setdefault(str(kernel.node), {})[kernel.op_type] = None
    texts = {node: f"{node}: {', '.join(names)}" for node, names in inside.items()}
    table["kernels"] = pd.Series(texts)
    return typed_table(table)


def with_roofs(table: pd.DataFrame, works: Works, peaks: Peaks | None) -> pd.DataFrame:
    """Returns the node table with the columns of work and roofs, of rows whose work is known.

    A row without products is held against the memory alone.
    """
    if not works:
        return table
    rows = table[table["node"].isin(list(works)) & table["time_us"].notna()]
    lows, highs = (rows[f"time_us_ci95_{end}"].fillna(rows["time_us"]) for end in ("low", "high"))
    times = zip(rows["node"], rows["time_us"], lows, highs, strict=True)
    timed = [
        TimedRow(
            node, (node,), us, works[node].arithmetic, (low, high), works[node].flops / 2, True
        )
        for node, us, low, high in times
    ]
    flops = pd.Series({node: work.flops for node, work in works.items()})
    moved: dict[tuple[str, ...], int | None]
    moved = {(node,): work.bytes_read + work.bytes_written for node, work in works.items()}
    roofs = roofline(timed, flops, moved, peaks)
    work = pd.DataFrame(
        {
            node: {
                "macs": each.flops // 2,
                "flops": each.flops or None,  # what is no product was not counted
                "bytes_read": each.bytes_read,
                "bytes_written": each.bytes_written,
            }
            for node, each in works.items()
        }
    ).T.astype("Float64")
    work["intensity"] = work["flops"] / (work["bytes_read"] + work["bytes_written"])
    roofs["gflops_per_s"] = roofs["gflops_per_s"].where(roofs["gflops_per_s"] > 0)
    table = table.copy()
    for name, values in (*work.items(), *roofs.items()):
        table[name] = table["node"].map(values)
    return typed_table(table)


def of_backward(nodes: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Returns which rows are of a backward pass: of an operator, or of no operator's own."""
    of_operators = nodes["op_type"].str.endswith(BACKWARD)
    of_phase = nodes["node"].str.startswith(f"{BACKWARD_PHASE}/") & nodes["module"].isna()
    return (of_operators | of_phase).fillna(False).to_numpy(np.bool_)


def backward_share(nodes: pd.DataFrame) -> float | None:
    """Returns the share of the backward pass in the time of all rows; None without one."""
    rows = of_backward(nodes)
    return float(nodes["time_us"][rows].sum() / nodes["time_us"].sum()) if rows.any() else None
