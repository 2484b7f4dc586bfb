"""Reads the profile that onnxruntime wrote in any program, as a Run without a correction.

With the model, kernels are joined to the graph that onnxruntime makes of it here, whose tensors
say which nodes they stand for. Without it, they are only names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tracer.errors import InputError, ModelError
from tracer.executors.foreign import separate_kernels, whole_runs
from tracer.executors.foreign.joining import Join, join_kernels
from tracer.executors.foreign.separate_kernels import SeparateKernel
from tracer.executors.onnxruntime import device_notes, kernel_nodes, profile_events, self_times
from tracer.executors.onnxruntime.self_times import RunTable
from tracer.graph.model import Model
from tracer.records.trace import Kernel, Run

_TICK_US = 1.0

_LATEST_US = 1 << 60
"""Sums of two times before it are no overflow; 36,000 years."""


@dataclass(frozen=True, slots=True)
class _Recorded:
    """The runs of a file that count, its kernels in the order they ran, and notes."""

    table: RunTable
    kernels: tuple[SeparateKernel, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """The runs in a profile; `absent` are kernels that it does not name (see `Join`)."""

    run: Run
    absent: tuple[tuple[int, Kernel], ...]


def read(path: Path, model: Model | None) -> Profile:
    """Returns the runs in a profile, with the times as the profiler wrote them.

    `wall_us` are the same runs, as others were not timed. Runs that are not whole are left out, and
    the first of several. Raises InputError for a file without a whole run, and for one that is no
    such profile.
    """
    recorded = _read_runs(path)
    table = recorded.table
    calls = table.calls.mean(axis=0).tolist()
    if model is None:
        note = "rows are kernels: --model FILE joins them to nodes, and counts their work"
        joined = Join(tuple(map(_bare, recorded.kernels, calls)), notes=(note,))
    else:
        joined = join_kernels(model, recorded.kernels, calls)
    kernels = _with_own_names(joined.kernels)
    if table.device_us is not None:
        kernels = kernel_nodes.timed_on_device(kernels, table.device_us.mean(axis=0))
    took = table.dur.astype(np.float64)
    run = Run(
        executor="onnxruntime",
        batch=None,
        inputs={},
        wall_us=took,
        instrumented_us=took,
        samples=table.self_us.astype(np.float32),
        bias_us=np.zeros(len(kernels)),
        kernels=kernels,
        notes=(
            *recorded.notes,
            *joined.notes,
            *device_notes.notes(kernels, table.apart_us, here=False),
        ),
        tick_us=_TICK_US,
    )
    return Profile(run, joined.absent)


def _read_runs(path: Path) -> _Recorded:
    labels = profile_events.Labels(by_types=True)
    try:
        events = profile_events.read(path, labels, may_be_cut=True)
        if (np.maximum(events.ts, -events.ts - 1) > _LATEST_US).any():
            raise OverflowError("an event is ages away")
    except (ModelError, OverflowError) as error:
        raise InputError(
            f"{path}: not a profile of onnxruntime", "Name the .json file that it wrote."
        ) from error
    if not len(self_times.run_events(events)) or not labels.kernels:
        raise InputError(
            f"{path}: holds no run of a model", "Run the model before you end the profile."
        )
    events, is_spoiled, impossible = whole_runs.bound_durations(events, labels.kernels)
    events, outside = whole_runs.keep_inside(events)
    events, kernels = separate_kernels.tell_apart(events, labels.kernels)
    table = self_times.tabulate(events, len(kernels))
    is_whole, unfinished = whole_runs.find_whole(events, kernels, table)
    if not kernels or not is_whole.any():
        raise InputError(
            f"{path}: holds no whole run of a model", "Take a file that was not cut off."
        )
    if (is_whole & ~is_spoiled).any():
        is_whole &= ~is_spoiled
    runs = np.flatnonzero(is_whole)
    counted = runs[1:] if runs[0] == 0 and len(runs) > 1 else runs
    cut = (f"{path.name} is cut off, and was read as far as it goes",) if events.is_cut else ()
    notes = (*_about(path, len(runs), len(counted)), *cut, *outside, *unfinished, *impossible)
    return _Recorded(table.take(counted), kernels, notes)


def input_shapes(model: Model, run: Run) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the model's inputs, as the kernels that read them had them."""
    names = {value.name for value in model.inputs}
    shapes: dict[str, tuple[int, ...]] = {}
    for kernel in run.kernels:
        present = [name for name in kernel.inputs if name] or _read_by_parts(kernel)
        if len(present) != len(kernel.input_types):
            continue
        for name, kind in zip(present, kernel.input_types, strict=True):
            if name in names and kind.concrete is not None:
                shapes.setdefault(name, kind.concrete)
    return shapes


def _read_by_parts(kernel: Kernel) -> list[str]:
    """Returns the tensors that a compiled subgraph reads from outside, in the order of its nodes.

    Events of the subgraphs that were looked at list their types in this order.
    """
    made = {name for part in kernel.parts for name in part.outputs}
    read = (name for part in kernel.parts for name in part.inputs if name and name not in made)
    return list(dict.fromkeys(read))


def _about(path: Path, runs: int, counted: int) -> Iterator[str]:
    yield (
        f"times are those that onnxruntime's profiler wrote to {path.name}, with its overhead: "
        "only a calibrated run (tracer profile MODEL.onnx) can be corrected"
    )
    yield "the file does not say on which machine, with how many threads and on which inputs it ran"
    if counted < runs:
        yield f"the first of {runs:,} runs is left out: it allocates memory and fills caches"
    elif runs == 1:
        yield "the only run is the first, in which memory is allocated and caches are filled"


def _with_own_names(kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """Returns the kernels; those with the name of another are called after their node."""
    taken: set[str] = set()
    named = []
    for index, kernel in enumerate(kernels):
        name = kernel.name
        if name in taken and kernel.node is not None:
            name = kernel.node
        while name in taken:
            name = f"{name}#{index}"
        taken.add(name)
        named.append(replace(kernel, name=name))
    return tuple(named)


def _bare(separate: SeparateKernel, calls: float) -> Kernel:
    """Returns what the profile alone says of a kernel."""
    label = separate.label
    return Kernel(
        name=separate.name,
        op_type=label.op_type,
        domain="",
        provider=label.provider,
        node=None,
        scope="",
        inputs=(),
        outputs=(),
        attributes=(),
        input_types=label.input_types,
        output_types=label.output_types,
        calls=calls,
        arena_bytes=label.arena_bytes,
        arena_peak_bytes=label.arena_peak_bytes,
    )
