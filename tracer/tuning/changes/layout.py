"""Convolutions in the layout of the model, NCHW, where onnxruntime chose a blocked one or NHWC."""

from collections.abc import Sequence
from dataclasses import replace

from tracer.tuning.changes import Change
from tracer.tuning.findings import Findings
from tracer.tuning.setup import Setup

_TRANSFORMERS = ("NchwcTransformer", "NhwcTransformer")
_REORDERS = ("ReorderInput", "ReorderOutput")


def _applies(findings: Findings) -> str | None:
    if set(_TRANSFORMERS) <= set(findings.setup.session.disabled):
        return None
    reorders = sum(findings.operators[name] for name in _REORDERS)
    others = [kernel for kernel in findings.kernels if kernel.op_type not in _REORDERS]
    channels_last = sum("channels_last" in kernel.attributes for kernel in others)
    if not reorders and not channels_last:
        return None
    share = findings.share(_REORDERS)
    return (
        f"{reorders} changes of layout take {share:.1%} of the time, and {channels_last} kernels "
        "run in NHWC"
    )


def _values(findings: Findings) -> Sequence[str]:
    return ["NCHW"]


def _apply(setup: Setup, value: str) -> Setup:
    disabled = dict.fromkeys((*setup.session.disabled, *_TRANSFORMERS))
    return setup.with_session(replace(setup.session, disabled=tuple(disabled)))


CHANGE = Change("layout", "rounding", 41, _applies, _values, _apply)
