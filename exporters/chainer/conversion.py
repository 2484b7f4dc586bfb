"""Converts Chainer models to ONNX by onnx_chainer, which is part of Chainer."""

import re
from collections.abc import Sequence
from typing import Any

import onnx

from tracer.errors import ModelError, TracerError, UsageError
from tracer.exporters.chainer import opset, trace
from tracer.exporters.chainer.batch import make_dynamic
from tracer.exporters.chainer.constants import ChainerTrace, check_constants
from tracer.exporters.chainer.repair import repair
from tracer.exporters.records import Conversion, ExportOptions, InputSpec, draw
from tracer.graph import provenance

_OPSET = 11
_OTHERS = re.compile(r"param_.*|v\d+")
"""What onnx_chainer calls persistent values, as it does parameters, and variables."""


def convert(model: object, inputs: Sequence[InputSpec], options: ExportOptions) -> Conversion:
    """Returns `model` as ONNX. Raises UsageError or ModelError where that is impossible."""
    if options.keep_batchnorm:
        raise UsageError(
            "--keep-batchnorm is for torch", "Chainer's BatchNormalization always stays."
        )
    if not inputs:
        raise UsageError("the shape of the input is not known", "Give it: --input-shape 1,3,32,32.")
    written = min(options.opset or _OPSET, max(trace.OPSETS))
    if written < min(trace.OPSETS):
        raise UsageError(
            f"onnx_chainer does not write opset {written}",
            f"The oldest is {min(trace.OPSETS)}.",
        )
    try:
        proto = _converted(model, inputs, options, written)
    except TracerError:
        raise
    except Exception as error:  # whatever the model's own code raises
        raise _failure(model, inputs, error) from error
    return Conversion(
        proto,
        lambda arrays: trace.run(model, arrays),
        lambda arrays: trace.trace(model, arrays, written).values,
        tuple(inputs),
    )


def _failure(model: object, inputs: Sequence[InputSpec], error: Exception) -> ModelError:
    shapes = " and ".join(str(list(spec.shape)) for spec in inputs)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = "; ".join(lines[:4]) or type(error).__name__
    return ModelError(
        f"Chainer cannot export {type(model).__name__} for inputs of {shapes}: {reason}",
        "Check --input-shape first; --debug shows where.",
    )


def _converted(
    model: Any, inputs: Sequence[InputSpec], options: ExportOptions, written: int
) -> onnx.ModelProto:
    def trace_at(specs: Sequence[InputSpec], number: int) -> ChainerTrace:
        traced = trace.trace(model, draw(specs, (options.seed, number)), written)
        repair(traced.proto)
        return traced

    batches = {spec.shape[0] for spec in inputs if spec.shape}
    if not options.dynamic_batch or not batches:
        first = trace_at(inputs, 0)
        check_constants(first, trace_at(inputs, 1))
    elif len(batches) > 1:
        raise ModelError(
            f"the inputs have different batches: {sorted(batches)}", "Give --static-batch."
        )
    else:
        # Other dimensions may be 1 too, so neither trace uses a batch of 1.
        sizes = (max(2, *batches), max(2, *batches) + 1)
        small, large = ([s.with_batch(size) for s in inputs] for size in sizes)
        first = trace_at(small, 0)
        try:
            make_dynamic(first, trace_at(large, 1), sizes)
        except ModelError:  # values of the input may be the cause rather than the batch
            check_constants(trace_at(small, 0), trace_at(small, 1))
            raise
    proto = first.proto
    if options.opset not in (None, written):
        proto = opset.convert(proto, options.opset, draw(inputs, options.seed), options)
        repair(proto)  # the version converter adds Constant nodes
    _mark(proto.graph, model)
    return proto


def _mark(graph: onnx.GraphProto, model: Any) -> None:
    """Marks parameters; persistent values of links and arrays of the code are none."""
    parameters = {f"param{name.replace('/', '_')}": name for name, _ in model.namedparams()}
    for weight in graph.initializer:
        if weight.name in parameters:
            provenance.mark_parameters(weight, [parameters[weight.name]])
        elif _OTHERS.fullmatch(weight.name):
            provenance.mark_parameters(weight, [])
