"""Reads the profile that onnxruntime wrote in any program, as a Run without a correction.

With the model, kernels are joined to the graph that onnxruntime makes of it here, whose tensors
say which nodes they stand for. Without it, they are only names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tracer.errors import InputError, ModelError
from tracer.executors.onnxruntime import (
    compiled_subgraphs,
    device_notes,
    kernel_nodes,
    profile_events,
    self_times,
    sessions,
)
from tracer.executors.onnxruntime.profile_events import Label
from tracer.executors.onnxruntime.saved_graph import Folder
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.graph.encoding import encoded
from tracer.graph.model import Model
from tracer.records.trace import Kernel, Run

_TICK_US = 1.0
_BLOCKED = re.compile(r"_(?:nchwc|nhwc)$")
"""What onnxruntime adds to the name of a node whose layout it changes."""


def read(path: Path, model: Model | None) -> Run:
    """Returns the runs in a profile, with the times as the profiler wrote them.

    `wall_us` are the same runs, as others were not timed. The first of several runs is left out.
    Raises InputError for a file without a run, ModelError for one that is no such profile.
    """
    labels = profile_events.Labels(every_shape=True)
    try:
        events = profile_events.read(path, labels)
    except ModelError as error:
        raise InputError(
            f"{path}: not a profile of onnxruntime", "Name the .json file that it wrote."
        ) from error
    table = self_times.tabulate(events, len(labels.kernels))
    if not len(table.dur) or not labels.kernels:
        raise InputError(
            f"{path}: holds no run of a model", "Run the model before you end the profile."
        )
    kept = slice(1, None) if len(table.dur) > 1 else slice(None)
    calls = table.calls[kept].mean(axis=0).tolist()
    order = sorted(range(len(labels.kernels)), key=lambda i: labels.kernels[i].first_us)
    kernels, notes = _kernels([labels.kernels[i] for i in order], [calls[i] for i in order], model)
    if table.device_us is not None:
        device_us = table.device_us[kept].mean(axis=0)[order]
        kernels = kernel_nodes.timed_on_device(kernels, device_us)
    notes = (*notes, *device_notes.notes(kernels, table.apart_us, here=False))
    took = table.dur[kept].astype(np.float64)
    return Run(
        executor="onnxruntime",
        batch=None,
        inputs={},
        wall_us=took,
        instrumented_us=took,
        samples=table.self_us[kept][:, order].astype(np.float32),
        bias_us=np.zeros(len(order)),
        kernels=kernels,
        notes=(*_about(path, len(table.dur)), *notes),
        tick_us=_TICK_US,
    )


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


def _about(path: Path, runs: int) -> tuple[str, ...]:
    first = (
        "the only run is the first, in which memory is allocated and caches are filled"
        if runs == 1
        else f"the first of {runs:,} runs is left out: it allocates memory and fills caches"
    )
    return (
        f"times are those that onnxruntime's profiler wrote to {path.name}, with its overhead: "
        "only a calibrated run (tracer profile MODEL.onnx) can be corrected",
        "the file does not say on which machine, with how many threads and on which inputs it ran",
        first,
    )


def _kernels(
    labels: Sequence[Label], calls: Sequence[float], model: Model | None
) -> tuple[tuple[Kernel, ...], tuple[str, ...]]:
    """Returns a kernel for each label, in the order they ran, and what is not known of them."""
    if model is None:
        bare = tuple(_bare(label, count) for label, count in zip(labels, calls, strict=True))
        return bare, ("rows are kernels: --model FILE joins them to nodes, and counts their work",)
    folder = Folder()
    with folder:
        factory = sessions.Factory(model, encoded(model.proto, model.name), OrtSettings())
        if any(map(compiled_subgraphs.is_compiled, labels)):
            factory.save_on_cpu(folder.graph)
        else:
            factory.open(optimized=folder.graph)
        saved = kernel_nodes.SavedNodes.read(folder.graph, elsewhere=True)
    strange = sum(
        not saved.has(label) and not compiled_subgraphs.is_compiled(label) for label in labels
    )
    names = {node.proto.name: node.key for node in model.nodes if node.proto.name}
    joined = kernel_nodes.kernels(model, saved, labels, calls)
    found = tuple(
        replace(
            kernel,
            name=label.name,
            node=names.get(_BLOCKED.sub("", label.name)),
            parts=tuple(replace(part, node=names.get(part.name)) for part in kernel.parts),
        )
        for kernel, label in zip(joined, labels, strict=True)
    )
    note = (
        f"{strange:,} of {len(labels):,} kernels are not in the graph that onnxruntime makes of "
        "the model here: another version, level of optimisation or model may have run"
    )
    return found, (note,) if strange else ()


def _bare(label: Label, calls: float) -> Kernel:
    """Returns what the profile alone says of a kernel."""
    return Kernel(
        name=label.name,
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
