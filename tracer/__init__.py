"""Ask of any neural network: where does the time go, is that true, and how few bits would do?

The names below load what they need when they are first used, so that `import tracer` is instant.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracer.api import count, interpret, profile, profile_framework
    from tracer.exploring import what_if
    from tracer.fusing import fusions
    from tracer.interpreter.arithmetic.accumulator import Accumulator
    from tracer.interpreter.arithmetic.policy import Policy
    from tracer.interpreter.interpreter import Interpreter
    from tracer.quantizing import quantize
    from tracer.store import load

__version__ = "0.1.0"
__all__ = [
    "Accumulator",
    "Interpreter",
    "Policy",
    "count",
    "fusions",
    "interpret",
    "load",
    "profile",
    "profile_framework",
    "quantize",
    "what_if",
]

_HOMES = {
    "profile": "tracer.api",
    "profile_framework": "tracer.frameworks",
    "count": "tracer.api",
    "fusions": "tracer.fusing",
    "interpret": "tracer.api",
    "quantize": "tracer.quantizing",
    "what_if": "tracer.exploring",
    "load": "tracer.store",
    "Accumulator": "tracer.interpreter.arithmetic.accumulator",
    "Policy": "tracer.interpreter.arithmetic.policy",
    "Interpreter": "tracer.interpreter.interpreter",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tracer' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
