"""Exports a PyTorch or Chainer model to ONNX: see `tracer.export`."""

from pathlib import Path

from tracer.api._convert import convert
from tracer.api.export import ExportArguments
from tracer.errors import UsageError
from tracer.exporters import pipeline
from tracer.exporters.records import Exported, ExportOptions, inputs_of
from tracer.exporters.source import load_source
from tracer.exporters.writing import check_target


def export(call: ExportArguments) -> Exported:
    """Writes the model, or the model that it names, to the path."""
    options, path, model = call.options or ExportOptions(), Path(call.path), call.model
    check_target(path, options.force)
    if options.to is not None:
        return convert(model, path, options)
    if isinstance(model, str):
        model = load_source(
            model, dict(call.args or {}), weights=call.weights, framework=options.framework,
            trust=call.trust, seed=options.seed,
        )  # fmt: skip
    elif call.args or call.weights:
        raise UsageError("args and weights apply to a model that is named, as in FILE.py:NAME")
    inputs = inputs_of(model, call.input_shape, call.input_dtype)
    return pipeline.export(model, path, inputs, options)
