"""Show where a neural network spends its time, and how few accumulator bits it needs.

The names below load what they need when they are first used, so that `import tracer` is instant.
"""

from __future__ import annotations

import importlib
import os
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracer import errors, limits
    from tracer.accumulators.spec.accumulator import Accumulator
    from tracer.accumulators.spec.policy import Policy
    from tracer.analyzers.compare import Comparison
    from tracer.analyzers.compare.bisection import Bisection
    from tracer.analyzers.fusions import Fusions
    from tracer.analyzers.graph_diff import GraphDiff
    from tracer.api.bisect import bisect
    from tracer.api.compare import SideSettings, compare, compare_bits, sweep
    from tracer.api.count import count
    from tracer.api.diff import diff
    from tracer.api.export import export
    from tracer.api.extract import extract
    from tracer.api.fusions import fusions
    from tracer.api.interpret import interpret
    from tracer.api.narrow import narrow
    from tracer.api.profile import profile, profile_framework
    from tracer.api.quantize import quantize
    from tracer.api.replay import fingerprint, replay
    from tracer.api.results import load, merge, save
    from tracer.api.reveal import reveal
    from tracer.api.tune import tune
    from tracer.api.whatif import what_if
    from tracer.errors import (
        ClusterError,
        CrashError,
        InputError,
        LimitError,
        ModelError,
        ThresholdError,
        TracerError,
        UsageError,
    )
    from tracer.exporters.records import Exported, ExportOptions
    from tracer.graph.user_operators import Operators
    from tracer.inputs.request import Samples
    from tracer.interpreter.interpreter import Interpreter
    from tracer.limits import Limits
    from tracer.quantization.options import QuantizationOptions, WeightOptions
    from tracer.records.bits import BitComparison, Fingerprint, Replayed, Revealed
    from tracer.records.result import ViewOptions
    from tracer.records.trace import Trace
    from tracer.records.transformed import Narrowed, Quantized, Tuned
    from tracer.records.whatif import WhatIf
    from tracer.support.tolerance import Tolerance
    from tracer.whatif.options import WhatIfOptions

# Before onnxruntime is imported anywhere: it reports graph names and errors over the network, from
# threads that run while times are measured.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__version__ = "0.1.0"
__all__ = [
    "Accumulator",
    "Bisection",
    "BitComparison",
    "ClusterError",
    "Comparison",
    "CrashError",
    "ExportOptions",
    "Exported",
    "Fingerprint",
    "Fusions",
    "GraphDiff",
    "InputError",
    "Interpreter",
    "LimitError",
    "Limits",
    "ModelError",
    "Narrowed",
    "Operators",
    "Policy",
    "QuantizationOptions",
    "Quantized",
    "Replayed",
    "Revealed",
    "Samples",
    "SideSettings",
    "ThresholdError",
    "Tolerance",
    "Trace",
    "TracerError",
    "Tuned",
    "UsageError",
    "ViewOptions",
    "WeightOptions",
    "WhatIf",
    "WhatIfOptions",
    "bisect",
    "compare",
    "compare_bits",
    "count",
    "diff",
    "errors",
    "export",
    "extract",
    "fingerprint",
    "fusions",
    "interpret",
    "limits",
    "load",
    "merge",
    "narrow",
    "profile",
    "profile_framework",
    "quantize",
    "replay",
    "reveal",
    "save",
    "sweep",
    "tune",
    "what_if",
]

_NAMES = {
    "tracer.accumulators.spec.accumulator": "Accumulator",
    "tracer.accumulators.spec.policy": "Policy",
    "tracer.analyzers.compare": "Comparison",
    "tracer.analyzers.compare.bisection": "Bisection",
    "tracer.analyzers.fusions": "Fusions",
    "tracer.analyzers.graph_diff": "GraphDiff",
    "tracer.api.bisect": "bisect",
    "tracer.api.compare": "SideSettings compare compare_bits sweep",
    "tracer.api.count": "count",
    "tracer.api.diff": "diff",
    "tracer.api.export": "export",
    "tracer.api.extract": "extract",
    "tracer.api.fusions": "fusions",
    "tracer.api.interpret": "interpret",
    "tracer.api.narrow": "narrow",
    "tracer.api.profile": "profile profile_framework",
    "tracer.api.quantize": "quantize",
    "tracer.api.replay": "fingerprint replay",
    "tracer.api.results": "load merge save",
    "tracer.api.reveal": "reveal",
    "tracer.api.tune": "tune",
    "tracer.api.whatif": "what_if",
    "tracer.errors": "ClusterError CrashError InputError LimitError ModelError ThresholdError "
    "TracerError UsageError",
    "tracer.exporters.records": "ExportOptions Exported",
    "tracer.graph.user_operators": "Operators",
    "tracer.inputs.request": "Samples",
    "tracer.interpreter.interpreter": "Interpreter",
    "tracer.limits": "Limits",
    "tracer.quantization.options": "QuantizationOptions WeightOptions",
    "tracer.records.bits": "BitComparison Fingerprint Replayed Revealed",
    "tracer.records.result": "ViewOptions",
    "tracer.records.trace": "Trace",
    "tracer.records.transformed": "Narrowed Quantized Tuned",
    "tracer.records.whatif": "WhatIf",
    "tracer.support.tolerance": "Tolerance",
    "tracer.whatif.options": "WhatIfOptions",
}
"""What is imported from where, when it is first used."""
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}


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
    if name in ("errors", "limits"):
        return importlib.import_module(f"tracer.{name}")
    if name in _MOVED:
        home = _MOVED[name]
        warnings.warn(f"tracer.{name} is now {home}", DeprecationWarning, stacklevel=2)
        return importlib.import_module(home)
    raise AttributeError(f"module 'tracer' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
