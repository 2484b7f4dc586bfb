"""Profiles a live model in PyTorch or Chainer: see `tracer.profile_framework`."""

import hashlib
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from typing import Any

import pandas as pd
from numpy.typing import NDArray

from tracer.analyzers.roofline import with_roofs
from tracer.analyzers.timing import notes, operation_table
from tracer.api._assembly import as_list, configured
from tracer.api.profile import ProfileFrameworkArguments
from tracer.errors import InputError, TracerError, UsageError
from tracer.executors import registry
from tracer.executors.calls import RANGE, described
from tracer.executors.registry import CountingExecutor, Profiled, Works
from tracer.executors.settings import EagerSettings
from tracer.exporters.records import InputSpec, draw, exporter_of, inputs_of
from tracer.exporters.subject import load_source
from tracer.records import environment
from tracer.records.model_info import ModelInfo
from tracer.records.trace import BACKWARD, Trace, distinctions


def profile_framework(call: ProfileFrameworkArguments) -> Trace:
    """Loads the model and profiles it, once for each batch size and number of threads."""
    counts, args = as_list(call.threads), dict(call.args or {})
    named = call.inputs if isinstance(call.inputs, Mapping) else {}
    settings = [EagerSettings(
        call.runs, call.warmup, call.min_time, count, call.precision, call.seed, call.device,
        call.backward, call.loss, call.optimizer, call.train, tuple(named),
    ) for count in counts]  # fmt: skip
    subject = call.target if isinstance(call.target, str) else type(call.target).__name__
    model: Any = load_source(
        call.target, args, weights=call.weights, framework=call.framework, trust=call.trust,
        seed=call.seed,
    )  # fmt: skip
    name = exporter_of(model, call.framework).name
    executor = registry.find_framework(name)
    if call.compiled and executor.compiled is None:
        raise UsageError(f"torch.compile does not take a model of {name}", "Leave it out.")
    if hasattr(model, "graph_signature"):
        raise UsageError(
            f"{subject} is an exported program, which has no modules to profile",
            "Name the torch.nn.Module, or export it: tracer export.",
        )
    compiler = executor.compiled if call.compiled else None
    if call.inputs is None:
        specs = known_specs(model, subject, call.input_shape, call.input_dtype)
        drawn = [draw_inputs(specs, size, call.seed) for size in as_list(call.batch)]
        notes = [f"inputs are random, seed {call.seed}"]
    else:
        given: Any = list(named.values()) or call.inputs
        drawn, notes = [given], ["inputs are arrays that were given"]
    _check_inputs(model, subject, drawn[0], settings[0])
    profiles, works = list[Profiled](), dict[int, Works]()  # works by the position of the profile
    for arrays, setting in product(drawn, settings):
        arguments = (model, arrays, setting, call.report)
        if call.peaks and isinstance(executor, CountingExecutor):
            works[len(profiles)] = executor.work(model, arrays, setting)
        profiles.append(_configured(executor.profile(*arguments), setting))
        try:
            profiles += [_configured(compiler.profile(*arguments), setting)] if compiler else []
        except TracerError as error:
            notes.append(f"torch.compile does not work here: {error.what}")
    recorded = asdict(settings[0]) | {"target": subject, "args": args, "batch": call.batch}
    recorded |= {"threads": call.threads if len(counts) == 1 else counts}
    recorded |= {"compiled": call.compiled, "framework": name, "weights": str(call.weights or "")}
    peaks = call.peaks(counts[0]) if call.peaks and works else None
    tables = [
        with_roofs(operation_table(profile), _multiplied(works.get(place, {}), peaks), peaks)
        for place, profile in enumerate(profiles)
    ]
    return Trace(
        model=_info(subject, name, profiles[0], executor.parameters(model)),
        environment=replace(environment.observe(), peaks=peaks),
        settings=recorded,
        runs=tuple(profile.run for profile in profiles),
        nodes=pd.concat(tables, ignore_index=True),
        notes=(*notes, *_notes(profiles)),
    )


def _multiplied(works: Works, peaks: environment.Peaks | None) -> Works:
    """Returns the works with the type in which the card of the peaks multiplies float32."""
    if peaks is None or environment.TF32 not in peaks.arithmetic:
        return works
    from tracer.host.card import multiplied_as  # imports torch

    return {
        node: replace(work, arithmetic=multiplied_as(work.operator))
        if work.arithmetic == "float32"
        else work
        for node, work in works.items()
    }


def _info(
    target: str, framework: str, profile: Profiled, parameters: Iterable[tuple[str, int, bytes]]
) -> ModelInfo:
    """Returns what a trace says of a model; its nodes are the operators in its modules.

    The digest is of the names and values of all parameters.
    """
    operators = (row for row in profile.operations if row.op_type != RANGE)
    rows = [row.node for row in operators if row.module is not None]
    digest, count = hashlib.sha256(), 0
    for name, size, data in parameters:
        digest.update(name.encode() + b"\0" + data)
        count += size
    return ModelInfo(
        name=target,
        sha256=digest.hexdigest(),
        ir_version=0,
        opsets={},
        producer=framework,
        nodes=sum(not node.endswith(BACKWARD) for node in rows),
        params=count,
    )


def known_specs(
    model: object, target: str, shapes: Any, dtypes: str | Sequence[str]
) -> tuple[InputSpec, ...]:
    """Returns the inputs of a model. Raises UsageError where their shapes are not known."""
    specs = inputs_of(model, shapes, dtypes)
    if not specs:
        raise UsageError(
            f"the shape of the input of {target} is not known",
            "Give it with the batch first: --input-shape 1,3,32,32.",
        )
    return specs


def draw_inputs(specs: Sequence[InputSpec], batch: int | None, seed: int) -> Sequence[NDArray[Any]]:
    """Returns random arrays, at another batch if there is one."""
    return draw(specs if batch is None else [spec.with_batch(batch) for spec in specs], seed)


def _check_inputs(
    model: Any, target: str, arrays: Sequence[NDArray[Any]], settings: EagerSettings
) -> None:
    """Raises InputError for a number or names of inputs that the forward pass does not take."""
    try:
        signature = inspect.signature(model)
        if any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values()):
            signature = inspect.signature(getattr(model, "forward", model))  # it hands all on
    except ValueError:  # compiled code has none; then the first run tells
        return
    try:
        settings.call(signature.bind, arrays)
    except TypeError as error:
        names = [f"{name}=" for name in settings.names] or [""] * len(arrays)
        given = ", ".join(map("".join, zip(names, map(described, arrays), strict=True))) or "none"
        raise InputError(
            f"{target}: its forward pass takes {signature}, and the inputs are {given}",
            "Every input of the ONNX model, or every --input-shape, is one argument.",
        ) from error


def _configured(profile: Profiled, settings: EagerSettings) -> Profiled:
    return replace(profile, run=configured(profile.run, settings))


def _notes(profiles: Sequence[Profiled]) -> Iterator[str]:
    runs = [profile.run for profile in profiles]
    for run, label in zip(runs, distinctions(runs), strict=True):
        prefix = f"{label}: " if label else ""
        groups = [(str(kernel.node),) for kernel in run.kernels]
        yield from (prefix + note for note in (*run.notes, *notes(run, groups)))
