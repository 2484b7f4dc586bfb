"""8-bit weights of products, and activations that are quantised in each run."""

from collections.abc import Sequence

import onnx

from tracer.errors import ModelError
from tracer.graph import footprint, loading
from tracer.graph.encoding import encoded
from tracer.support.quiet import without_logs
from tracer.support.temporary import TemporaryFolder
from tracer.tuning.changes import Change
from tracer.tuning.findings import Findings
from tracer.tuning.setup import Setup

_PRODUCTS = ("FusedGemm", "FusedMatMul", "Gemm", "MatMul", "LSTM", "GRU")
_SHARE = 0.1
_TYPES = {"int8": "QInt8", "uint8": "QUInt8"}


def _applies(findings: Findings) -> str | None:
    share = findings.share(_PRODUCTS)
    if share < _SHARE or footprint.is_large(findings.model):
        return None
    how = "adds products of bytes in 32 bits" if findings.machine.multiplies_bytes else (
        "has no instruction for products of bytes"
    )  # fmt: skip
    return f"products without convolutions take {share:.0%} of the time, and the processor {how}"


def _values(findings: Findings) -> Sequence[str]:
    return ["uint8"] if findings.machine.saturates else ["int8"]


def _apply(setup: Setup, value: str) -> Setup:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model, files = setup.model, TemporaryFolder()
    source, target = files.path / "float.onnx", files.path / "dynamic.onnx"
    own = onnx.ModelProto()
    own.CopyFrom(setup.whole_proto)
    del own.graph.value_info[:]  # the quantizer transposes weights, and keeps the shapes before
    source.write_bytes(encoded(own, model.name))
    try:
        kind = getattr(QuantType, _TYPES[value])
        with without_logs():
            quantize_dynamic(source, target, weight_type=kind, per_channel=False)
    except Exception as error:  # its quantizer raises all kinds of exceptions
        reason = " ".join(str(error).split())
        message = f"{model.name}: onnxruntime cannot quantise it: {reason}"
        raise ModelError(message) from error
    return setup.with_proto(loading.load(target).proto)


def _command(setup: Setup, value: str, model: str) -> str:
    return (
        f'onnxruntime.quantization.quantize_dynamic("{model}", "tuned.onnx", '
        f"weight_type=QuantType.{_TYPES[value]})"
    )


CHANGE = Change("dynamic_int8", "quantize", 10, _applies, _values, _apply, _command)
