"""Each tensor allocated by itself, instead of one block for all tensors of known sizes."""

from collections.abc import Sequence
from dataclasses import replace

from tracer.tuning.changes import Change
from tracer.tuning.findings import Findings
from tracer.tuning.setup import Setup

_SEVERAL = 2


def _applies(findings: Findings) -> str | None:
    if not findings.setup.session.memory_pattern or findings.setup.session.parallel:
        return None
    sizes = [t.nbytes or 0 for k in findings.kernels for t in k.output_types]
    if len(sizes) < _SEVERAL:
        return None
    return (
        f"{len(sizes):,} tensors, {sum(sizes):,} bytes in total, are placed in one block by a plan "
        "of the first run"
    )


def _values(findings: Findings) -> Sequence[str]:
    return ["off"]


def _apply(setup: Setup, value: str) -> Setup:
    return setup.with_session(replace(setup.session, memory_pattern=False))


CHANGE = Change("memory_pattern", "exact", 60, _applies, _values, _apply)
