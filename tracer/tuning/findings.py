"""What a profile tells of a model: the figures by which a change decides whether it applies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from onnx import numpy_helper
from onnx.external_data_helper import uses_external_data

from tracer.analyzers.advice import Evidence
from tracer.executors import registry
from tracer.graph import stored_weights
from tracer.graph.model import Model
from tracer.inputs.feedset import FeedSet
from tracer.records.trace import Kernel, Trace
from tracer.tuning.setup import Machine, Setup

PRODUCTS = ("Conv", "FusedConv", "ConvTranspose", "FusedGemm", "FusedMatMul", "Gemm", "MatMul")
"""Kernels that multiply floats by weights."""
LATENCY, THROUGHPUT, MEMORY = "latency", "throughput", "memory"
GOALS = (LATENCY, THROUGHPUT, MEMORY)


@dataclass(frozen=True)
class Findings:
    """The profile `trace` of the unchanged `setup`, for a `goal` on a `machine`."""

    setup: Setup
    trace: Trace
    machine: Machine
    goal: str = LATENCY

    @property
    def model(self) -> Model:
        """The unchanged model."""
        return self.setup.model

    @property
    def feedset(self) -> FeedSet:
        """The inputs of the profile."""
        return self.setup.feedset

    @cached_property
    def evidence(self) -> Evidence:
        """The rows of the profile, as advice reads them, and those whose time is only a bound."""
        return Evidence.of(self.trace, self.trace.runs[0], self.trace.nodes, with_bounds=True)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels that ran."""
        return self.trace.runs[0].kernels

    @property
    def operators(self) -> Counter[str]:
        """How many kernels of each operator ran."""
        return Counter(kernel.op_type for kernel in self.kernels)

    @property
    def threads(self) -> int:
        """The threads of the profile."""
        return self.setup.settings.threads or self.machine.cores

    def rows(self, op_types: Collection[str]) -> pd.DataFrame:
        """Returns the timed rows of the kernels of some operators."""
        return self.evidence.rows_of(k for k in self.kernels if k.op_type in op_types)

    def share(self, op_types: Collection[str]) -> float:
        """Returns the share of the time in kernels of some operators."""
        return self.share_of(self.rows(op_types))

    def share_of(self, rows: pd.DataFrame) -> float:
        """Returns the share of `rows` in the time; 0 if nothing took time.

        A row whose time is only a bound counts with it: what the share lets try is measured.
        """
        total = float(self.trace.nodes["time_us"].sum())
        return float(rows["time_us"].sum()) / total if total else 0.0

    @cached_property
    def wall_us(self) -> float:
        """The median undisturbed run, µs."""
        return float(np.median(self.trace.runs[0].wall_us))

    @cached_property
    def denormals(self) -> int:
        """Denormal numbers among the tensors of a run; only weights and inputs of large models."""
        values: list[Any] = list(self.feedset.feeds.values())
        if not stored_weights.is_large(self.model):
            executor = registry.find_tensors("onnxruntime")
            tensors = executor.tensors(self.model, self.feedset, self.setup.settings)
            values += tensors.by_name.values()
            values += [
                numpy_helper.to_array(tensor)
                for tensor in self.model.graph.initializer
                if not uses_external_data(tensor)
            ]
        count = 0
        for value in values:
            if isinstance(value, np.ndarray) and value.dtype in (np.float32, np.float64):
                size = np.abs(value)
                count += int(((size > 0) & (size < np.finfo(value.dtype).tiny)).sum())
        return count
