"""Quantises weights alone, in blocks of few bits, with onnxruntime's MatMulNBits."""

from dataclasses import replace
from pathlib import Path

import onnx

from tracer.containment.activity import Progress
from tracer.errors import ModelError, UsageError
from tracer.graph import loading, stored_weights
from tracer.graph.model import Model, encoded
from tracer.quantization import preparation
from tracer.quantization.calibration import CalibrationBatches
from tracer.quantization.layers import Losses, losses
from tracer.quantization.options import WeightOptions
from tracer.quantization.preparation import keep_imports, matching_nodes
from tracer.quantization.quantizer import QuantizedGraph
from tracer.support.quiet import without_logs
from tracer.support.temporary import TemporaryFolder

OPERATOR = "MatMulNBits"


def quantize_weights(
    model: Model,
    options: WeightOptions,
    batches: CalibrationBatches | None = None,
    progress: Progress | None = None,
) -> QuantizedGraph:
    """Quantises the constant matrices of MatMul nodes, and measures layer errors on `batches`.

    Nothing is calibrated: `batches` are for the errors, and without them there are none. Nodes are
    named by their keys, and keep module and source. Raises ModelError for a model without a MatMul
    by a constant matrix; UsageError for patterns that match nothing.
    """
    named = onnx.ModelProto()
    folder = None if model.path is None else Path(model.path).parent
    named.CopyFrom(stored_weights.with_inline_weights(model.proto, folder))
    node_keys = (node.key for node in model.nodes if not node.scope.path)
    for node, key in zip(named.graph.node, node_keys, strict=True):
        node.name = key
    chosen = _chosen(model, named, options)
    proto = _quantized(named, chosen, options)
    preparation.restore_metadata(proto, named)
    keep_imports(proto, model)
    files = TemporaryFolder()
    paths = (files.path / "float.onnx", files.path / "quantized.onnx")
    for path, each in zip(paths, (named, proto), strict=True):
        path.write_bytes(encoded(each, model.name))
    wide, narrow = (replace(loading.load(path), subject=model.name) for path in paths)
    nothing = Losses((), (), ())
    lost = nothing if batches is None else losses(wide, narrow, batches, progress)
    products = [node for node in named.graph.node if node.op_type in ("MatMul", "Gemm")]
    left = len(products) - len(chosen)
    others = f"; {left} products stay float" if left else ""
    note = f"the weights of {len(chosen)} products were quantised, without calibration{others}"
    return QuantizedGraph(narrow, files, lost.layers, lost.outputs, (note, *lost.notes))


def _chosen(model: Model, proto: onnx.ModelProto, options: WeightOptions) -> list[str]:
    """Returns the names of the nodes to quantise."""
    matrices = {w.name for w in proto.graph.initializer if len(w.dims) == 2}
    able = [n for n in proto.graph.node if n.op_type == "MatMul" and n.input[1] in matrices]
    if not able:
        raise ModelError(
            f"{model.name} has no MatMul by a constant matrix, whose weights alone could be "
            "quantised",
            "Quantise weights and activations: --calibrate DATA.",
        )
    nodes = proto.graph.node
    named = matching_nodes(nodes, options.nodes) if options.nodes else {node.name for node in nodes}
    named -= matching_nodes(nodes, options.exclude)
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

    own = onnx.ModelProto()  # the quantizer works in place
    own.CopyFrom(proto)
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
