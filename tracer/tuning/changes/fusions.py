"""Attention and normalisations fused by `onnxruntime.transformers.optimizer`."""

from collections.abc import Sequence

import onnx

from tracer.errors import ModelError
from tracer.graph import footprint
from tracer.support.quiet import without_logs
from tracer.tuning.changes import Change
from tracer.tuning.findings import Findings
from tracer.tuning.setup import Setup

_TYPES = ("bert", "gpt2", "vit")
"""Kinds of models whose patterns are tried: encoders, decoders, vision."""
_FUSED = ("Attention", "GroupQueryAttention", "MultiHeadAttention", "QAttention")
_NEIGHBOURS = ("Add", "Div", "FusedMatMul", "MatMul", "Mul", "Reshape", "Softmax", "Transpose")
_SHARE = 0.02
_DOMAIN = "com.microsoft"


def _applies(findings: Findings) -> str | None:
    operators = findings.operators
    if not operators["Softmax"] or any(operators[name] for name in _FUSED):
        return None
    share = findings.share(_NEIGHBOURS)
    if share < _SHARE or footprint.is_large(findings.model):
        return None
    return (
        f"{operators['Softmax']} Softmax stand between products, and none is fused to Attention; "
        f"these and their neighbours take {share:.0%} of the time"
    )


def _values(findings: Findings) -> Sequence[str]:
    return _TYPES


def _apply(setup: Setup, value: str) -> Setup:
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


def _command(setup: Setup, value: str, model: str) -> str:
    return (
        f"python -m onnxruntime.transformers.optimizer --input {model} --output tuned.onnx "
        f"--model_type {value} --opt_level 0"
    )


CHANGE = Change("fusions", "rounding", 5, _applies, _values, _apply, _command)
