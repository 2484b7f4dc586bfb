"""Compares each tensor of the optimised graph with each tensor of the model, by its values.

The reference interpreter computes the model, node by node and without rewriting. Each tensor is
compared as soon as it is computed, so that only the tensors of the optimised graph are all held.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracer.executors.onnxruntime import all_outputs
from tracer.graph import footprint
from tracer.graph.model import Model, Node
from tracer.graph.quantized import rounds_values
from tracer.inputs.feedset import Feeds
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.values import Value
from tracer.limits import Limits
from tracer.records.tensor_match import (
    ANY_ORDER,
    Candidates,
    Evidence,
    NumericTensor,
    match,
    numeric_tensor,
)
from tracer.support.progress import Progress

_ZERO = "is 0 everywhere"
_CONSTANT = "is one value everywhere, on every input"
_FIXED = "is the same on every input"

Readings = Mapping[str, Mapping[str, int]]
"""For each tensor of the optimised graph, the equal tensors of the model and how each is read."""


def evidence(
    model: Model,
    saved: Path,
    inputs: Sequence[Feeds],
    threads: int,
    limits: Limits,
    progress: Progress,
) -> Evidence:
    """Returns which tensors of `model` equal each tensor of the graph at `saved` on all `inputs`.

    Raises the errors of onnxruntime and of the interpreter.
    """
    optimized = _optimized(model, saved, inputs, threads)
    interpreter = Interpreter(model, limits=limits, threads=threads or None, progress=progress)
    rounded = any(rounds_values(node.op_type) for node in model.nodes)
    comparers: list[_Comparer] = []
    for index, feeds in enumerate(inputs):
        progress(index, len(inputs), "comparing values")
        previous = comparers[-1].readings if comparers else None
        comparer = _Comparer({**feeds, **next(optimized)}, previous, rounded)
        comparer.compare(feeds)
        interpreter.with_observers(comparer).run(None, feeds)
        comparer.optimized.clear()
        comparers.append(comparer)
    readings = comparers[-1].readings
    return Evidence(
        inputs=len(inputs),
        equal={name: _strongest(equal) for name, equal in readings.items()},
        reordered=frozenset(
            name for name, equal in readings.items() if min(equal.values(), default=0) == ANY_ORDER
        ),
        uninformative=_uninformative([comparer.optimized_marks for comparer in comparers]),
        constant=frozenset(_uninformative([comparer.model_marks for comparer in comparers])),
        not_numeric=frozenset(comparers[-1].not_numeric),
    )


def _optimized(
    model: Model, saved: Path, inputs: Sequence[Feeds], threads: int
) -> Iterator[Mapping[str, Any]]:
    """Yields the tensors of the graph at `saved` on each of `inputs`.

    Of a large model, all are computed first, so that its session is gone when the interpreter runs.
    """
    run = all_outputs.runner_of_saved(saved, {value.name for value in model.inputs}, threads)
    return iter([*map(run, inputs)]) if footprint.is_large(model) else map(run, inputs)


class _Comparer:
    """Compares the tensors of the model with the `optimized` tensors, on one input.

    Only pairs that were equal on the `previous` input are compared.
    """

    def __init__(
        self, optimized: Mapping[str, Any], previous: Readings | None, rounded: bool
    ) -> None:
        self.optimized = {
            n: tensor for n, value in optimized.items() if (tensor := numeric_tensor(value))
        }
        self._candidates = Candidates(self.optimized, rounded)
        self.optimized_marks = {name: _mark(tensor) for name, tensor in self.optimized.items()}
        self.model_marks: dict[str, _Mark] = {}
        self.not_numeric: set[str] = set()
        self.readings: dict[str, dict[str, int]] = {name: {} for name in self.optimized}
        self._previous = previous
        self._rounded = rounded

    def before(self, node: Node, inputs: Sequence[Value]) -> None:
        """Does nothing: the outputs of `node` are not computed yet."""

    def after(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Compares the outputs of a node of the main graph."""
        if not node.scope.path:
            self.compare(dict(zip(node.outputs, outputs, strict=False)))

    def compare(self, tensors: Mapping[str, Any]) -> None:
        """Records which tensors of the optimised graph equal these tensors of the model."""
        for name, value in tensors.items():
            original = numeric_tensor(value)
            if original is None:
                self.not_numeric.add(name)
                continue
            self.model_marks[name] = _mark(original)
            for other in self._candidates.near(original):
                previous = 0 if self._previous is None else self._previous.get(other, {}).get(name)
                if previous is None:
                    continue
                reading = match(self.optimized[other], original, self._rounded)
                if reading is not None:
                    self.readings[other][name] = max(reading, previous)


@dataclass(frozen=True, slots=True)
class _Mark:
    """A digest of a tensor's values, which differs where the values differ, and their range."""

    digest: bytes
    extremes: tuple[float, float]


def _mark(tensor: NumericTensor) -> _Mark:
    digest = hashlib.blake2b(tensor.array.tobytes(), digest_size=16).digest()
    return _Mark(digest, tensor.extremes)


def _uninformative(marks: Sequence[Mapping[str, _Mark]]) -> dict[str, str]:
    """Returns the tensors whose values are the same on every input, with the reason."""
    reasons = {}
    for name, first in marks[0].items():
        every = [each[name] for each in marks if name in each]
        low, high = first.extremes
        if any(mark.digest != first.digest for mark in every) or (len(every) == 1 and low != high):
            continue
        reasons[name] = _ZERO if low == high == 0 else _CONSTANT if low == high else _FIXED
    return reasons


def _strongest(equal: Mapping[str, int]) -> tuple[str, ...]:
    """Returns the tensors that are equal in the strictest way, in the order of the model."""
    best = min(equal.values(), default=0)
    return tuple(name for name, match in equal.items() if match == best)
