"""Numbers too small to be normal become 0: arithmetic on them is slow on many processors."""

from collections.abc import Sequence
from dataclasses import replace

from tracer.executors.onnxruntime import denormals
from tracer.tuning.changes import Change
from tracer.tuning.findings import Findings
from tracer.tuning.setup import Setup


def _applies(findings: Findings) -> str | None:
    if findings.setup.session.flushes_denormals or not denormals.is_known():
        return None
    if not findings.denormals:
        return None
    return f"{findings.denormals:,} numbers in weights and tensors are denormal"


def _values(findings: Findings) -> Sequence[str]:
    return ["zero"]


def _apply(setup: Setup, value: str) -> Setup:
    return setup.with_session(replace(setup.session, flushes_denormals=True))


CHANGE = Change("denormals", "rounding", 55, _applies, _values, _apply)
