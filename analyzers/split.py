"""The parts of nodes in the time of a kernel that contains several: an estimate.

No profiler sees inside a kernel. But each of its nodes can run alone, as the model has it, and the
kernel's time is divided in the proportion of these times. Fusion saves the memory traffic between
nodes, most of the time of a cheap one: its part is then estimated too long, and the others' too
short.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import pandas as pd

from tracer.analyzers.timing import largest
from tracer.records.trace import Run


def longest_fused(run: Run, groups: Sequence[tuple[str, ...]], top: int) -> tuple[str, ...]:
    """Returns the nodes of the `top` longest kernels that contain several, longest kernel first.

    `groups` gives the nodes of each kernel of the run.
    """
    every = (groups[position] for position in largest(run, groups, len(groups)))
    fused = list(dict.fromkeys(group for group in every if len(group) > 1))
    return tuple(dict.fromkeys(node for group in fused[:top] for node in group))


def parts(
    times: pd.DataFrame, groups: Sequence[tuple[str, ...]], alone: Mapping[str, float]
) -> pd.DataFrame:
    """Returns `time_us_split` by node key: its part of the `time_us` of the rows in `times`.

    `alone` are times of nodes that ran alone, in any unit. A row with a node that has none, or NaN,
    keeps its whole time. The parts sum to `time_us`. The table is empty if `alone` is.
    """
    if not alone:
        return pd.DataFrame({"time_us_split": pd.Series(dtype="float64")})
    members: dict[str, dict[str, None]] = {}
    for group in groups:
        if group:
            members.setdefault(group[0], {}).update(dict.fromkeys(group))
    divided: defaultdict[str, float] = defaultdict(float)
    for row, time in times["time_us"].dropna().items():
        own = {node: alone.get(node, math.nan) for node in members.get(str(row), ())}
        total = sum(own.values())
        if not total > 0:
            own, total = {str(row): 1.0}, 1.0
        for node, each in own.items():
            divided[node] += time * each / total
    return pd.DataFrame({"time_us_split": pd.Series(divided)})


def notes(groups: Sequence[tuple[str, ...]], alone: Mapping[str, float]) -> tuple[str, ...]:
    """Returns that parts are estimates, and how many kernels were not divided; `()` if none was."""
    if not alone:
        return ()
    fused = [group for group in dict.fromkeys(groups) if len(group) > 1]
    divided = sum(sum(alone.get(node, math.nan) for node in group) > 0 for group in fused)
    return (
        f"the times of {divided} of {len(fused)} fused kernels are divided among their nodes, by "
        "the times of the nodes run alone: an estimate",
    )
