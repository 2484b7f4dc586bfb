"""What is tried: a function for each change says why it may help, and is marked `@change`.

Each module here is found. `Findings` are the figures by which a change decides whether it applies.
"""

import importlib
import pkgutil
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from onnx import numpy_helper
from onnx.external_data_helper import uses_external_data

from tracer.analyzers.advice import Evidence
from tracer.errors import UsageError
from tracer.executors import registry
from tracer.graph import stored_weights
from tracer.graph.model import Model
from tracer.inputs.feedset import FeedSet
from tracer.records.trace import Kernel, Trace
from tracer.text import suggest
from tracer.tuning.setup import Machine, Setup

PRODUCTS = ("Conv", "FusedConv", "ConvTranspose", "FusedGemm", "FusedMatMul", "Gemm", "MatMul")
"""Kernels that multiply floats by weights."""
LATENCY, THROUGHPUT, MEMORY = "latency", "throughput", "memory"
EVERY_GOAL = (LATENCY, THROUGHPUT, MEMORY)


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


Effect = Literal["exact", "rounding", "float16", "quantize"]
"""What a change does to results: nothing, another rounding of floats, floats of 16 bits, integers
of few bits. The last two are tried only where the user allows them."""

Applies: TypeAlias = Callable[[Findings], str | None]
ALLOWED = ("exact", "rounding")


@dataclass(frozen=True, slots=True)
class Change:
    """A change that can be tried, by its `name`.

    `applies` returns why it may help, by the profile, or None. `values` lists the forms to try, and
    `apply` makes one of them; it raises TracerError for what cannot be made. `command` tells how to
    make the changed model of a setup; it is None for a change of settings. Changes are applied in
    the order of `rank`: those of the model come first.
    """

    name: str
    effect: Effect
    rank: int
    applies: Applies
    values: Callable[[Findings], Sequence[str]]
    apply: Callable[[Setup, str], Setup]
    command: Callable[[Setup, str, str], str] | None = None
    goals: tuple[str, ...] = EVERY_GOAL


_CHANGES: list[Change] = []


def change(
    name: str,
    effect: Effect,
    rank: int,
    values: Callable[[Findings], Sequence[str]],
    apply: Callable[[Setup, str], Setup],
    *,
    command: Callable[[Setup, str, str], str] | None = None,
    goals: tuple[str, ...] = EVERY_GOAL,
) -> Callable[[Applies], Applies]:
    """Makes a change of a function that says why it may help; the others are fields of Change."""

    def register(applies: Applies) -> Applies:
        _CHANGES.append(Change(name, effect, rank, applies, values, apply, command, goals))
        return applies

    return register


def one_form(value: str) -> Callable[[Findings], Sequence[str]]:
    """Returns the `values` of a change that has a single form."""
    return lambda findings: [value]


@dataclass(frozen=True, slots=True)
class Step:
    """One form of a change."""

    change: Change
    value: str

    def apply(self, setup: Setup) -> Setup:
        """Returns `setup` with this form of the change.

        Raises UsageError for a form that the change does not have, and the errors of the change.
        """
        try:
            return self.change.apply(setup, self.value)
        except (ValueError, KeyError) as error:
            raise UsageError(
                f"{self} is no form of this change", "tracer tune names the forms that it tries."
            ) from error

    def __str__(self) -> str:
        """Returns `threads=2`."""
        return f"{self.change.name}={self.value}"


Steps: TypeAlias = tuple[Step, ...]


@cache
def changes() -> tuple[Change, ...]:
    """Returns all changes, in the order in which they are applied."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return tuple(sorted(_CHANGES, key=lambda change: (change.rank, change.name)))


def find(name: str) -> Change:
    """Returns the change of this name. Raises UsageError for an unknown name."""
    for change in changes():
        if change.name == name:
            return change
    names = [change.name for change in changes()]
    hint = f"{suggest(name, names)}There are {', '.join(names)}."
    raise UsageError(f"there is no change '{name}'", hint)


def ordered(steps: Sequence[Step]) -> Steps:
    """Returns steps in the order in which they are applied."""
    return tuple(sorted(steps, key=lambda step: changes().index(step.change)))


def parsed(texts: Sequence[str]) -> Steps:
    """Returns the steps of texts such as `threads=2`, in the order in which they are applied.

    Raises UsageError for another text, and for an unknown change.
    """
    steps = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not value:
            raise UsageError(f"'{text}' is no change and its form", "Write one as folding=shapes.")
        steps.append(Step(find(name), value))
    return ordered(steps)
