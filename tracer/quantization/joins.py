"""Finds Concats that join values of unlike ranges, which one scale then serves badly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracer.graph.model import Model, Node
from tracer.interpreter.observers import Observer
from tracer.interpreter.values import Value, from_tensor

_FEWEST_STEPS = 16
"""Steps that each input of a Concat needs: 4 of 8 bits, of ranges that differ up to 16 times."""

_MOST_TOLD = 3


class JoinedRanges(Observer):
    """Observes the float graph, and tells which Concats `quantized` gives too coarse a scale."""

    def __init__(self, quantized: Model) -> None:
        folder = quantized.path.parent if quantized.path is not None else None
        self._scales = {
            weight.name.removesuffix("_scale"): float(from_tensor(weight, folder).max())
            for weight in quantized.graph.initializer
            if weight.name.endswith("_scale")
        }
        self._ranges: dict[str, dict[str, tuple[float, float]]] = {}
        self._nodes: dict[str, Node] = {}

    def after(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Widens the ranges of the inputs of a Concat whose output has a scale."""
        is_join = node.op_type == "Concat" and not node.scope.path  # names in bodies may repeat
        if not is_join or node.outputs[0] not in self._scales:
            return
        self._nodes[node.key] = node
        ranges = self._ranges.setdefault(node.key, {})
        for name, value in zip(node.inputs, inputs, strict=True):
            finite = value[np.isfinite(value)] if isinstance(value, np.ndarray) else np.zeros(0)
            low, high = ranges.get(name, (0.0, 0.0))
            ranges[name] = float(finite.min(initial=low)), float(finite.max(initial=high))

    def notes(self) -> tuple[str, ...]:
        """Returns a note for each of the worst Concats, and one for the others."""
        worst = sorted(filter(None, map(self._worst_input, self._nodes)))
        told = [self._note(*each) for each in worst[:_MOST_TOLD]]
        if len(worst) > _MOST_TOLD:
            told.append(
                f"{len(worst) - _MOST_TOLD} more Concats join values of unlike ranges: "
                "--exclude Concat keeps them all in float"
            )
        return tuple(told)

    def _worst_input(self, key: str) -> tuple[float, str, str] | None:
        """Returns the fewest steps that an input has, the node, and the input; None if enough."""
        scale = self._scales[self._nodes[key].outputs[0]]
        steps = [((high - low) / scale, key, name) for name, (low, high) in self._spans(key)]
        return min((each for each in steps if each[0] < _FEWEST_STEPS), default=None)

    def _spans(self, key: str) -> list[tuple[str, tuple[float, float]]]:
        """Returns the inputs with their ranges, which include 0; without those that are all 0."""
        return [(name, ends) for name, ends in self._ranges[key].items() if ends[0] < ends[1]]

    def _note(self, steps: float, key: str, name: str) -> str:
        scale = self._scales[self._nodes[key].outputs[0]]
        low, high = self._ranges[key][name]
        ends = [end for ranges in self._ranges[key].values() for end in ranges]
        return (
            f"Concat '{key}' joins values of unlike ranges in one scale: the steps are {scale:.2g} "
            f"for {min(ends):.3g} to {max(ends):.3g}, and '{name}', from {low:.3g} to {high:.3g}, "
            f"has {steps:.1f} of them. --exclude '{key}' keeps it in float"
        )
