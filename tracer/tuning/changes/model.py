"""Another model or other inputs: fused, folded, of a newer opset or fewer bits, a larger batch."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import numpy_helper, version_converter

from tracer.analyzers.advice.kernels import softmax_of_attention
from tracer.analyzers.roofline import MEMORY
from tracer.containment.activity import silent
from tracer.errors import InputError, ModelError
from tracer.executors.onnxruntime import kernel_nodes
from tracer.graph import loading, stored_weights
from tracer.graph.model import Model, encoded
from tracer.graph.operators import quantized_node
from tracer.inputs.feedset import Feeds, FeedSet
from tracer.inputs.sizes import batch_of
from tracer.narrowing.attempts import Subject
from tracer.narrowing.narrow import narrow_graph
from tracer.narrowing.requirement import parse_widths
from tracer.quantization.options import QuantizationOptions, WeightOptions
from tracer.quantization.quantizer import quantize_weights, quantized_graphs, without_logs
from tracer.shapes import inferred
from tracer.support.temporary import TemporaryFolder
from tracer.support.types import Array
from tracer.text import agree, plural
from tracer.tuning.changes import PRODUCTS, THROUGHPUT, Findings, change, one_form
from tracer.tuning.setup import Setup

_KINDS = ("bert", "gpt2", "vit")
"""Kinds of models whose patterns are tried: encoders, decoders, vision."""
_NEIGHBOURS = ("Add", "Div", "FusedMatMul", "MatMul", "Mul", "Reshape", "Softmax", "Transpose")
_ATTENTION_SHARE = 0.02
_DOMAIN = "com.microsoft"
_OPSET = 17
"""The opset that brought LayerNormalization; onnxruntime 1.12 and later know it."""
_FACTORS = (2, 4, 8, 16, 32)
_ALWAYS = frozenset({"Constant"})


@contextmanager
def _refusing(setup: Setup, what: str) -> Iterator[None]:
    """Raises ModelError, which says `what` failed and why, for whatever a tool raises.

    Drops what the tool logs.
    """
    try:
        with without_logs():
            yield
    except Exception as error:  # tools raise all kinds of exceptions
        reason = " ".join(str(error).split())
        raise ModelError(f"{setup.model.name}: {what}: {reason}") from error


def _fusions(setup: Setup, value: str) -> Setup:
    from onnxruntime.transformers import optimizer

    own = deepcopy(setup.whole_proto)  # the optimizer works in place
    with _refusing(setup, f"onnxruntime cannot fuse it as {value}"):
        fused = optimizer.optimize_model(own, model_type=value, opt_level=0)
        count = sum(fused.get_fused_operator_statistics().values())
    if not count:
        raise ModelError(f"{setup.model.name}: nothing in it has the patterns of {value}")
    if all(entry.domain != _DOMAIN for entry in fused.model.opset_import):
        fused.model.opset_import.add(domain=_DOMAIN, version=1)  # its operators, without it
    return setup.with_proto(fused.model)


@change(
    "fusions", "rounding", 5, lambda findings: _KINDS, _fusions,
    command=lambda setup, value, model: (
        f"python -m onnxruntime.transformers.optimizer --input {shlex.quote(model)} "
        f"--output tuned.onnx --model_type {value} --opt_level 0"
    ),
)  # fmt: skip
def _why_fusions(findings: Findings) -> str | None:
    """Attention and normalisations fused by `onnxruntime.transformers.optimizer`."""
    separate = softmax_of_attention(findings.kernels)
    if not separate:
        return None
    share = findings.share(_NEIGHBOURS)
    if share < _ATTENTION_SHARE or stored_weights.is_large(findings.model):
        return None
    return (
        f"{len(separate)} Softmax {agree(len(separate), 'stands', 'stand')} before products, and "
        f"none is fused to Attention; with such operators they take {share:.0%} of the time"
    )


def _opset(setup: Setup, value: str) -> Setup:
    version = int(value)
    with _refusing(setup, f"onnx cannot convert it to opset {value}"):
        converted = version_converter.convert_version(setup.whole_proto, version)
        onnx.checker.check_model(converted)
    return setup.with_proto(converted)


@change(
    "opset", "rounding", 0, one_form(str(_OPSET)), _opset,
    command=lambda setup, value, model: (
        f'onnx.save(onnx.version_converter.convert_version(onnx.load({model!r}), {value}), '
        '"tuned.onnx")'
    ),
)  # fmt: skip
def _why_opset(findings: Findings) -> str | None:
    """The newest opset that the installed onnxruntime knows, converted by onnx."""
    opset = findings.model.opsets.get("", _OPSET)
    if opset >= _OPSET or stored_weights.is_large(findings.model):
        return None
    return f"the model has opset {opset}; onnxruntime has more kernels and fusions for {_OPSET}"


def _unlisted_weights(setup: Setup, value: str) -> Setup:
    proto = deepcopy(setup.whole_proto)
    kernel_nodes.list_inputs(proto, {each.name for each in setup.model.inputs})
    return setup.with_proto(proto)


@change(
    "unlisted_weights", "rounding", 1, one_form("all"), _unlisted_weights,
    command=lambda setup, value, model: (
        f"python -m onnxruntime.tools.remove_initializer_from_input --input {shlex.quote(model)} "
        "--output tuned.onnx"
    ),
)  # fmt: skip
def _why_unlisted_weights(findings: Findings) -> str | None:
    """Weights taken off the list of inputs, where a feed may replace them."""
    listed = len(stored_weights.overridable(findings.model))
    if not listed or stored_weights.is_large(findings.model):
        return None
    return (
        f"{plural(listed, 'weight')} {agree(listed, 'is', 'are')} {stored_weights.LISTED_WEIGHTS}"
    )


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
    folded = deepcopy(setup.whole_proto)
    nodes = [node for node in folded.graph.node if not _is_foldable(node, values)]
    if len(nodes) == len(folded.graph.node):
        told = "no node computes a shape that is known from the inputs"
        raise ModelError(f"{setup.model.name}: {told}")
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
    # other sizes would give other constants: the model must refuse them
    for given in folded.graph.input:
        for dim, size in zip(
            given.type.tensor_type.shape.dim, setup.feedset.shapes.get(given.name, ()), strict=False
        ):
            dim.dim_value = size
    for other in (*folded.graph.output, *folded.graph.value_info):
        for dim in other.type.tensor_type.shape.dim:
            if dim.dim_param in setup.open_dims:
                dim.dim_value = setup.open_dims[dim.dim_param]
    return setup.with_proto(folded)


@change(
    "folding", "exact", 31, one_form("shapes"), _folding,
    command=lambda setup, value, model: shlex.join((
        "tracer", "tune", model, "--apply", f"folding={value}",
        *(w for name, n in setup.open_dims.items() for w in ("--dim", f"{name}={n}")),
        "-o", "tuned.onnx",
    )),
)  # fmt: skip
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
        f"{share:.0%} of the time; the model then takes no other sizes"
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


_DYNAMIC = ("FusedGemm", "FusedMatMul", "Gemm", "MatMul", "LSTM", "GRU")
_SHARE = 0.1
_DYNAMIC_TYPES = {"int8": "QInt8", "uint8": "QUInt8"}
_STATIC_TYPES = {"u8s8": ("uint8", "int8"), "s8s8": ("int8", "int8"), "u8u8": ("uint8", "uint8")}
"""Types of activations and of weights."""
PAIRS = "x86-maddubs"
"""The accumulator of kernels for AVX2 without VNNI: pairs of products in 16 bits."""
NARROWED = "u8s8 narrowed"
"""Weights that are rounded so that no pair of products overflows."""
_WEIGHTED = ("FusedMatMul", "MatMul")


def _dynamic(setup: Setup, value: str) -> Setup:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    files = TemporaryFolder()
    source, target = files.path / "float.onnx", files.path / "dynamic.onnx"
    own = deepcopy(setup.whole_proto)
    del own.graph.value_info[:]  # the quantizer transposes weights, and keeps the shapes before
    source.write_bytes(encoded(own, setup.model.name))
    with _refusing(setup, "onnxruntime cannot quantise it"):
        kind = getattr(QuantType, _DYNAMIC_TYPES[value])
        quantize_dynamic(source, target, weight_type=kind, per_channel=False)
    return setup.with_proto(loading.load(target).proto)


@change(
    "dynamic_int8",
    "quantize",
    10,
    lambda findings: ["uint8" if findings.machine.saturates else "int8"],
    _dynamic,
    command=lambda setup, value, model: (
        f'onnxruntime.quantization.quantize_dynamic({model!r}, "tuned.onnx", '
        f"weight_type=QuantType.{_DYNAMIC_TYPES[value]})"
    ),
)
def _why_dynamic_int8(findings: Findings) -> str | None:
    """8-bit weights of products, and activations that are quantised in each run."""
    share = findings.share(_DYNAMIC)
    if share < _SHARE or stored_weights.is_large(findings.model):
        return None
    how = "adds products of bytes in 32 bits" if findings.machine.multiplies_bytes else (
        "has no instruction for products of bytes"
    )  # fmt: skip
    return f"products without convolutions take {share:.0%} of the time, and the processor {how}"


@dataclass(frozen=True, slots=True)
class _OneBatch:
    """The inputs of the profile, as calibration reads them."""

    feeds: Feeds

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Feeds]:
        yield self.feeds


def _static_forms(findings: Findings) -> Sequence[str]:
    if findings.machine.saturates:
        return ["u8u8", NARROWED, "u8s8"]
    return ["s8s8", "u8s8"] if findings.machine.architecture == "aarch64" else ["u8s8", "s8s8"]


def _static(setup: Setup, value: str) -> Setup:
    activations, weights = _STATIC_TYPES[value.partition(" ")[0]]
    options = QuantizationOptions(
        activation_type=activations, weight_type=weights, symmetric=activations == "int8"
    )
    files = TemporaryFolder()
    batches = _OneBatch(setup.feedset.feeds)
    _, path = quantized_graphs(setup.model, batches, options, files.path)
    model = replace(loading.load(path), subject=setup.model.name)
    if value == NARROWED:
        inline = loading.from_proto(stored_weights.with_inline_weights(model.proto, files.path))
        _, (width,) = parse_widths(PAIRS, None, "any-input")
        sums, needs = Subject.of(inline).sums, width.needs(inline)
        return setup.with_proto(narrow_graph(inline, sums, needs, batches, False, silent)[0])
    return setup.with_model(model, files)


def _static_command(setup: Setup, value: str, model: str) -> str:
    if value == NARROWED:
        return f"tracer narrow {shlex.quote(model)} --for {PAIRS} --data inputs.npz -o tuned.onnx"
    activations, weights = _STATIC_TYPES[value]
    symmetric = " --symmetric" if activations == "int8" else ""
    return (
        f"tracer quantize {shlex.quote(model)} --calibrate inputs.npz "
        f"--activation-type {activations} --weight-type {weights}{symmetric} -o tuned.onnx"
    )


@change("static_int8", "quantize", 11, _static_forms, _static, command=_static_command)
def _why_static_int8(findings: Findings) -> str | None:
    """Weights and activations of 8 bits, with ranges that are measured on the inputs."""
    share = findings.share(PRODUCTS)
    if share < _SHARE or stored_weights.is_large(findings.model):
        return None
    if quantized_node(findings.model) is not None:
        return None
    if findings.machine.multiplies_bytes:
        how = "adds products of bytes in 32 bits"
    elif findings.machine.saturates:
        how = "adds pairs of products of bytes in 16 bits, which saturate: u8u8 is exact, and no "
        how += "pair of narrowed weights saturates"
    else:
        how = "has no instruction for products of bytes"
    return f"products take {share:.0%} of the time, and the processor {how}"


def _weights(setup: Setup, value: str) -> Setup:
    level = int(value.removeprefix("level "))
    quantised = quantize_weights(setup.model, WeightOptions(accuracy_level=level))
    return setup.with_model(quantised.model, quantised.files)


@change(
    "weights_4bit",
    "quantize",
    12,
    lambda findings: ["level 4", "level 0"],
    _weights,
    command=lambda setup, value, model: (
        f"tracer quantize {shlex.quote(model)} --weights 4 "
        f"--accuracy-level {value.removeprefix('level ')} -o tuned.onnx"
    ),
)
def _why_weights_4bit(findings: Findings) -> str | None:
    """Weights of products in 4 bits: `MatMulNBits`, which reads an eighth of the bytes."""
    rows = findings.rows(_WEIGHTED)
    rows = rows[rows["params"].fillna(0) > 0]
    share = findings.share_of(rows)
    if share < _SHARE:
        return None
    bound = findings.share_of(rows[rows["bound"] == MEMORY])
    nbytes = int(rows["param_bytes"].sum())
    return (
        f"MatMul with {nbytes:,} bytes of weights take {share:.0%} of the time; {bound:.0%} is "
        "limited by memory, which 4 bits read an eighth of"
    )
