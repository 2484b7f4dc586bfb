"""Weights and activations of 8 bits, with ranges that are measured on the inputs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tracer.graph import footprint, loading
from tracer.graph.operators import quantized_node
from tracer.inputs.feedset import Feeds
from tracer.quantization.options import QuantizationOptions
from tracer.quantization.quantizer import quantized_graphs
from tracer.support.temporary import TemporaryFolder
from tracer.tuning.changes import Change
from tracer.tuning.findings import PRODUCTS, Findings
from tracer.tuning.setup import Setup

_SHARE = 0.1
_TYPES = {"u8s8": ("uint8", "int8"), "s8s8": ("int8", "int8"), "u8u8": ("uint8", "uint8")}
"""Types of activations and of weights."""


@dataclass(frozen=True, slots=True)
class _OneBatch:
    """The inputs of the profile, as calibration reads them."""

    feeds: Feeds

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Feeds]:
        yield self.feeds


def _applies(findings: Findings) -> str | None:
    share = findings.share(PRODUCTS)
    if share < _SHARE or footprint.is_large(findings.model):
        return None
    if quantized_node(findings.model) is not None:
        return None
    if findings.machine.multiplies_bytes:
        how = "adds products of bytes in 32 bits"
    elif findings.machine.saturates:
        how = "adds pairs of products of bytes in 16 bits, which saturate: u8u8 is exact"
    else:
        how = "has no instruction for products of bytes"
    return f"products take {share:.0%} of the time, and the processor {how}"


def _values(findings: Findings) -> Sequence[str]:
    if findings.machine.saturates:
        return ["u8u8", "u8s8"]
    return ["s8s8", "u8s8"] if findings.machine.architecture == "aarch64" else ["u8s8", "s8s8"]


def _apply(setup: Setup, value: str) -> Setup:
    activations, weights = _TYPES[value]
    options = QuantizationOptions(
        activation_type=activations, weight_type=weights, symmetric=activations == "int8"
    )
    files = TemporaryFolder()
    _, path = quantized_graphs(setup.model, _OneBatch(setup.feedset.feeds), options, files.path)
    model = replace(loading.load(path), subject=setup.model.name)
    return setup.with_model(model, files)


def _command(setup: Setup, value: str, model: str) -> str:
    activations, weights = _TYPES[value]
    symmetric = " --symmetric" if activations == "int8" else ""
    return (
        f"tracer quantize {model} --calibrate inputs.npz --activation-type {activations} "
        f"--weight-type {weights}{symmetric} -o tuned.onnx"
    )


CHANGE = Change("static_int8", "quantize", 11, _applies, _values, _apply, _command)
