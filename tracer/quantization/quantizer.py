"""A float model made an integer one by onnxruntime's static quantisation, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx

from tracer.errors import ModelError
from tracer.graph import loading
from tracer.graph.model import Model
from tracer.quantization import ordering
from tracer.quantization.calibration import Batches, Reader
from tracer.quantization.layers import LayerError, layer_errors
from tracer.quantization.metadata import restore
from tracer.quantization.options import Options
from tracer.quantization.preparation import keep_imports, prepare
from tracer.quantization.saturation import saturation_note
from tracer.quantization.selection import select
from tracer.quantization.static import quantize_static
from tracer.records import environment
from tracer.support.progress import Progress


@dataclass(frozen=True, slots=True)
class Quantized:
    """The quantised graph, what each of its layers lost, and what else to know.

    The layers are in the order of the graph.
    """

    proto: onnx.ModelProto = field(repr=False)
    layers: tuple[LayerError, ...]
    notes: tuple[str, ...] = ()


def quantize(
    model: Model,
    batches: Batches,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Quantized:
    """`model` with the ranges of its activations as seen on `batches`, and what that costs.

    Raises what `graphs` raises.
    """
    options = options or Options()
    prepared, proto = graphs(model, batches, options, progress)
    layers = layer_errors(prepared, proto, batches, progress)
    return Quantized(proto, layers, _notes(model, loading.from_proto(proto), options))


def graphs(
    model: Model, batches: Batches, options: Options, progress: Progress | None = None
) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """The float graph as it was prepared for quantisation, and the quantised one.

    Nodes keep their keys as names, their module and their source. Nothing is written but a
    temporary folder. Raises ModelError for a model that is quantised already, that onnxruntime
    does not run or cannot quantise; UsageError for patterns that match nothing; InputError for
    batches that do not fit; LimitError for a model of more than 2 GB.
    """
    prepared = prepare(model)
    chosen = select(prepared, options)
    proto = quantize_static(model.name, prepared, Reader(model, batches, progress), chosen, options)
    ordering.sort(proto.graph)
    restore(proto, prepared)
    keep_imports(proto, model)
    if not any("QuantizeLinear" in node.op_type for node in proto.graph.node):
        raise ModelError(
            f"{model.name}: nothing in it was quantised",
            "onnxruntime quantises convolutions, matrix products and what stands between them.",
        )
    return prepared, proto


def _notes(model: Model, quantized: Model, options: Options) -> tuple[str, ...]:
    before, after = model.opsets.get("", 0), quantized.opsets.get("", 0)
    raised = f"the opset was raised from {before} to {after}, for the types asked for"
    risk = saturation_note(options, environment.cpu_flags())
    return (*((raised,) if after != before else ()), *((risk,) if risk else ()))
