"""Another level of graph optimisation."""

from collections.abc import Sequence
from dataclasses import replace

from tracer.executors.onnxruntime.settings import OPTIMIZATIONS
from tracer.tuning.changes import Change
from tracer.tuning.findings import Findings
from tracer.tuning.setup import Setup

_BEST = OPTIMIZATIONS[-1]


def _applies(findings: Findings) -> str | None:
    level, kernels = findings.setup.settings.optimization, len(findings.kernels)
    if level != _BEST:
        return f"the level is {level}, and {kernels:,} kernels run: {_BEST} fuses more of them"
    fused = len(findings.model.nodes) - kernels
    if fused <= 0:
        return None
    return f"the level {level} left {kernels:,} kernels of {len(findings.model.nodes):,} nodes"


def _values(findings: Findings) -> Sequence[str]:
    level = findings.setup.settings.optimization
    tried = ("extended", _BEST) if level != _BEST else ("basic", "extended")
    return [each for each in tried if each != level]


def _apply(setup: Setup, value: str) -> Setup:
    return setup.with_settings(replace(setup.settings, optimization=value))


CHANGE = Change("optimization", "rounding", 40, _applies, _values, _apply)
