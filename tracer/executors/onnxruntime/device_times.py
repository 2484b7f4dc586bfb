"""The time on a CUDA device of what onnxruntime launches, by the node that launched it.

onnxruntime's packages write no event of the device. CUPTI records all kernels and copies of a
process, whoever launched them, and torch's profiler reads CUPTI. So a few runs have both profilers
on. torch's file has the call that launched each kernel, paired by CUPTI's correlation ids; the node
of onnxruntime's file in whose interval the call lies launched it.

Both clocks count from 1970: onnxruntime tells the time of the zero of its file, torch's file has
`baseTimeNanoseconds`. That they agree is seen from marks: each run has one in torch's file, which
must enclose the run in onnxruntime's.
"""

import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tracer.errors import ModelError, refusing
from tracer.executors.foreign import torch_trace
from tracer.executors.onnxruntime import profile_events
from tracer.executors.onnxruntime.profile_events import Events, Labels, RunTable, read
from tracer.support.types import FloatArray, IntArray

_RUN = "tracer run"
_WARMUP, _RUNS = 3, 20
_TICK_NS = 1_000
"""onnxruntime's file has whole µs, truncated."""

NO_TORCH = "torch with CUDA, which is not installed here, would record it"


class _File(torch_trace.File):
    base_ns: int = msgspec.field(default=0, name="baseTimeNanoseconds")


@dataclass(frozen=True, slots=True)
class Launches:
    """Calls of the host that gave work to a device, and the marks of runs.

    `start_ns` is when a call began, `tid` its thread, `device_us` how long the work took on the
    device. `marks` has the begin and the end of each run, (runs, 2). All ns are since 1970.
    `stray_us` is work whose call was not recorded.
    """

    start_ns: IntArray
    tid: IntArray
    device_us: FloatArray
    marks: IntArray
    stray_us: float = 0.0


def why_not() -> str | None:
    """Returns why no time on a device can be recorded here; None if it can."""
    if importlib.util.find_spec("torch") is None:
        return NO_TORCH
    # By default Kineto announces every start and stop on stderr.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    import torch

    return None if torch.cuda.is_available() else NO_TORCH


def measure(
    session: Any, run: Callable[[], object], labels: Labels, folder: Path, most: int
) -> tuple[RunTable | None, str | None]:
    """Runs a profiled session at most `most` times with torch's profiler on, and ends its profile.

    Returns the table of these runs, whose `device_us` is set; and None and why where the clocks of
    the two profiles cannot be aligned. A clock that was shifted is told beside a table.
    """
    marked = max(1, min(_RUNS, most - _WARMUP))
    for _ in range(min(_WARMUP, most - 1)):
        run()
    path = folder / "kineto.json"
    record(run, marked, path)
    zero_ns = session.get_profiling_start_time_ns()
    profile = Path(session.end_profiling())
    events = read(profile, labels)
    launches = read_launches(path)
    for each in (profile, path):
        each.unlink()
    return join(events, zero_ns, launches, len(labels.kernels))


def record(run: Callable[[], object], runs: int, path: Path) -> None:
    """Writes Kineto's file of some runs, each inside a mark."""
    import torch
    from torch.autograd.profiler import profile, record_function

    device = "cuda" if torch.cuda.is_available() else None
    with profile(use_kineto=True, use_device=device) as recorded:
        for _ in range(runs):
            with record_function(_RUN):
                run()
    recorded.export_chrome_trace(str(path))


def read_launches(path: Path) -> Launches:
    """Reads Kineto's file. Raises ModelError for one that is not valid."""
    with refusing(lambda why: ModelError(f"torch wrote a profile that is not valid ({why})")):
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    events = [event for event in file.events if event.ph == "X"]
    calls = {event.args.correlation: event for event in events if event.cat in torch_trace.CALLS}
    rows: list[tuple[int, int, float]] = []
    stray_us = 0.0
    for event in events:
        if event.cat not in torch_trace.WORK:
            continue
        call, took_us = calls.get(event.args.correlation), float(event.dur)
        if call is None:
            stray_us += took_us
        else:
            thread = call.tid if isinstance(call.tid, int) else -1
            rows.append((file.base_ns + call.begin_ns, thread, took_us))
    rows.sort()
    marks = [
        (file.base_ns + e.begin_ns, e.length_ns)
        for e in events
        if e.name == _RUN and e.cat == "user_annotation"  # its copy on the device has another
    ]
    begin, length = np.array(sorted(marks), np.int64).reshape(-1, 2).T
    return Launches(
        start_ns=np.array([start for start, _, _ in rows], np.int64),
        tid=np.array([tid for _, tid, _ in rows], np.int64),
        device_us=np.array([us for _, _, us in rows], np.float64),
        marks=np.stack([begin, begin + length], axis=1),
        stray_us=stray_us,
    )


def join(
    events: Events, zero_ns: int, launches: Launches, kernels: int
) -> tuple[RunTable | None, str | None]:
    """Returns the table of the marked runs, the last of a profile, and a note on its clock.

    `zero_ns` is the zero of the profile in ns since 1970, `kernels` the number of its labels. The
    table is None where no shift of the clock puts every run inside its mark.
    """
    count = len(launches.marks)
    runs = profile_events.run_events(events)[-count:]
    begin = zero_ns + events.ts[runs] * _TICK_NS
    least = int((launches.marks[:, 0] - begin).max()) - _TICK_NS
    most = int((launches.marks[:, 1] - begin - events.dur[runs] * _TICK_NS).min())
    if least > most or len(runs) < count:
        return None, "the clocks of onnxruntime's profiler and of torch's do not fit each other"
    shift = 0 if least <= 0 <= most else (least + most) // 2
    note = (
        f"the clocks of onnxruntime's profiler and of torch's differ by {shift / 1e3:,.1f} µs, "
        "which times on the device allow for"
    )
    row = launching_events(events, launches, zero_ns + shift)
    device_us = np.bincount(
        row[row >= 0], launches.device_us[row >= 0], minlength=len(events)
    ).astype(np.float64)
    stray_us = launches.stray_us + float(launches.device_us[row < 0].sum())
    on_device = replace(events, device_us=device_us, stray_us=stray_us)
    table = profile_events.tabulate(on_device, kernels)
    return table.take(np.arange(len(table.dur) - count, len(table.dur))), note if shift else None


def launching_events(events: Events, launches: Launches, zero_ns: int) -> IntArray:
    """Returns the position among `events` of the node that made each call; -1 for none.

    A node's interval ends up to 2 µs later than its file says. A call of a thread that ran no node
    is looked for among the nodes of all threads.
    """
    nodes = np.flatnonzero(events.label > profile_events.EXECUTE)
    # a body's nodes start after the node that contains them, or with it and are shorter
    nodes = nodes[np.lexsort((-events.dur[nodes], events.ts[nodes]))]
    at = launches.start_ns - zero_ns
    found = np.full(len(at), -1)
    helping = ~np.isin(launches.tid, events.tid[nodes])
    for tid in np.unique(events.tid[nodes]).tolist():
        _fill_innermost(found, events, nodes[events.tid[nodes] == tid], at, launches.tid == tid)
    _fill_innermost(found, events, nodes, at, helping)
    return found


def _fill_innermost(
    found: IntArray, events: Events, nodes: IntArray, at_ns: IntArray, chosen: Sequence[bool] | Any
) -> None:
    """Sets, for the chosen of the sorted times, the last begun of the nodes that contain it."""
    begin = (events.ts[nodes] * _TICK_NS).tolist()
    end = ((events.ts[nodes] + events.dur[nodes] + 2) * _TICK_NS).tolist()
    running: list[int] = []
    place = 0
    for index in np.flatnonzero(chosen).tolist():
        while place < len(begin) and begin[place] <= at_ns[index]:
            running.append(place)
            place += 1
        while running and end[running[-1]] <= at_ns[index]:
            running.pop()
        if running:
            found[index] = nodes[running[-1]]
