"""Another execution provider of the installed onnxruntime."""

from collections.abc import Sequence
from dataclasses import replace

from tracer.tuning.changes import Change
from tracer.tuning.findings import Findings
from tracer.tuning.setup import Setup

_NOT_TRIED = frozenset({"CPUExecutionProvider", "AzureExecutionProvider"})
"""The default, and one that calls a service elsewhere."""


def _applies(findings: Findings) -> str | None:
    others = _values(findings)
    return f"the installed onnxruntime also has {', '.join(others)}" if others else None


def _values(findings: Findings) -> Sequence[str]:
    others = [name for name in findings.machine.providers if name not in _NOT_TRIED]
    short = [name.removesuffix("ExecutionProvider").lower() for name in others]
    return [name for name in short if name != findings.setup.settings.provider]


def _apply(setup: Setup, value: str) -> Setup:
    return setup.with_settings(replace(setup.settings, provider=value))


CHANGE = Change("provider", "rounding", 42, _applies, _values, _apply)
