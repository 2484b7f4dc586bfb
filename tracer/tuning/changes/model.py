"""Another model or other inputs: fused, folded, of a newer opset, or of a larger batch."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx
from onnx import numpy_helper, version_converter

from tracer.errors import InputError, ModelError
from tracer.graph import stored_weights
from tracer.graph.model import Model
from tracer.inputs.feedset import FeedSet
from tracer.inputs.sizes import batch_of
from tracer.quantization.quantizer import without_logs
from tracer.shapes.inference import inferred
from tracer.support.types import Array
from tracer.text import agree, plural
from tracer.tuning.changes import change, one_form
from tracer.tuning.findings import THROUGHPUT, Findings
from tracer.tuning.setup import Setup

_KINDS = ("bert", "gpt2", "vit")
"""Kinds of models whose patterns are tried: encoders, decoders, vision."""
_FUSED = ("Attention", "GroupQueryAttention", "MultiHeadAttention", "QAttention")
_NEIGHBOURS = ("Add", "Div", "FusedMatMul", "MatMul", "Mul", "Reshape", "Softmax", "Transpose")
_ATTENTION_SHARE = 0.02
_DOMAIN = "com.microsoft"
_OPSET = 17
"""The opset that brought LayerNormalization; onnxruntime 1.12 and later know it."""
_FACTORS = (2, 4, 8, 16, 32)
_ALWAYS = frozenset({"Constant"})


def _fusions(setup: Setup, value: str) -> Setup:
    from onnxruntime.transformers import optimizer

    model = setup.model
    own = onnx.ModelProto()
    own.CopyFrom(setup.whole_proto)  # the optimizer works in place
    try:
        with without_logs():
            fused = optimizer.optimize_model(own, model_type=value, opt_level=0)
            count = sum(fused.get_fused_operator_statistics().values())
    except Exception as error:  # it raises all kinds of exceptions
        reason = " ".join(str(error).split())
        message = f"{model.name}: onnxruntime cannot fuse it as {value}: {reason}"
        raise ModelError(message) from error
    if not count:
        raise ModelError(f"{model.name}: nothing in it has the patterns of {value}")
    if all(entry.domain != _DOMAIN for entry in fused.model.opset_import):
        fused.model.opset_import.add(domain=_DOMAIN, version=1)  # its operators, without it
    return setup.with_proto(fused.model)


@change(
    "fusions", "rounding", 5, lambda findings: _KINDS, _fusions,
    command=lambda setup, value, model: (
        f"python -m onnxruntime.transformers.optimizer --input {model} --output tuned.onnx "
        f"--model_type {value} --opt_level 0"
    ),
)  # fmt: skip
def _why_fusions(findings: Findings) -> str | None:
    """Attention and normalisations fused by `onnxruntime.transformers.optimizer`."""
    operators = findings.operators
    if not operators["Softmax"] or any(operators[name] for name in _FUSED):
        return None
    share = findings.share(_NEIGHBOURS)
    if share < _ATTENTION_SHARE or stored_weights.is_large(findings.model):
        return None
    return (
        f"{operators['Softmax']} Softmax stand between products, and none is fused to Attention; "
        f"these and their neighbours take {share:.0%} of the time"
    )


def _opset(setup: Setup, value: str) -> Setup:
    model = setup.model
    try:
        converted = version_converter.convert_version(setup.whole_proto, int(value))
        onnx.checker.check_model(converted)
    except Exception as error:  # the converter raises all kinds of exceptions
        reason = " ".join(str(error).split())
        message = f"{model.name}: onnx cannot convert it to opset {value}: {reason}"
        raise ModelError(message) from error
    return setup.with_proto(converted)


@change(
    "opset", "rounding", 0, one_form(str(_OPSET)), _opset,
    command=lambda setup, value, model: (
        f'onnx.save(onnx.version_converter.convert_version(onnx.load("{model}"), {value}), '
        '"tuned.onnx")'
    ),
)  # fmt: skip
def _why_opset(findings: Findings) -> str | None:
    """The newest opset that the installed onnxruntime knows, converted by onnx."""
    opset = findings.model.opsets.get("", _OPSET)
    if opset >= _OPSET or stored_weights.is_large(findings.model):
        return None
    return f"the model has opset {opset}; onnxruntime has more kernels and fusions for {_OPSET}"


def _batch(setup: Setup, value: str) -> Setup:
    before = setup.feedset.batch
    if before is None or int(value) % before:
        raise InputError(f"{setup.model.name}: no batch of {value} is made of one of {before}")
    factor, feeds = int(value) // before, {}
    for name, array in setup.feedset.feeds.items():  # copies of the batch, one after the other
        if not array.ndim or array.shape[0] != before:
            raise InputError(f"an input of shape {array.shape} has no batch of {before}")
        feeds[name] = np.concatenate([array] * factor)
    feedset = FeedSet(feeds, int(value), setup.feedset.notes)
    return replace(setup, feedset=feedset, samples=setup.samples * factor)


def _batch_forms(findings: Findings) -> Sequence[str]:
    assert findings.feedset.batch is not None  # `_why_batch` says so
    return [str(factor * findings.feedset.batch) for factor in _FACTORS]


@change("batch", "rounding", 20, _batch_forms, _batch, goals=(THROUGHPUT,))
def _why_batch(findings: Findings) -> str | None:
    """More samples in a run, for a throughput of more samples per second."""
    shapes = [value.type.tensor_type.shape.dim for value in findings.model.inputs]
    if not shapes or any(not dims or dims[0].HasField("dim_value") for dims in shapes):
        return None  # the first dimension of some input is fixed
    if None in (findings.feedset.batch, batch_of(findings.model, findings.feedset.shapes)):
        return None
    empty = findings.trace.runs[0].empty_us
    overhead = 0.0 if empty is None else float(np.median(empty)) / findings.wall_us
    return (
        f"the batch of {findings.feedset.batch} is open, and {overhead:.0%} of a run is spent "
        "outside of its nodes"
    )


def _folding(setup: Setup, value: str) -> Setup:
    values = _shape_values(setup.model, setup.feedset)
    model = setup.model
    folded = onnx.ModelProto()
    folded.CopyFrom(setup.whole_proto)
    nodes = [node for node in folded.graph.node if not _is_foldable(node, values)]
    if len(nodes) == len(folded.graph.node):
        raise ModelError(f"{model.name}: no node computes a shape that is known from the inputs")
    constants = [
        numpy_helper.from_array(values[name], name)
        for node in folded.graph.node
        if _is_foldable(node, values)
        for name in node.output
        if name
    ]
    del folded.graph.node[:]
    folded.graph.node.extend(nodes)
    folded.graph.initializer.extend(constants)
    return setup.with_proto(folded)


def _folding_command(setup: Setup, value: str, model: str) -> str:
    sizes = "".join(f" --dim {name}={size}" for name, size in setup.open_dims.items())
    return f"tracer tune {model} --apply folding={value}{sizes} -o tuned.onnx"


@change("folding", "exact", 31, one_form("shapes"), _folding, command=_folding_command)
def _why_folding(findings: Findings) -> str | None:
    """Shapes that the graph computes are replaced by constants, for the sizes of these inputs."""
    if not findings.setup.open_dims:
        return None
    values = _shape_values(findings.model, findings.feedset)
    nodes = [node for node in findings.model.graph.node if _is_foldable(node, values)]
    ran = {kernel.node for kernel in findings.kernels}
    keys = [n.key for n in findings.model.nodes if not n.scope.path and n.proto in nodes]
    running = [key for key in keys if key in ran]
    if not running:
        return None
    rows = findings.evidence.rows
    share = findings.share_of(rows[rows["node"].isin(running)])
    return (
        f"{plural(len(running), 'kernel')} {agree(len(running), 'computes', 'compute')} shapes "
        "that follow from those of the inputs, in "
        f"{share:.0%} of the time"
    )


def _shape_values(model: Model, feedset: FeedSet) -> dict[str, Array]:
    """Returns the tensors of the main graph whose values follow from the shapes of the inputs."""
    computed = inferred(model, feedset.shapes).values
    names = [name for node in model.graph.node for name in node.output if name]
    values = ((name, computed.of(("", name))) for name in names)
    return {name: value for name, value in values if value is not None}


def _is_foldable(node: onnx.NodeProto, values: dict[str, Array]) -> bool:
    outputs = [name for name in node.output if name]
    return node.op_type not in _ALWAYS and bool(outputs) and all(name in values for name in outputs)
