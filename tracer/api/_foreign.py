"""Makes a trace of a profile that another program recorded."""

from dataclasses import replace
from itertools import compress
from pathlib import Path

import onnx
import pandas as pd

from tracer.analyzers.attribution import attribute
from tracer.analyzers.grouping import unplaced
from tracer.analyzers.timing import RUNTIME, operation_table, timing
from tracer.api._assembly import Attribution, analyze, assembled
from tracer.errors import UsageError
from tracer.executors import foreign
from tracer.executors.calls import RANGE
from tracer.executors.foreign import onnxruntime_profile, torch_trace
from tracer.graph import loading, provenance
from tracer.inputs.sizes import batch_of
from tracer.records.environment import Environment
from tracer.records.model_info import ModelInfo
from tracer.records.trace import Run, Trace, typed_table
from tracer.shapes import infer
from tracer.text import agree, plural

_UNKNOWN = "unknown"


def foreign_trace(path: Path, model: Path | None) -> Trace:
    """Returns the trace of a profile; with the model of an onnxruntime profile, by its nodes.

    Without a model, its rows are kernels, each called after itself.

    Raises UsageError for a model beside a trace of torch, InputError for a file that is no profile.
    """
    if foreign.kind_of(path) == "torch":
        if model is not None:
            raise UsageError(
                f"{path}: is of torch, and has no nodes of an ONNX model", "Leave out --model."
            )
        profiled = torch_trace.read(path)
        count = sum(row.op_type != RANGE for row in profiled.operations)
        return _trace(path, profiled.run, "torch", operation_table(profiled), count)
    if model is not None:
        return _of_model(path, model)
    run = onnxruntime_profile.read(path, None).run
    rows = [
        {
            "node": kernel.name,
            "index": index,
            "op_type": kernel.op_type,
            "domain": kernel.domain,
            "module": provenance.module_of(onnx.NodeProto(name=kernel.name)),
            **run.key,
            "input_shapes": ", ".join(map(str, kernel.input_types)),
            "output_shapes": ", ".join(map(str, kernel.output_types)),
            "arena_bytes": kernel.arena_bytes,
        }
        for index, kernel in enumerate(run.kernels)
    ]
    times = timing(run, [(kernel.name,) for kernel in run.kernels])
    table = pd.DataFrame(rows, index=[kernel.name for kernel in run.kernels]).join(times)
    return _trace(path, run, "onnxruntime", table, len(rows))


def _of_model(path: Path, file: Path) -> Trace:
    model = loading.load(file)
    profile = onnxruntime_profile.read(path, model)
    shapes = onnxruntime_profile.input_shapes(model, profile.run)
    run = replace(profile.run, batch=batch_of(model, shapes))
    # the nodes of absent kernels are no other's
    every = [(place, True, kernel) for place, kernel in enumerate(profile.run.kernels)]
    every += [(place, False, kernel) for place, kernel in profile.absent]
    every.sort(key=lambda each: each[:2])
    groups = attribute(model.executed, [kernel for _, _, kernel in every])
    has_run = [each[1] for each in every]
    attribution = Attribution(tuple(compress(groups, has_run)))
    analyzed = analyze(model, run, infer(model, shapes), None, "plain", attribution)
    lost = any(not (kernel.outputs or kernel.parts) for kernel in run.kernels)
    if lost or any(not kernel.scope for _, kernel in profile.absent):
        idle = unplaced(analyzed.table[analyzed.table["op_type"] != "Constant"])
        note = (
            f"{plural(idle, 'node')} of the model {agree(idle, 'is', 'are')} in no kernel that is "
            f"known, without a time: in a row {RUNTIME}:…, or folded or removed"
        )
        analyzed = replace(analyzed, notes=(*analyzed.notes, *([note] if idle else [])))
    trace = assembled(model, [analyzed], {"read_from": path.name})
    return replace(trace, environment=_elsewhere())


def _trace(path: Path, run: Run, producer: str, table: pd.DataFrame, nodes: int) -> Trace:
    info = ModelInfo(
        name=path.name, sha256=loading.sha256(path), ir_version=0, opsets={}, producer=producer,
        nodes=nodes,
    )  # fmt: skip
    return Trace(
        info, _elsewhere(), {"read_from": path.name}, (run,), typed_table(table), run.notes
    )


def _elsewhere() -> Environment:
    """Returns the environment of a run of which no file tells the machine."""
    return Environment(
        cpu="a machine that is not known", cpu_count=0, cpu_flags=(), memory_bytes=None, gpus=(),
        cuda=None, os=_UNKNOWN, python=_UNKNOWN, packages={},
    )  # fmt: skip
