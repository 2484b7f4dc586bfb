"""The newest opset that the installed onnxruntime knows, converted by onnx."""

from collections.abc import Sequence

import onnx
from onnx import version_converter

from tracer.errors import ModelError
from tracer.graph import footprint
from tracer.tuning.changes import Change
from tracer.tuning.findings import Findings
from tracer.tuning.setup import Setup

_KNOWN = 17
"""The opset that brought LayerNormalization; onnxruntime 1.12 and later know it."""


def _applies(findings: Findings) -> str | None:
    opset = findings.model.opsets.get("", _KNOWN)
    if opset >= _KNOWN or footprint.is_large(findings.model):
        return None
    return f"the model has opset {opset}; onnxruntime has more kernels and fusions for {_KNOWN}"


def _values(findings: Findings) -> Sequence[str]:
    return [str(_KNOWN)]


def _apply(setup: Setup, value: str) -> Setup:
    model = setup.model
    try:
        converted = version_converter.convert_version(setup.whole_proto, int(value))
        onnx.checker.check_model(converted)
    except Exception as error:  # the converter raises all kinds of exceptions
        reason = " ".join(str(error).split())
        message = f"{model.name}: onnx cannot convert it to opset {value}: {reason}"
        raise ModelError(message) from error
    return setup.with_proto(converted)


def _command(setup: Setup, value: str, model: str) -> str:
    return (
        f'onnx.save(onnx.version_converter.convert_version(onnx.load("{model}"), {value}), '
        '"tuned.onnx")'
    )


CHANGE = Change("opset", "rounding", 0, _applies, _values, _apply, _command)
