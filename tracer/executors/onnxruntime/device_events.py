"""Adds up the time on the device of the kernels that each node launched.

Builds of onnxruntime with CUDA or ROCm profiling write an event of the category `Kernel` for each
kernel of the device, with its time there. Two shapes are published:

- Up to onnxruntime 1.13 the event follows the event of its node in the file, and names the node's
  operator in `op_name` (onnxruntime #8406, #9567).
- Later ones follow it as well, matched by CUPTI's correlation ids, and name the event that launched
  them in `parent_name` (include/onnxruntime/core/common/gpu_profiler_common.h). Where no event has
  the start time that the id stands for, both names are missing.

The times of nodes themselves are those on the host: of launches, unless CUDA_LAUNCH_BLOCKING=1 made
each launch wait for its kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracer.support.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class DeviceEvent:
    """A kernel of the device: its position among the events of a file, and its time in µs.

    `parents` are the labels that the event which launched it can have; none if it is not known.
    """

    position: int
    dur: int
    parents: frozenset[int]


def by_parent(
    events: Sequence[DeviceEvent], label: IntArray, position: IntArray
) -> tuple[FloatArray, float]:
    """Returns µs on the device for each event of the host, and those that no event launched.

    `label` and `position` are of the events of the host, in the order of the file. The parent is
    the last of them before a kernel that has one of its labels.
    """
    times = np.zeros(len(label))
    rows: dict[frozenset[int], IntArray] = {}
    stray = 0.0
    for event in events:
        if event.parents not in rows:
            rows[event.parents] = np.flatnonzero(np.isin(label, [*event.parents]))
        candidates = rows[event.parents]
        place = int(np.searchsorted(position[candidates], event.position)) - 1
        if place < 0:
            stray += event.dur
        else:
            times[candidates[place]] += event.dur
    return times, stray
