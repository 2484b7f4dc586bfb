"""Sides made by hand: a node table with known times, and nothing else that matters."""

import numpy as np
import pandas as pd

from tracer.analyzers.compare import contrast
from tracer.analyzers.compare.sides import Side
from tracer.records import environment
from tracer.records.columns import COLUMNS
from tracer.records.model_info import ModelInfo
from tracer.records.trace import Run, Trace

TEXTS = ("node", "op_type", "domain", "module", "source", "executor", "input_shapes",
         "output_shapes", "kernels")  # fmt: skip


def nodes(rows, batch=1, executor="onnxruntime"):
    """A node table; a row is a dictionary of some columns, `op_type` among them."""
    table = pd.DataFrame(
        [
            {"node": f"{row['op_type']}_{place}", "index": place, "batch": batch,
             "executor": executor, **row}
            for place, row in enumerate(rows)
        ],
    ).reindex(columns=list(COLUMNS))  # fmt: skip
    numbers = ["index", "batch", "macs", "flops", "params", "bytes_read", "bytes_written"]
    for column in numbers:
        table[column] = pd.to_numeric(table[column]).astype("Int64")
    table["calls"] = table["calls"].fillna(1.0).astype("float64")
    return table.astype(dict.fromkeys(TEXTS, "string"))


def side(label, rows, sessions_us, batch=1, executor="onnxruntime", overhead=0.0):
    """A side whose rows took `sessions_us` (sessions × rows), and whole runs their sum."""
    sessions_us = np.asarray(sessions_us, np.float64)
    table = nodes(rows, batch, executor).assign(time_us=sessions_us.mean(axis=0))
    table.loc[np.isnan(sessions_us).all(axis=0), "time_us"] = np.nan
    wall = np.nansum(sessions_us, axis=1) + overhead
    run = Run(executor, batch, {}, wall, wall, sessions_us, np.zeros(len(rows)), ())
    info = ModelInfo(label, "0" * 64, 8, {"": 17}, "", len(rows))
    trace = Trace(info, environment.observe(), {}, (run,), table)
    return Side(
        label, trace, run, table, contrast.of_blocks(wall[:, None]), sessions_us.mean(axis=0),
        sessions_us.std(axis=0, ddof=1) / np.sqrt(len(wall)), len(wall) - 1,
        *np.zeros((2, len(rows))), ((),) * len(rows), tuple(sessions_us[:, None]),
    )  # fmt: skip


def shaken(times, sessions=20, spread=0.01, seed=0):
    """Sessions × rows: the times, each with some noise of its own."""
    random = np.random.default_rng(seed)
    return np.asarray(times) * (1 + spread * random.standard_normal((sessions, len(times))))
