"""The runs of a trace as timelines: a mean run with its modules, and recorded runs.

A trace has the time of each kernel in each run, and no points in time. So slices follow each other
without gaps, in the order in which the kernels ran, and what is in no kernel is at the end.
"""

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.timing import wall
from tracer.analyzers.views.timeline import Counter, Process, Slice, Timeline, Track, Value
from tracer.analyzers.views.trace.headline import headline
from tracer.analyzers.views.trace.sections import Section
from tracer.analyzers.views.trace.timed_rows import TimedRow, present, timed, timed_rows
from tracer.records.trace import Kernel, Run, Trace

_RECORDED_RUNS = 10
_RECORDED_SLICES = 20_000
"""Most runs, and about the most slices, that are shown as they were recorded."""

_MEMORY = (("peak_bytes", "memory (bytes alive)"), ("arena_bytes", "arena (bytes in use)"))


def timeline(trace: Trace, options: ViewOptions) -> Timeline:
    """Returns two processes for each run: its mean, and the first inferences as recorded.

    Raises UsageError for a trace without times.
    """
    processes = []
    for section, run in timed(trace, "a timeline"):
        title = headline(trace, section)
        rows = timed_rows(section, run)
        processes.append(_mean_run(title, section, run, rows))
        if len(run.samples) and run.kernels:
            processes.append(_recorded(title, run, rows))
    return Timeline(trace.model.name, tuple(processes), trace.notes)


def _mean_run(title: str, section: Section, run: Run, rows: Sequence[TimedRow]) -> Process:
    """Returns the process of the corrected mean times."""
    ends = _ends([row.time_us for row in rows])
    slices = [
        Slice(row.name, begin, end, row.values)
        for row, begin, end in zip(rows, [0, *ends], ends, strict=False)
    ]
    total = max(_ns(wall(run)["mean"]), ends[-1] if ends else 0)
    whole = Slice("mean run", 0, total, {"wall_us": wall(run)["mean"], "runs": len(run.wall_us)})
    tracks = (
        Track("runs", [whole]),
        Track("modules and nodes", _by_module(rows, slices)),
        *_kernel_tracks(run, rows, slices),
    )
    return Process(
        f"{title}: mean run, without profiler overhead", tracks, _memory(section, slices)
    )


def _by_module(rows: Sequence[TimedRow], slices: Sequence[Slice]) -> list[Slice]:
    """Returns nodes inside the slices of their modules; a module that is left ends."""
    top: list[Slice] = []
    stack: list[Slice] = []
    path: tuple[str, ...] = ()
    for row, own in zip(rows, slices, strict=True):
        common = _common(path, row.path)
        del stack[common:]
        for depth in range(common, len(row.path)):
            module = ".".join(row.path[: depth + 1])
            opened = Slice(row.path[depth], own.begin_ns, own.end_ns, {"module": module})
            (stack[-1].inner if stack else top).append(opened)
            stack.append(opened)
        for module_slice in stack:
            module_slice.end_ns = own.end_ns
        (stack[-1].inner if stack else top).append(own)
        path = row.path
    return top


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Returns how many names two paths have in common."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _kernel_tracks(run: Run, rows: Sequence[TimedRow], slices: Sequence[Slice]) -> list[Track]:
    """Returns a track for each provider, with the kernels that each row is the time of."""
    kernels = {kernel.name: kernel for kernel in run.kernels}
    means = run.samples.mean(axis=0).tolist() if len(run.samples) else [0.0] * len(run.kernels)
    weight: dict[str, float] = {}
    for kernel, mean in zip(run.kernels, means, strict=True):
        weight[kernel.name] = weight.get(kernel.name, 0.0) + mean
    tracks: dict[str, list[Slice]] = {}
    for row, own in zip(rows, slices, strict=True):
        known = [kernels[name] for name in row.kernels if name in kernels]
        for kernel, begin, end in _parts(own, known, weight):
            values = _kernel_values(kernel, row.values)
            tracks.setdefault(kernel.provider, []).append(Slice(kernel.name, begin, end, values))
    return [Track(_track_name(run, provider), inside) for provider, inside in tracks.items()]


def _parts(
    whole: Slice, kernels: Sequence[Kernel], weight: Mapping[str, float]
) -> Iterator[tuple[Kernel, int, int]]:
    """Divides the time of a row among its kernels, in proportion to what was recorded."""
    shares = [weight[kernel.name] for kernel in kernels]
    length, total = whole.end_ns - whole.begin_ns, sum(shares)
    begin, done = whole.begin_ns, 0.0
    for kernel, share in zip(kernels, shares, strict=True):
        done += share
        part = done / total if total else 1.0
        end = whole.begin_ns + round(length * min(part, 1.0))
        yield kernel, begin, end
        begin = end


def _recorded(title: str, run: Run, rows: Sequence[TimedRow]) -> Process:
    """Returns the process of the first profiled inferences, with the profiler's overhead."""
    count = max(1, min(_RECORDED_RUNS, len(run.samples), _RECORDED_SLICES // len(run.kernels)))
    of_kernel = {name: row.values for row in rows for name in row.kernels}
    values = [_kernel_values(kernel, of_kernel.get(kernel.name, {})) for kernel in run.kernels]
    inferences: list[Slice] = []
    tracks: dict[str, list[Slice]] = {kernel.provider: [] for kernel in run.kernels}
    start = 0
    for inference in range(count):
        ends = _ends(run.samples[inference].tolist(), start)
        for place, (kernel, begin) in enumerate(zip(run.kernels, [start, *ends], strict=False)):
            inside = Slice(kernel.name, begin, ends[place], values[place])
            tracks[kernel.provider].append(inside)
        whole = float(run.instrumented_us[inference])
        end = max(start + _ns(whole), ends[-1])
        inferences.append(Slice(f"run {inference + 1}", start, end, {"profiled_us": whole}))
        start = end
    named = (Track(_track_name(run, provider), inside) for provider, inside in tracks.items())
    what = f"the first {count:,} of {len(run.samples):,} profiled runs, with profiler overhead"
    return Process(f"{title}: {what}", (Track("runs", inferences), *named))


def _track_name(run: Run, provider: str) -> str:
    return f"kernels on {provider or run.executor}"


def _kernel_values(kernel: Kernel, of_row: Mapping[str, Value]) -> dict[str, Value]:
    """Returns the operator of a kernel, and the node, module and source line that it runs."""
    origin = {name: of_row[name] for name in ("node", "module", "source") if name in of_row}
    return {"op_type": kernel.op_type, **origin, "calls": kernel.calls}


def _memory(section: Section, slices: Sequence[Slice]) -> tuple[Counter, ...]:
    """Returns the bytes at the begin of each node that has a figure; the last node's at its end."""
    begins = {each.values["node"]: each.begin_ns for each in slices}
    counters = []
    for column, name in _MEMORY:
        known = present(section.nodes[section.nodes[column].notna()], ("node", column))
        points = [(begins[row["node"]], int(row[column])) for row in known if row["node"] in begins]
        if points:
            counters.append(Counter(name, sorted([*points, (slices[-1].end_ns, 0)])))
    return tuple(counters)


def _ends(times_us: Sequence[float], start: int = 0) -> list[int]:
    """Returns when each of consecutive times ends, in ns; rounding errors do not add up."""
    return [start + end for end in pd.Series(times_us).cumsum().mul(1000).round().astype("int64")]


def _ns(time_us: float) -> int:
    return round(time_us * 1000)
