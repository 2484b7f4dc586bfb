"""Turns recorded calls into a Run: its kernels, the overhead of recording, and the rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tracer.executors.eager.calls import Calls, described
from tracer.executors.protocol import Profiled
from tracer.records.disturbance import MachineUse
from tracer.records.trace import Kernel, Run

Arrays: TypeAlias = Sequence[Any]
"""The inputs of a model by position: numpy arrays, the batch first."""


@dataclass(frozen=True, slots=True)
class Overhead:
    """µs that recording adds for each call: `inside` its own time, and to the enclosing call."""

    inside: float
    outside: float

    @property
    def total(self) -> float:
        """µs for each call, inside and outside."""
        return self.inside + self.outside

    def at_most(self, limit: float) -> Overhead:
        """Returns the overhead, scaled down where its total exceeds `limit`, µs a call."""
        share = min(1.0, max(0.0, limit) / self.total) if self.total else 0.0
        return Overhead(self.inside * share, self.outside * share)


@dataclass(frozen=True, slots=True)
class Measured:
    """One executor on one batch: the times of undisturbed and of recorded runs, µs."""

    executor: str
    provider: str
    arrays: Arrays
    wall_us: Sequence[float]
    recorded_us: Sequence[float]
    overhead: Overhead
    notes: Sequence[str] = ()
    use: MachineUse | None = None

    @property
    def batch(self) -> int | None:
        """The first dimension of the first input; None for a scalar."""
        return int(self.arrays[0].shape[0]) if self.arrays and self.arrays[0].ndim else None

    @property
    def inputs(self) -> Mapping[str, str]:
        """Types of the inputs, which frameworks know only by position."""
        return {f"input{i}": described(array) for i, array in enumerate(self.arrays)}


def profile_of(calls: Calls, measured: Measured) -> Profiled:
    """Returns the profile, with a note on the overhead of recording."""
    kernels = _kernels(calls, measured.provider)
    wall, recorded = np.array(measured.wall_us), np.array(measured.recorded_us)
    count = sum(kernel.calls for kernel in kernels)
    excess_us = np.median(recorded) - np.median(wall)
    overhead = measured.overhead.at_most(excess_us / max(count, 1.0))
    children: dict[str, float] = defaultdict(float)
    for kernel in kernels:
        children[kernel.scope] += kernel.calls
    bias = [
        overhead.inside + overhead.outside * children[kernel.name] / kernel.calls
        for kernel in kernels
    ]
    subtracted = f"recording adds {overhead.total:.2f} µs to each of {count:,.0f} calls a run"
    negligible = "the overhead of recording is too small to measure, and is not subtracted"
    note = (
        f"{subtracted if overhead.total else negligible}: a recorded run took "
        f"{np.median(recorded):,.0f} µs, an undisturbed run {np.median(wall):,.0f} µs (medians)"
    )
    run = Run(
        executor=measured.executor,
        batch=measured.batch,
        inputs=measured.inputs,
        wall_us=wall,
        instrumented_us=recorded,
        samples=calls.samples(),
        bias_us=np.array(bias),
        kernels=kernels,
        notes=(note, *measured.notes),
        use=measured.use,
    )
    return Profiled(run, operations=tuple(calls.operations.values()))


def _kernels(calls: Calls, provider: str) -> tuple[Kernel, ...]:
    """Returns a kernel for each operator at each call site; `scope` names the enclosing kernel."""
    rows = {site.path: site.node for site in calls.sites}
    outermost = {site.path for site in calls.sites if rows.get(site.scope) != site.node}
    return tuple(
        Kernel(
            name=site.path,
            op_type=site.name,
            domain=calls.operations[site.node].domain,
            provider=provider,
            node=site.node,
            scope=site.scope,
            inputs=(),
            outputs=(),
            attributes=(),
            input_types=() if site.path not in outermost else calls.operations[site.node].inputs,
            output_types=(),
            calls=count,
        )
        for site, count in zip(calls.sites, calls.calls(), strict=True)
    )
