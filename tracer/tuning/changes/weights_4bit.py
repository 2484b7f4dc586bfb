"""Weights of products in 4 bits: `MatMulNBits`, which reads an eighth of the bytes."""

from collections.abc import Sequence

from tracer.analyzers.roofline import MEMORY
from tracer.quantization.options import WeightOptions
from tracer.quantization.weights import quantize_weights
from tracer.tuning.changes import Change
from tracer.tuning.findings import Findings
from tracer.tuning.setup import Setup

_PRODUCTS = ("FusedMatMul", "MatMul")
_SHARE = 0.1


def _applies(findings: Findings) -> str | None:
    rows = findings.rows(_PRODUCTS)
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


def _values(findings: Findings) -> Sequence[str]:
    return ["level 4", "level 0"]


def _apply(setup: Setup, value: str) -> Setup:
    level = int(value.removeprefix("level "))
    quantised = quantize_weights(setup.model, WeightOptions(accuracy_level=level))
    return setup.with_model(quantised.model, quantised.files)


def _command(setup: Setup, value: str, model: str) -> str:
    level = value.removeprefix("level ")
    return f"tracer quantize {model} --weights 4 --accuracy-level {level} -o tuned.onnx"


CHANGE = Change("weights_4bit", "quantize", 12, _applies, _values, _apply, _command)
