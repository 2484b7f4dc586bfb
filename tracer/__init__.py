"""Show where a neural network spends its time, and how few accumulator bits it needs.

The names below load what they need when they are first used, so that `import tracer` is instant.
"""

from __future__ import annotations

import importlib
import os
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracer.accumulators.spec.accumulator import Accumulator
    from tracer.accumulators.spec.policy import Policy
    from tracer.api.compare import compare, sweep
    from tracer.api.count import count
    from tracer.api.export import export
    from tracer.api.framework import profile_framework
    from tracer.api.fusions import fusions
    from tracer.api.interpret import interpret
    from tracer.api.narrow import narrow
    from tracer.api.profile import profile
    from tracer.api.quantize import quantize
    from tracer.api.results import load, merge, save
    from tracer.api.tune import tune
    from tracer.api.whatif import what_if
    from tracer.graph.user_operators import Operators
    from tracer.interpreter.interpreter import Interpreter

# Before onnxruntime is imported anywhere: it reports graph names and errors over the network, from
# threads that run while times are measured.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__version__ = "0.1.0"
__all__ = [
    "Accumulator",
    "Interpreter",
    "Operators",
    "Policy",
    "compare",
    "count",
    "export",
    "fusions",
    "interpret",
    "load",
    "merge",
    "narrow",
    "profile",
    "profile_framework",
    "quantize",
    "save",
    "sweep",
    "tune",
    "what_if",
]

_HOMES = {
    "Operators": "tracer.graph.user_operators",
    "profile": "tracer.api.profile",
    "profile_framework": "tracer.api.framework",
    "compare": "tracer.api.compare",
    "sweep": "tracer.api.compare",
    "count": "tracer.api.count",
    "export": "tracer.api.export",
    "fusions": "tracer.api.fusions",
    "interpret": "tracer.api.interpret",
    "quantize": "tracer.api.quantize",
    "narrow": "tracer.api.narrow",
    "tune": "tracer.api.tune",
    "what_if": "tracer.api.whatif",
    "load": "tracer.api.results",
    "merge": "tracer.api.results",
    "save": "tracer.api.results",
    "Accumulator": "tracer.accumulators.spec.accumulator",
    "Policy": "tracer.accumulators.spec.policy",
    "Interpreter": "tracer.interpreter.interpreter",
}


_MOVED = {
    "backend": "tracer.interpreter.backend",
    "comparison": "tracer.api.compare",
    "environment": "tracer.records.environment",
    "store": "tracer.storage.trace_file",
    "trace": "tracer.records.trace",
}
"""Modules by the names they had in 0.1, which documentation used."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _MOVED:
        home = _MOVED[name]
        warnings.warn(f"tracer.{name} is now {home}", DeprecationWarning, stacklevel=2)
        return importlib.import_module(home)
    raise AttributeError(f"module 'tracer' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
