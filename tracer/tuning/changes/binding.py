"""Inputs and outputs bound to memory that all runs share, instead of copied in each."""

from collections.abc import Sequence
from dataclasses import replace

from tracer.tuning.changes import Change
from tracer.tuning.findings import Findings
from tracer.tuning.setup import Setup

_MUCH = 1 << 16
"""Bytes of outputs whose copy takes more than a call of the bound session costs."""
_MANY = 8
"""Inputs and outputs, whose names and types Python checks in each run."""


def _applies(findings: Findings) -> str | None:
    if findings.setup.session.bound:
        return None
    names = {value.name for value in findings.model.graph.output}
    kernels = [k for k in findings.kernels if not k.scope and names.intersection(k.outputs)]
    nbytes = sum(
        kind.nbytes or 0
        for kernel in kernels
        for name, kind in zip(kernel.outputs, kernel.output_types, strict=False)
        if name in names
    )
    count = len(names) + len(findings.model.inputs)
    if nbytes < _MUCH and count < _MANY:
        return None
    return f"{nbytes:,} bytes of outputs are copied in each run, and {count} names checked"


def _values(findings: Findings) -> Sequence[str]:
    return ["on"]


def _apply(setup: Setup, value: str) -> Setup:
    return setup.with_session(replace(setup.session, bound=True))


CHANGE = Change("binding", "exact", 62, _applies, _values, _apply)
