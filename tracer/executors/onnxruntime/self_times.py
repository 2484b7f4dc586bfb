"""Computes the self time of each profiled event from the nesting of event intervals.

Execute and model_run events carry no identity, and a file may be ordered by start or by end. That
an If or a Loop contains the nodes of its body follows only from `ts` and `dur` on one thread.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tracer.executors.onnxruntime.profile_events import EXECUTE, MODEL_RUN, Events
from tracer.support.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class RunTable:
    """Duration of each run, and self time (µs) and calls of each kernel, (runs, labels).

    `bodies` are the runs of bodies inside each kernel, as of an If or a Loop, in the same shape.
    `device_us` is the time of each kernel on the device, beside its self time; None for a profile
    without events of the device. `apart_us` is the time there, in all runs, of what no node
    launched.
    """

    dur: IntArray
    self_us: FloatArray
    calls: IntArray
    bodies: IntArray
    device_us: FloatArray | None = None
    apart_us: float = 0.0

    def take(self, rows: IntArray) -> RunTable:
        """Returns the table of these runs."""
        device = None if self.device_us is None else self.device_us[rows]
        return replace(
            self, dur=self.dur[rows], self_us=self.self_us[rows], calls=self.calls[rows],
            bodies=self.bodies[rows], device_us=device,
        )  # fmt: skip


def tabulate(events: Events, kernels: int) -> RunTable:
    """Sums the events of each model_run; `kernels` is the number of labels."""
    runs = run_events(events)
    node = np.flatnonzero(events.label > EXECUTE)
    run = runs_around(events, runs, node)
    inside = run >= 0
    node, run = node[inside], run[inside]
    cell = run * kernels + events.label[node] - EXECUTE - 1
    shape = (len(runs), kernels)

    def by_cell(values: IntArray | FloatArray) -> FloatArray:
        sums = np.bincount(cell, values, len(runs) * kernels)
        return sums.astype(np.float64).reshape(shape)

    own, bodies = _self_times(events)
    calls = np.bincount(cell, minlength=len(runs) * kernels).reshape(shape)
    inside_calls = by_cell(bodies[node]).astype(np.int64)
    table = RunTable(events.dur[runs], by_cell(own[node]), calls, inside_calls)
    if events.device_us is None:
        return table
    device = by_cell(events.device_us[node])
    apart = events.stray_us + events.device_us.sum() - device.sum()
    return replace(table, device_us=device, apart_us=float(apart))


def run_events(events: Events) -> IntArray:
    """Returns the positions of the events of runs, in the order in which the runs began."""
    runs = np.flatnonzero(events.label == MODEL_RUN)
    return runs[np.argsort(events.ts[runs], kind="stable")]


def runs_around(events: Events, runs: IntArray, nodes: IntArray) -> IntArray:
    """Returns which of `runs` each of `nodes` is in; -1 for one after a run that was broken off.

    Runs of several threads may overlap, so a node is in a run of its own thread. Threads that make
    no runs compute nodes for others.
    """
    callers = np.unique(events.tid[runs])
    of_thread = [(events.tid[runs] == tid, events.tid[nodes] == tid) for tid in callers]
    helping = (np.full(len(runs), True), ~np.isin(events.tid[nodes], callers))
    found = np.full(len(nodes), -1)
    for its_runs, its_nodes in (*of_thread, helping):
        own, place = np.flatnonzero(its_runs), np.flatnonzero(its_nodes)
        at = np.searchsorted(events.ts[runs[own]], events.ts[nodes[place]], side="right") - 1
        place, at = place[at >= 0], own[at[at >= 0]]
        ended = events.ts[nodes[place]] - events.ts[runs[at]] > events.dur[runs[at]]
        found[place] = np.where(ended, -1, at)
    return found


def _self_times(events: Events) -> tuple[IntArray, IntArray]:
    """Returns `dur` minus the Execute events directly inside, and the number of these events.

    The first is a node's time outside its body.
    The gaps between the nodes of a body belong to the runtime and the profiler, not to the parent.
    So the whole interval of a body is subtracted, not only the intervals of its nodes.
    """
    own, bodies = events.dur.copy(), np.zeros(len(events), np.int64)
    executes = int(np.count_nonzero(events.label == EXECUTE))
    if executes <= int(np.count_nonzero(events.label == MODEL_RUN)):
        return own, bodies  # one Execute a run: nothing is nested
    for parent, child in parents(events):
        if events.label[child] == EXECUTE and events.label[parent] > EXECUTE:
            own[parent] -= events.dur[child]
            bodies[parent] += 1
    # rounded to µs, a body may be 1 longer than its parent
    return np.maximum(own, 0), bodies


def parents(events: Events) -> list[tuple[int, int]]:
    """Returns (parent, child) for every event inside another event of its thread."""
    # Of two events that start together the longer is the parent; of two equal events, the one
    # written later: a parent ends after its children, and a stable sort by start keeps that order.
    order = np.lexsort((-np.arange(len(events)), -events.dur, events.ts, events.tid))
    end = events.ts + events.dur
    pairs: list[tuple[int, int]] = []
    stack: list[int] = []
    for event in order.tolist():
        while stack and not (
            events.tid[stack[-1]] == events.tid[event]
            and events.ts[event] < end[stack[-1]]
            and end[event] <= end[stack[-1]] + 1  # rounded to µs, a child may seem to end later
        ):
            stack.pop()
        if stack:
            pairs.append((stack[-1], event))
        stack.append(event)
    return pairs
