"""From calls to a Run: the kernels, what the instrument cost them, and the rows they belong to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracer.executors.eager.calls import Calls, described
from tracer.executors.protocol import Profiled
from tracer.records.trace import Kernel, Run


@dataclass(frozen=True, slots=True)
class Cost:
    """What recording one call adds, µs: to its own time, and to that of the call around it."""

    inside: float
    outside: float

    def at_most(self, whole: float) -> Cost:
        """The same, less where all of recording took less than so many µs a call."""
        found = self.inside + self.outside
        share = min(1.0, max(0.0, whole) / found) if found else 0.0
        return Cost(self.inside * share, self.outside * share)

    def __str__(self) -> str:
        return f"{self.inside + self.outside:.2f} µs"


@dataclass(frozen=True, slots=True)
class Measured:
    """One executor on one batch, measured: whole runs (µs), undisturbed ones and recorded ones."""

    executor: str
    provider: str
    arrays: Sequence[Any]
    wall_us: Sequence[float]
    recorded_us: Sequence[float]
    cost: Cost

    @property
    def batch(self) -> int | None:
        """The first dimension of the first input, where it has one."""
        return int(self.arrays[0].shape[0]) if self.arrays and self.arrays[0].ndim else None

    @property
    def inputs(self) -> Mapping[str, str]:
        """Types of the inputs, which frameworks know by their place alone."""
        return {f"input{i}": described(array) for i, array in enumerate(self.arrays)}


def profile_of(calls: Calls, measured: Measured) -> Profiled:
    """Put together what was measured; a note says what the instrument cost."""
    kernels = _kernels(calls, measured.provider)
    wall, recorded = np.array(measured.wall_us), np.array(measured.recorded_us)
    count = sum(kernel.calls for kernel in kernels)
    cost = measured.cost.at_most((np.median(recorded) - np.median(wall)) / max(count, 1.0))
    children: dict[str, float] = defaultdict(float)
    for kernel in kernels:
        children[kernel.scope] += kernel.calls
    bias = [cost.inside + cost.outside * children[kernel.name] / kernel.calls for kernel in kernels]
    adds = f"recording adds {cost} to a call, of {count:,.0f} a run"
    lost = "what recording adds is too little to be seen, and nothing is taken off"
    note = (
        f"{adds if cost.inside + cost.outside else lost}: a recorded run took "
        f"{np.median(recorded):,.0f} µs, an undisturbed one {np.median(wall):,.0f} µs (medians)"
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
        notes=(note,),
    )
    return Profiled(run, operations=tuple(calls.operations.values()))


def _kernels(calls: Calls, provider: str) -> tuple[Kernel, ...]:
    """A kernel for each operator at each place; `scope` is the name of the kernel around it."""
    return tuple(
        Kernel(
            name=place.path,
            op_type=place.name,
            domain=calls.operations[place.node].domain,
            provider=provider,
            node=place.node,
            scope=place.scope,
            inputs=(),
            outputs=(),
            attributes=(),
            input_types=calls.operations[place.node].inputs if not place.scope else (),
            output_types=(),
            calls=count,
        )
        for place, count in zip(calls.places, calls.calls(), strict=True)
    )
