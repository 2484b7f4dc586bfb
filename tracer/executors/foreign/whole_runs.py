"""Finds which runs of a profile are whole, and the durations in it that cannot be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tracer.executors.foreign.separate_kernels import SeparateKernel
from tracer.executors.onnxruntime import self_times
from tracer.executors.onnxruntime.profile_events import EXECUTE, MODEL_RUN, Events, Label
from tracer.executors.onnxruntime.self_times import RunTable
from tracer.support.types import BoolArray, IntArray

_ROUNDING_US = 1
"""Times are whole µs, so an event may seem to end so much after the one around it."""

_NAMED = 3
"""Kernels that a note names."""


def bound_durations(
    events: Events, labels: Sequence[Label]
) -> tuple[Events, BoolArray, tuple[str, ...]]:
    """Returns the events without impossible durations, which runs had some, and a note on them.

    A duration is impossible if it is negative, or longer than what is around it: for a node its
    run, for a run the time until the next one of its thread, for the last one the file. Such a node
    gets the duration 0, such a run the longest that is possible.
    """
    runs = self_times.run_events(events)
    longest = _longest_runs(events, runs)
    bounded = events.dur.copy()
    bounded[runs] = np.where(events.dur[runs] < 0, longest, np.minimum(events.dur[runs], longest))
    events, given = replace(events, dur=bounded), events.dur
    around = self_times.runs_around(events, runs, np.arange(len(events)))
    left = events.ts[runs[around]] + bounded[runs[around]] - events.ts + _ROUNDING_US
    wrong = (given != bounded) | (given < 0) | ((around >= 0) & (bounded > left))
    spoiled = np.isin(np.arange(len(runs)), around[wrong])
    events = replace(events, dur=np.where(wrong & (events.label != MODEL_RUN), 0, bounded))
    return events, spoiled, _impossible(events.label[wrong], given[wrong], labels)


def _longest_runs(events: Events, runs: IntArray) -> IntArray:
    """Returns how long each run can be, µs."""
    ts, tid = events.ts[runs], events.tid[runs]
    span = int(np.ptp(events.ts)) if len(events) else 0
    others = events.label != MODEL_RUN
    ends = events.ts[others] + np.clip(events.dur[others], 0, span)
    longest = int(ends.max(initial=0)) + span - ts
    if len(runs) == 1:  # nothing else tells how long it can be
        longest = np.maximum(longest, events.dur[runs])
    for thread in np.unique(tid):
        own = np.flatnonzero(tid == thread)
        longest[own[:-1]] = np.diff(ts[own]) + _ROUNDING_US
    return longest


def _impossible(wrong: IntArray, durations: IntArray, labels: Sequence[Label]) -> tuple[str, ...]:
    """Returns a note on events with impossible durations, by their labels."""
    if not len(wrong):
        return ()
    names = [_name(labels, int(number)) for number in wrong]
    counts = Counter(names)
    first = {name: int(took) for name, took in zip(reversed(names), durations[::-1], strict=True)}
    told = [f"{n:,} of {name} ({first[name]:,} µs)" for name, n in counts.most_common(_NAMED)]
    more = f" and {len(counts) - _NAMED:,} more kernels" if len(counts) > _NAMED else ""
    return (
        f"durations that cannot be, negative or longer than the run: {', '.join(told)}{more}. Runs "
        "with one are left out; if no others remain, it counts as 0",
    )


def _name(labels: Sequence[Label], number: int) -> str:
    if number <= EXECUTE:
        return "model_run" if number == MODEL_RUN else "SequentialExecutor::Execute"
    label = labels[number - EXECUTE - 1]
    return label.name or label.op_type


def keep_inside(events: Events) -> tuple[Events, tuple[str, ...]]:
    """Returns the events without nodes that are in no run, and a note that counts these."""
    nodes = np.flatnonzero(events.label > EXECUTE)
    around = self_times.runs_around(events, self_times.run_events(events), nodes)
    kept = np.full(len(events), True)
    kept[nodes[around < 0]] = False
    lost = int((~kept).sum())
    note = (
        f"{lost:,} events of kernels are in no whole run, and are left out: the last run did not "
        "finish, or the file was cut off in it"
    )
    return events.take(kept), (note,) if lost else ()


def find_whole(
    events: Events, kernels: Sequence[SeparateKernel], table: RunTable
) -> tuple[BoolArray, tuple[str, ...]]:
    """Returns which runs of `table` are whole, and a note on the others.

    A run that failed has only the first kernels that another one has in the main graph. If the file
    begins with what begins first, and is cut off, the last run may lack kernels of a body as well.
    """
    runs = self_times.run_events(events)
    main = np.array([kernel.owner is None for kernel in kernels], np.bool_)
    nodes = np.flatnonzero(events.label > EXECUTE)
    nodes = nodes[main[events.label[nodes] - EXECUTE - 1]]
    around = self_times.runs_around(events, runs, nodes)
    order = np.lexsort((events.ts[nodes], around))
    ends = np.searchsorted(around[order], np.arange(1, len(runs)))
    ran = np.split(events.label[nodes[order]], ends)
    longest = max(ran, key=len)
    whole = np.array([len(r) == len(longest) or (r != longest[: len(r)]).any() for r in ran])
    last = int(np.argmax(runs))
    if events.is_cut and runs[0] < min(nodes, default=0):
        others = np.delete(table.calls, last, axis=0)
        whole[last] &= bool((others == table.calls[last]).all(axis=1).any())
    broken = int((~whole).sum())
    note = f"{broken:,} of {len(runs):,} runs did not finish, and are left out"
    return whole, (note,) if broken else ()
