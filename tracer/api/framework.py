"""`tracer.profile_framework`: profiles a live model in PyTorch or Chainer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd

from analyzers.operations import operation_table
from analyzers.timing import notes
from exporters.records import InputSpec, draw, input_specs
from exporters.registry import exporter_of
from exporters.source import load_source
from tracer.errors import TracerError, UsageError
from tracer.executors import registry
from tracer.executors.eager.calls import BACKWARD
from tracer.executors.eager.settings import EagerSettings
from tracer.executors.protocol import FrameworkExecutor, Profiled
from tracer.inputs.dims import batch_sizes
from tracer.records import environment
from tracer.records.trace import ModelInfo, Trace
from tracer.support.progress import Progress, silent

_NONE: Mapping[str, object] = MappingProxyType({})


def profile_framework(
    target: str,
    *,
    framework: str | None = None,
    args: Mapping[str, object] = _NONE,
    weights: Path | None = None,
    batch: int | Sequence[int] | None = None,
    runs: int | None = None,
    warmup: int = 5,
    min_time: float | None = None,
    threads: int = 0,
    seed: int = 0,
    backward: bool = False,
    device: str = "cpu",
    progress: Progress | None = None,
    loss: str | None = None,
    optimizer: str | None = None,
    compiled: bool = False,
    input_shape: Sequence[int] | Sequence[Sequence[int]] | None = None,
    input_dtype: str | Sequence[str] = "float32",
    trust: bool = False,
) -> Trace:
    """Profiles the model that `target` names in its own framework, once for each batch size.

    `target`, `args`, `weights` and `trust` are arguments of `exporters.source.load_source`, which
    runs code of the target. `input_shape` has the batch first; its default is the model's attribute
    `input_shape`, without the batch. Inputs are random with `seed`. `runs` to `optimizer` are
    described in `executors.eager.settings`; `compiled` adds a run of the model after torch.compile.
    The model is restored afterwards. Raises the errors of `tracer.errors`.
    """
    settings = EagerSettings(
        runs, warmup, min_time, threads, seed, device, backward, loss, optimizer
    )
    model = load_source(target, dict(args), weights=weights, framework=framework, trust=trust)
    name = exporter_of(model, framework).name
    executor = registry.find_framework(name)
    if compiled and executor.compiled is None:
        raise UsageError(f"torch.compile does not take a model of {name}", "Leave it out.")
    if hasattr(model, "graph_signature"):
        raise UsageError(
            f"{target} is an exported program, which has no modules to profile",
            "Name the torch.nn.Module, or export it: tracer export.",
        )
    loaded = _Loaded(target, name, executor, model)
    inputs = _inputs(loaded, input_shape, input_dtype)
    report = progress or silent
    profiles: list[Profiled] = []
    notes: list[str] = [f"inputs are random, seed {seed}"]
    for size in batch_sizes(batch):
        specs = inputs if size is None else [spec.with_batch(size) for spec in inputs]
        arrays = draw(specs, seed)
        profiles.append(executor.profile(loaded.model, arrays, settings, report))
        if compiled and executor.compiled is not None:
            try:
                profiles.append(executor.compiled.profile(loaded.model, arrays, settings, report))
            except TracerError as error:
                notes.append(f"torch.compile does not work here: {error.what}")
    arguments = {"target": target, "args": dict(args), "batch": batch, "compiled": compiled}
    names = {"framework": name, "weights": str(weights or "")}
    return _trace(loaded, profiles, {**asdict(settings), **arguments, **names}, notes)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A live model of a framework, and the executor of the framework."""

    target: str
    framework: str
    executor: FrameworkExecutor[Any, Sequence[Any], EagerSettings]
    model: Any

    def info(self, nodes: int) -> ModelInfo:
        """Returns what identifies the model: the target, and a digest of its parameters."""
        digest, count = hashlib.sha256(), 0
        for name, size, data in self.executor.parameters(self.model):
            digest.update(name.encode() + b"\0" + data)
            count += size
        return ModelInfo(
            name=self.target,
            sha256=digest.hexdigest(),
            ir_version=0,
            opsets={},
            producer=self.framework,
            nodes=nodes,
            params=count,
        )


def _inputs(loaded: _Loaded, shapes: Any, dtypes: str | Sequence[str]) -> tuple[InputSpec, ...]:
    """Returns the inputs of these shapes; by default the model's `input_shape` of one example."""
    default = getattr(loaded.model, "input_shape", None)
    if shapes is None and isinstance(default, tuple) and all(isinstance(n, int) for n in default):
        shapes = (1, *default)
    if shapes is None:
        raise UsageError(
            f"the shape of the input of {loaded.target} is not known",
            "Give it with the batch first: --input-shape 1,3,32,32.",
        )
    specs = input_specs(shapes, dtypes)
    for spec in specs:
        spec.check()
    return specs


def _trace(
    loaded: _Loaded, profiles: Sequence[Profiled], settings: Mapping[str, Any], notes: Sequence[str]
) -> Trace:
    tables = [operation_table(profile) for profile in profiles]
    rows = [operation.node for operation in profiles[0].operations if operation.module is not None]
    return Trace(
        model=loaded.info(sum(not node.endswith(BACKWARD) for node in rows)),
        environment=environment.observe(),
        settings=settings,
        runs=tuple(profile.run for profile in profiles),
        nodes=pd.concat(tables, ignore_index=True),
        notes=(*notes, *_notes(profiles)),
    )


def _notes(profiles: Sequence[Profiled]) -> Iterator[str]:
    for profile in profiles:
        run = profile.run
        prefix = f"{run.executor}, batch {run.batch}: " if len(profiles) > 1 else ""
        groups = [(str(kernel.node),) for kernel in run.kernels]
        yield from (prefix + note for note in (*run.notes, *notes(run, groups)))
