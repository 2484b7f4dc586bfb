"""Products in few bits: integers of 8 bits, weights of 4."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import onnx

from tracer.analyzers.roofline import MEMORY
from tracer.containment.activity import silent
from tracer.errors import ModelError
from tracer.graph import loading, stored_weights
from tracer.graph.model import encoded
from tracer.graph.operators import quantized_node
from tracer.inputs.feedset import Feeds
from tracer.narrowing.attempts import Subject
from tracer.narrowing.narrow import narrow_graph
from tracer.narrowing.requirement import parse_widths
from tracer.quantization.options import QuantizationOptions, WeightOptions
from tracer.quantization.quantizer import quantize_weights, quantized_graphs, without_logs
from tracer.support.temporary import TemporaryFolder
from tracer.tuning.changes import change
from tracer.tuning.findings import PRODUCTS, Findings
from tracer.tuning.setup import Setup

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

    model, files = setup.model, TemporaryFolder()
    source, target = files.path / "float.onnx", files.path / "dynamic.onnx"
    own = onnx.ModelProto()
    own.CopyFrom(setup.whole_proto)
    del own.graph.value_info[:]  # the quantizer transposes weights, and keeps the shapes before
    source.write_bytes(encoded(own, model.name))
    try:
        kind = getattr(QuantType, _DYNAMIC_TYPES[value])
        with without_logs():
            quantize_dynamic(source, target, weight_type=kind, per_channel=False)
    except Exception as error:  # its quantizer raises all kinds of exceptions
        reason = " ".join(str(error).split())
        message = f"{model.name}: onnxruntime cannot quantise it: {reason}"
        raise ModelError(message) from error
    return setup.with_proto(loading.load(target).proto)


@change(
    "dynamic_int8",
    "quantize",
    10,
    lambda findings: ["uint8" if findings.machine.saturates else "int8"],
    _dynamic,
    command=lambda setup, value, model: (
        f'onnxruntime.quantization.quantize_dynamic("{model}", "tuned.onnx", '
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
        return f"tracer narrow {model} --for {PAIRS} --data inputs.npz -o tuned.onnx"
    activations, weights = _STATIC_TYPES[value]
    symmetric = " --symmetric" if activations == "int8" else ""
    return (
        f"tracer quantize {model} --calibrate inputs.npz --activation-type {activations} "
        f"--weight-type {weights}{symmetric} -o tuned.onnx"
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
        f"tracer quantize {model} --weights 4 --accuracy-level {value.removeprefix('level ')} "
        "-o tuned.onnx"
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
