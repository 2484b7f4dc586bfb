"""Open dimensions fixed to the sizes of the inputs, when the session opens."""

from collections.abc import Sequence
from dataclasses import replace

from tracer.tuning.changes import Change
from tracer.tuning.findings import Findings
from tracer.tuning.setup import Setup


def _applies(findings: Findings) -> str | None:
    dims = findings.setup.open_dims
    if not dims or findings.setup.session.dims:
        return None
    flow = sum(findings.operators[name] for name in ("If", "Loop"))
    computed = sum(findings.operators[name] for name in ("Shape", "Size", "ConstantOfShape"))
    return (
        f"{', '.join(dims)} {'is' if len(dims) == 1 else 'are'} open: {computed} kernels compute "
        f"shapes in each run, and {flow} are If or Loop"
    )


def _values(findings: Findings) -> Sequence[str]:
    return ["all"]


def _apply(setup: Setup, value: str) -> Setup:
    return setup.with_session(replace(setup.session, dims=setup.open_dims))


CHANGE = Change("fixed_dimensions", "rounding", 30, _applies, _values, _apply)
