"""The node table of a model that ran in its framework: a row for each operator that was called."""

from collections.abc import Mapping

import pandas as pd

from analyzers.timing import timing
from tracer.executors.protocol import Profiled
from tracer.records.node_table import typed
from tracer.records.trace import Run


def operation_table(profile: Profiled) -> pd.DataFrame:
    """The node table, its rows in the order in which they first ran.

    A row's time is that of all its kernels, its `calls` those of the operator itself. `kernels`
    names the row and then what ran in it. Work is not counted: the columns of cost are missing.
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
            "executor": run.executor,
            "batch": run.batch,
            "input_shapes": ", ".join(map(str, operation.inputs)) or None,
            "peak_bytes": operation.peak_bytes,
        }
        for index, operation in enumerate(profile.operations)
    ]
    table = pd.DataFrame(rows, index=[operation.node for operation in profile.operations])
    table = table.join(times.drop(columns=["calls", "kernels"]))
    table["calls"] = pd.Series(_calls(run))
    table["kernels"] = pd.Series(_kernels(run))
    return typed(table)


def _calls(run: Run) -> Mapping[str, float]:
    """Calls of each row: those of its first kernel that lies in no other."""
    return {str(k.node): k.calls for k in reversed(run.kernels) if not k.scope}


def _kernels(run: Run) -> Mapping[str, str]:
    """What ran in each row; the name of the row makes it the row's own."""
    inside: dict[str, dict[str, None]] = {}
    for kernel in run.kernels:
        inside.setdefault(str(kernel.node), {})[kernel.op_type] = None
    return {node: f"{node}: {', '.join(names)}" for node, names in inside.items()}
