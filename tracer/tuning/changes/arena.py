"""Memory returned to the system at once, instead of an arena that keeps it for the next run."""

from collections.abc import Sequence
from dataclasses import replace

from tracer.tuning.changes import Change
from tracer.tuning.findings import Findings
from tracer.tuning.setup import Setup

_MUCH = 1 << 20
"""Bytes of tensors from which the arena matters: it grows by powers of two from 1 MiB."""


def _applies(findings: Findings) -> str | None:
    if not findings.setup.session.arena:
        return None
    held = max((kernel.arena_bytes or 0 for kernel in findings.kernels), default=0)
    moved = sum(t.nbytes or 0 for k in findings.kernels for t in k.output_types)
    if max(held, moved) < _MUCH:
        return None
    return f"the arena keeps {held:,} bytes, of runs that write {moved:,} bytes"


def _values(findings: Findings) -> Sequence[str]:
    return ["off"]


def _apply(setup: Setup, value: str) -> Setup:
    return setup.with_session(replace(setup.session, arena=False))


CHANGE = Change("arena", "exact", 61, _applies, _values, _apply)
