"""Exports a PyTorch or Chainer model to ONNX: see `tracer.export`."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx

from tracer.api.export import ExportArguments
from tracer.errors import ModelError, UsageError, refusing
from tracer.exporters import pipeline
from tracer.exporters.records import Exported, ExportOptions, inputs_of
from tracer.exporters.subject import load_source, names_code
from tracer.exporters.writing import check_target, notes, write_last
from tracer.graph import loading, stored_weights
from tracer.graph.model import Model
from tracer.inputs.request import on_sizes_that_run, request_for
from tracer.interpreter.interpreter import Interpreter
from tracer.quantization.from_qonnx import from_qonnx
from tracer.quantization.to_qonnx import left_conversions, to_qonnx

_Conversion = Callable[[onnx.ModelProto, str], tuple[onnx.ModelProto, tuple[str, ...]]]
"""Returns the converted model, and notes."""


def convert(model: object, path: Path, options: ExportOptions) -> Exported:
    """Writes `model` to `path` in the format `options.to`, compared on random inputs.

    Raises UsageError for a model of a framework and for another format.
    """
    if isinstance(model, str) and names_code(model):
        raise UsageError(
            f"{model} is a model of a framework, which is exported in floats",
            "Export it, quantise it with `tracer quantize`, then convert the .onnx file.",
        )
    conversion = _CONVERSIONS.get(options.to or "")
    if conversion is None:
        raise UsageError(f"no format '{options.to}'", f"Formats are {', '.join(_CONVERSIONS)}.")
    if not isinstance(model, str | Path | onnx.ModelProto | Model):
        raise UsageError(
            f"model is a {type(model).__name__}, which is exported in floats",
            "Give a path, an onnx.ModelProto or a tracer Model.",
        )
    opened = loading.open_model(model)
    folder = None if opened.path is None else opened.path.parent
    with refusing(lambda why: ModelError(f"{opened.name}: cannot be converted ({why})")):
        converted, told = conversion(
            stored_weights.with_inline_weights(opened.proto, folder), opened.name
        )
    after = loading.from_proto(converted, opened.name)
    batch, error = _compared(model, opened, after, options.seed)
    written = write_last(converted, path)
    return Exported(
        path=path,
        framework=opened.name.rpartition("/")[2],
        nodes=len(converted.graph.node),
        opset=next(o.version for o in converted.opset_import if o.domain in ("", "ai.onnx")),
        ir_version=converted.ir_version,
        dynamic_batch=_is_dynamic(opened),
        batches=(batch,),
        max_abs_error=error,
        notes=(*opened.notes, *told, *notes(written)),
    )


def _to_qonnx(proto: onnx.ModelProto, name: str) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    converted = to_qonnx(proto, name)
    stayed = left_conversions(converted)
    if not stayed:
        return converted, ()
    listed = ", ".join(stayed[:3]) + (" …" if len(stayed) > 3 else "")
    return converted, (f"{len(stayed)} conversions have no form in QONNX and stayed: {listed}",)


def _to_qdq(proto: onnx.ModelProto, name: str) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    converted = from_qonnx(proto)
    if not converted.integers and not converted.floats:
        raise UsageError(
            f"{name} has no Quant of QONNX that becomes QuantizeLinear",
            "Models in QONNX come from Brevitas, QKeras or `tracer export --to qonnx`.",
        )
    return converted.proto, (converted.note,)


def _compared(source: object, before: Model, after: Model, seed: int) -> tuple[int, float]:
    """Returns a batch size, and the largest difference of outputs on random inputs."""
    request = request_for(source, before, seed=seed)
    feedset, expected = on_sizes_that_run(
        request, lambda feeds: Interpreter(before).run(None, feeds.feeds)
    )
    outputs = Interpreter(after).run(None, feedset.feeds)
    differences = (
        float(np.abs(mine.astype(np.float64) - theirs.astype(np.float64)).max(initial=0))
        for mine, theirs in zip(outputs, expected, strict=True)
    )
    return feedset.batch or 1, max(differences, default=0.0)


def _is_dynamic(model: Model) -> bool:
    return any(dim.dim_param for value in model.inputs
               for dim in value.type.tensor_type.shape.dim[:1])  # fmt: skip


_CONVERSIONS: Mapping[str, _Conversion] = {"qonnx": _to_qonnx, "qdq": _to_qdq}


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
