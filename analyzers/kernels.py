"""Fold the kernels of a run by operator: own time, and total time with the kernels inside."""

from collections import Counter

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracer.analyzers.timing import timing
from tracer.errors import UsageError
from tracer.records.trace import Run


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
    outer = ~_handed_on(run)
    totals = _totals(run, times["time_us"].to_numpy(np.float64))
    rows = pd.DataFrame(
        {
            "op_type": [kernel.op_type for kernel in run.kernels],
            "calls": times["calls"].where(outer).to_numpy(),
            "time_us": times["time_us"].to_numpy(),
            "time_us_raw": times["time_us_raw"].to_numpy(),
            "time_share": times["time_share"].to_numpy(),
            "time_us_total": np.where(outer, totals, np.nan),
        }
    )
    folded = rows.groupby("op_type", sort=False).sum(min_count=1).reset_index()
    folded["time_share"] = folded["time_us"] / (folded["time_us"].sum() or np.nan)
    folded["time_total_share"] = folded["time_us_total"] / (folded["time_us"].sum() or np.nan)
    folded["time_us_per_call"] = folded["time_us_total"] / folded["calls"]
    return folded


def _handed_on(run: Run) -> npt.NDArray[np.bool_]:
    """Returns which kernels are alone inside a kernel of the same name."""
    names = {kernel.name: kernel.op_type for kernel in run.kernels}
    inside = Counter(kernel.scope for kernel in run.kernels)
    return np.array(
        [names.get(k.scope) == k.op_type and inside[k.scope] == 1 for k in run.kernels], np.bool_
    )


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
