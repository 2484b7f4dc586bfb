"""Simplify the graph that torch's exporter wrote."""

from collections.abc import Iterator
from contextlib import contextmanager

import onnx_ir
import onnx_ir.passes.common as passes

_HIDDEN = "tracer.kept"
_ROUNDS = 2  # folding enables rewriting and vice versa; onnxscript's number
_FOLDING = ("Conv", "ConvTranspose", "Gemm")


def optimize(model: onnx_ir.Model, *, keep_batchnorm: bool) -> None:
    """Folds constants and applies onnxscript's rewrite rules, in place.

    The rules remove the Shape, Expand and CastLike chains of the raw export. They also fold
    BatchNormalization into the layer before it. With `keep_batchnorm` these nodes have, while the
    rules run, a domain that no rule matches.
    """
    with _hidden(model) if keep_batchnorm else _credited(model):
        _simplify(model)


def _simplify(model: onnx_ir.Model) -> None:
    """Runs the steps of onnxscript's `optimize` without merging all equal initializers.

    A merge would make an untrained batch normalization read its mean from the bias of another.
    Only integers, which shapes consist of, are merged.
    """
    from onnxscript import optimizer, rewriter

    passes.InlinePass()(model)
    for _ in range(_ROUNDS):
        optimizer.fold_constants_ir(model, onnx_shape_inference=True)
        rewriter.rewrite(model)
        passes.RemoveUnusedNodesPass()(model)
    for step in (
        passes.RemoveUnusedNodesPass(),
        passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        passes.LiftSubgraphInitializersToMainGraphPass(),
        _merge_sizes,
        passes.CommonSubexpressionEliminationPass(),
        passes.OutputFixPass(),
        passes.NameFixPass(),
    ):
        step(model)


def _merge_sizes(model: onnx_ir.Model) -> None:
    """Merges equal integer initializers, so that equal nodes that read them can be merged."""
    unique: dict[tuple[object, bytes], onnx_ir.Value] = {}
    for name, value in list(model.graph.initializers.items()):
        tensor = value.const_value
        if tensor is None or tensor.dtype != onnx_ir.DataType.INT64 or value.is_graph_output():
            continue
        first = unique.setdefault((tensor.shape.numpy(), tensor.tobytes()), value)
        if first is not value:
            value.replace_all_uses_with(first)
            model.graph.initializers.pop(name)


@contextmanager
def _hidden(model: onnx_ir.Model) -> Iterator[None]:
    for node in _batchnorms(model):
        node.domain = _HIDDEN
        model.opset_imports[_HIDDEN] = 1
    yield
    for node in model.graph.all_nodes():
        if node.domain == _HIDDEN:
            node.domain = ""
    model.opset_imports.pop(_HIDDEN, None)


@contextmanager
def _credited(model: onnx_ir.Model) -> Iterator[None]:
    """Attributes a folded pair to its first module: the convolution does the work.

    The rules keep the metadata of the second node, so it has those of the first while they run.
    """
    originals = {}
    for node in _batchnorms(model):
        before = node.inputs[0].producer() if node.inputs[0] is not None else None
        if before is not None and before.op_type in _FOLDING:
            originals[node] = dict(node.metadata_props)
            node.metadata_props.update(before.metadata_props)
    yield
    for node in _batchnorms(model):
        node.metadata_props.update(originals.get(node, {}))


def _batchnorms(model: onnx_ir.Model) -> list[onnx_ir.Node]:
    return [
        node
        for node in model.graph.all_nodes()
        if node.domain == "" and node.op_type == "BatchNormalization"
    ]
