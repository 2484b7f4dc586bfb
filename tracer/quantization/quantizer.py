"""Quantises a float model with onnxruntime, and measures the errors of its layers.

Weights and activations, calibrated, or weights alone, in blocks of few bits by MatMulNBits.
"""

import logging
import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.quantization import calibrate, registry

from tracer.containment.activity import Progress, silent
from tracer.errors import InputError, ModelError, UsageError
from tracer.executors.onnxruntime import sessions
from tracer.executors.settings import OrtSettings
from tracer.graph import loading, stored_weights
from tracer.graph.model import Model, encoded
from tracer.graph.operators import integer_attribute, rounded_node
from tracer.quantization import calibration, graph_editor, preparation, static
from tracer.quantization.layers import Losses, losses
from tracer.quantization.options import QuantizationOptions, WeightOptions
from tracer.records import environment
from tracer.records.transformed import LayerError, OutputError
from tracer.scaling.pool import Pool
from tracer.support.temporary import TemporaryFolder
from tracer.text import agree, plural

OPERATOR = "MatMulNBits"


def saturation_note(options: QuantizationOptions, cpu_flags: Collection[str]) -> str | None:
    """Returns a warning for signed 8-bit weights on an x86 processor without VNNI, else None.

    The AVX2 kernels add pairs of products and saturate at 16 bits (PMADDUBSW). onnxruntime's
    documentation advises weights of 7 bits on such processors.
    """
    bytes_ = options.weight_type == "int8" and options.activation_type in ("uint8", "int8")
    if options.reduce_range or not bytes_:
        return None
    if not environment.saturates(cpu_flags):
        return None
    return (
        "this processor has no VNNI: onnxruntime may saturate sums of 8-bit products here, and be "
        "less accurate than the interpreter; tracer narrow --for x86-maddubs changes what may "
        "saturate, and --reduce-range keeps all weights in 7 bits"
    )


def open_where_sums_saturate(model: Model, options: QuantizationOptions | WeightOptions) -> Any:
    """Returns a session of onnxruntime on a model that was quantised so.

    None where the processor adds exactly, as the interpreter does.
    """
    if isinstance(options, WeightOptions):
        return None
    if saturation_note(options, environment.cpu_flags()) is None:
        return None
    return sessions.Factory.of(model, OrtSettings()).open()


@dataclass(frozen=True, slots=True)
class QuantizedGraph:
    """The quantised graph, the errors of its layers, in graph order, and outputs, and notes.

    `files` has the file of `model`, with its external data.
    """

    model: Model = field(repr=False)
    files: TemporaryFolder = field(repr=False)
    layers: tuple[LayerError, ...]
    outputs: tuple[OutputError, ...]
    notes: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder of the external data."""
        return self.files.path

    @property
    def proto(self) -> onnx.ModelProto:
        """The graph as onnx has it; large weights are external data in `files`."""
        return self.model.proto


def quantize(
    model: Model,
    batches: calibration.CalibrationBatches,
    options: QuantizationOptions | None = None,
    progress: Progress = silent,
    pool: Pool | None = None,
) -> QuantizedGraph:
    """Quantises `model` with the activation ranges on `batches`, and measures layer errors.

    The workers of `pool` share the calibration.

    Raises the errors of `quantized_graphs`.
    """
    options = options or QuantizationOptions()
    files = TemporaryFolder()
    paths = quantized_graphs(model, batches, options, files.path, progress, pool)
    prepared, quantized = (replace(loading.load(path), subject=model.name) for path in paths)
    lost = losses(prepared, quantized, batches, progress)
    notes = list(model.notes)
    before, after = model.opsets.get("", 0), quantized.opsets.get("", 0)
    if after != before:
        raised = f"the opset was raised from {before} to {after}"
        notes.append(f"{raised}, as its types and scales need")
    notes += floats_notes(prepared.proto, options)
    saturation = saturation_note(options, environment.cpu_flags())
    notes += [saturation] if saturation else []
    return QuantizedGraph(quantized, files, lost.layers, lost.outputs, (*notes, *lost.notes))


def floats_notes(prepared: onnx.ModelProto, options: QuantizationOptions) -> list[str]:
    """Returns a note on the nodes that stay in floats, if there are any."""
    left = _left_in_floats(prepared, options)
    if not left:
        return []
    nodes = ", ".join(f"'{name}'" for name in left)
    return [
        f"in float: {nodes}, whose bias differs by row or group, and onnxruntime scales it by "
        "channel; tracer quantize --per-tensor quantises them"
    ]


def quantized_graphs(
    model: Model,
    batches: calibration.CalibrationBatches,
    options: QuantizationOptions,
    folder: Path,
    progress: Progress = silent,
    pool: Pool | None = None,
) -> tuple[Path, Path]:
    """Returns files in `folder`: the graph prepared for quantisation, and the quantised graph.

    The weights of a large model are external data there. Nodes are named by their keys, and keep
    module and source. Raises ModelError for a model that is already quantised, or that onnxruntime
    cannot run or quantise; UsageError for patterns that match nothing; InputError for batches that
    do not fit, or whose NaN or infinities have no range.
    """
    reader = calibration.CalibrationReader(model, batches, progress)
    prepared = preparation.raise_for_channels(
        model.name, preparation.prepare(model, folder), options, batches, folder
    )
    preparation.separate_biases(prepared.graph, folder)
    left = _left_in_floats(prepared, options)
    chosen = [name for name in preparation.select_nodes(prepared, options) if name not in left]
    if left and not chosen:
        raise ModelError(
            f"{model.name}: nothing in it was quantised: onnxruntime cannot scale the bias of "
            f"'{left[0]}' by channel",
            "Give all channels one scale: --per-tensor.",
        )
    if not chosen:
        raise _nothing(model)
    source = folder / "prepared.onnx"
    source.write_bytes(encoded(prepared, model.name))
    ranges = _shared(model, source, batches, options, pool, progress)
    try:
        proto = static.quantize_static(model.name, source, reader, chosen, options, ranges)
    except ModelError as error:
        if (name := calibration.not_finite(batches)) is not None:
            raise InputError(
                f"{error.what}; input '{name}' of the calibration data holds NaN or infinity",
                "Leave such samples out.",
            ) from error
        raise
    graph_editor.sort_nodes(proto.graph)
    preparation.restore_metadata(proto, prepared)
    sessions.keep_imports(proto, model)
    if not any("QuantizeLinear" in node.op_type for node in proto.graph.node):
        raise _nothing(model)
    target = folder / "quantized.onnx"
    target.write_bytes(encoded(proto, model.name))
    return source, target


def quantize_weights(
    model: Model,
    options: WeightOptions,
    batches: calibration.CalibrationBatches | None = None,
    progress: Progress = silent,
) -> QuantizedGraph:
    """Quantises the constant matrices of MatMul nodes, and measures layer errors on `batches`.

    Nothing is calibrated: `batches` are for the errors, and without them there are none. Nodes are
    named by their keys, and keep module and source. Raises ModelError for a model without a MatMul
    by a constant matrix; UsageError for patterns that match nothing.
    """
    named = deepcopy(stored_weights.with_inline_weights(model.proto, model.folder))
    node_keys = (node.key for node in model.nodes if not node.scope.path)
    for node, key in zip(named.graph.node, node_keys, strict=True):
        node.name = key
    chosen = _products(model, named, options)
    proto = _quantized(named, chosen, options)
    preparation.restore_metadata(proto, named)
    sessions.keep_imports(proto, model)
    files = TemporaryFolder()
    paths = (files.path / "float.onnx", files.path / "quantized.onnx")
    for path, each in zip(paths, (named, proto), strict=True):
        path.write_bytes(encoded(each, model.name))
    wide, narrow = (replace(loading.load(path), subject=model.name) for path in paths)
    nothing = Losses((), (), ())
    lost = nothing if batches is None else losses(wide, narrow, batches, progress)
    products = [node for node in named.graph.node if node.op_type in ("MatMul", "Gemm")]
    left = len(products) - len(chosen)
    others = f"; {plural(left, 'product')} {agree(left, 'stays', 'stay')} float" if left else ""
    of = plural(len(chosen), "product")
    note = f"the weights of {of} were quantised, without calibration{others}"
    return QuantizedGraph(narrow, files, lost.layers, lost.outputs, (note, *lost.notes))


def _shared(
    model: Model,
    source: Path,
    batches: calibration.CalibrationBatches,
    options: QuantizationOptions,
    pool: Pool | None,
    progress: Progress,
) -> Path | None:
    """Returns a file with the ranges that workers have found; None where there are no workers.

    Weights in files of their own stay with this process, which calibrates then.
    """
    if pool is None or not pool.workers:
        return None
    if options.method != "minmax":
        raise UsageError(
            f"ranges by {options.method} follow from all samples in order",
            "Choose --method minmax, or leave out --workers and --scheduler.",
        )
    has_files = stored_weights.has_external_data(onnx.load(source, load_external_data=False))
    if has_files or not isinstance(batches, calibration.CalibrationSamples):
        return None
    if not batches.dataset.count(batches.size):  # only reading the data tells their number
        return None
    operators = sorted({*registry.QLinearOpsRegistry, *registry.QDQRegistry})
    data = static.shared_ranges(source.read_bytes(), model, batches, operators, pool, progress)
    target = source.with_name("ranges.json")
    calibrate.save_tensors_data(data, target)
    return target


def _nothing(model: Model) -> ModelError:
    inside = sum(bool(node.scope.path) for node in model.nodes)
    bodies = f": {inside:,} of its {len(model.nodes):,} nodes are in bodies of If, Loop or Scan"
    return ModelError(
        f"{model.name}: nothing in it was quantised{bodies if inside else ''}",
        "onnxruntime quantises convolutions, matrix products and what stands between them, in the "
        "main graph alone.",
    )


def _left_in_floats(prepared: onnx.ModelProto, options: QuantizationOptions) -> list[str]:
    """Returns the chosen nodes that stay float: their bias has no channels of the weights.

    They are Gemms whose bias differs by row, and transposed convolutions in groups, which share the
    channels of their weights.
    """
    if not options.per_channel:
        return []
    chosen = set(preparation.select_nodes(prepared, options))

    def has_other_channels(node: onnx.NodeProto, bias: onnx.TensorProto) -> bool:
        if node.op_type == "Gemm":
            return math.prod(bias.dims[:-1]) != 1
        group = integer_attribute(node, "group", 1)
        is_transposed = node.op_type == "ConvTranspose" and options.format == "qdq"
        return is_transposed and 1 < group < bias.dims[0]

    biased = preparation.biases(prepared.graph)
    return [n.name for n, bias in biased if n.name in chosen and has_other_channels(n, bias)]


def _products(model: Model, proto: onnx.ModelProto, options: WeightOptions) -> list[str]:
    """Returns the names of the nodes to quantise."""
    matrices = {w.name for w in proto.graph.initializer if len(w.dims) == 2}
    able = [n for n in proto.graph.node if n.op_type == "MatMul" and n.input[1] in matrices]
    if not able and (node := rounded_node(model)) is not None:
        raise preparation.quantized_already(model, node)
    if not able:
        raise ModelError(
            f"{model.name} has no MatMul by a constant matrix, whose weights alone could be "
            "quantised",
            "Quantise weights and activations: --calibrate DATA.",
        )
    named = preparation.matching_nodes(proto.graph.node, options)
    chosen = [node.name for node in able if node.name in named]
    if not chosen:
        raise UsageError(
            "no MatMul by a constant matrix remains to be quantised",
            f"The others are {', '.join(node.name for node in able[:5])}: match one of them.",
        )
    return chosen


def _quantized(
    proto: onnx.ModelProto, chosen: list[str], options: WeightOptions
) -> onnx.ModelProto:
    from onnxruntime.quantization.matmul_nbits_quantizer import (
        DefaultWeightOnlyQuantConfig,
        MatMulNBitsQuantizer,
    )

    own = deepcopy(proto)  # the quantizer works in place
    config = DefaultWeightOnlyQuantConfig(
        block_size=options.block,
        is_symmetric=options.symmetric,
        accuracy_level=options.accuracy_level or None,
        bits=options.bits,
    )
    # `nodes_to_include` adds nodes to all MatMul, and leaves none out.
    others = [node.name for node in own.graph.node if node.name not in chosen]
    quantizer = MatMulNBitsQuantizer(own, nodes_to_exclude=others, algo_config=config)
    with without_logs():
        quantizer.process()
    result: onnx.ModelProto = quantizer.model.model
    for node in result.graph.node:
        if node.op_type == OPERATOR:
            node.name = node.name.removesuffix(f"_Q{options.bits}")
    return result


@contextmanager
def without_logs() -> Iterator[None]:
    """Drops what tools of onnxruntime log, warnings included: it is advice on these tools.

    Their errors are exceptions.
    """
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
