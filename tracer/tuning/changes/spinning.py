"""Threads that sleep at once when they have no work, instead of looking for it in a loop."""

from collections.abc import Sequence

from tracer.tuning.changes import Change
from tracer.tuning.findings import Findings
from tracer.tuning.setup import SPINNING, Setup


def _applies(findings: Findings) -> str | None:
    if findings.threads < 2 or not findings.setup.spins:
        return None
    return (
        f"{findings.threads} threads spin while they wait, on cores that other threads or programs "
        "may need"
    )


def _values(findings: Findings) -> Sequence[str]:
    return ["off"]


def _apply(setup: Setup, value: str) -> Setup:
    return setup.with_entries({SPINNING: "0"})


CHANGE = Change("spinning", "exact", 51, _applies, _values, _apply)
