"""Nodes that do not wait for each other run at the same time: `ORT_PARALLEL`."""

from collections.abc import Sequence
from dataclasses import replace

from tracer.records.trace import Kernel
from tracer.tuning.changes import Change
from tracer.tuning.findings import Findings
from tracer.tuning.setup import Setup

_LEAST_SHARE = 0.05
"""Share of the time that must lie beside the longest chain of kernels."""


def _applies(findings: Findings) -> str | None:
    if findings.setup.session.parallel or findings.machine.cpus < 2:
        return None
    total, longest = _total_and_longest(findings)
    if total <= 0 or 1 - longest / total < _LEAST_SHARE:
        return None
    return f"{1 - longest / total:.0%} of the time is spent beside the longest chain of kernels"


def _values(findings: Findings) -> Sequence[str]:
    return ["2"] if findings.machine.cpus == 2 else ["2", str(findings.machine.cpus)]


def _apply(setup: Setup, value: str) -> Setup:
    return setup.with_session(replace(setup.session, parallel=True, inter_op_threads=int(value)))


def _total_and_longest(findings: Findings) -> tuple[float, float]:
    """Returns the time of all kernels of the main graph, and of the longest chain of them, µs."""
    rows = findings.evidence.rows
    times = dict(zip(rows["kernels"], rows["time_us"], strict=True))
    kernels = [kernel for kernel in findings.kernels if not kernel.scope]
    ready: dict[str, float] = {}
    for kernel in _in_order(kernels):
        begin = max((ready.get(name, 0.0) for name in kernel.inputs), default=0.0)
        end = begin + float(times.get(kernel.name, 0.0))
        ready.update(dict.fromkeys(kernel.outputs, end))
    total = sum(float(times.get(kernel.name, 0.0)) for kernel in kernels)
    return total, max(ready.values(), default=0.0)


def _in_order(kernels: Sequence[Kernel]) -> Sequence[Kernel]:
    """Returns kernels after those whose outputs they read."""
    waiting, placed, known = list(kernels), list[Kernel](), set[str]()
    made = {name for kernel in kernels for name in kernel.outputs}
    while waiting:
        able = [k for k in waiting if made.intersection(k.inputs) <= known]
        if not able:  # the runtime's names repeat: keep its order
            return [*placed, *waiting]
        placed += able
        known.update(name for kernel in able for name in kernel.outputs)
        waiting = [kernel for kernel in waiting if kernel not in able]
    return placed


CHANGE = Change("parallel", "exact", 52, _applies, _values, _apply)
