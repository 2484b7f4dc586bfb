"""Which tensors of the model hold the values of each tensor of onnxruntime's rewritten graph.

The model is computed by the reference interpreter, which rewrites nothing, and each of its
tensors is held against those of the rewritten graph as soon as it is there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracer.executors.onnxruntime import all_outputs
from tracer.graph.model import Model, Node
from tracer.inputs.feedset import Feeds
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.values import Value
from tracer.limits import Limits
from tracer.records.tensor_match import ANY_ORDER, Evidence, Known, known, reading

_ZERO = "is 0 everywhere"
_CONSTANT = "is one value everywhere, on every input"
_FIXED = "is the same on every input"


def evidence(
    model: Model,
    saved: Path,
    inputs: Sequence[Feeds],
    threads: int = 0,
    limits: Limits | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Evidence:
    """Compare the tensors of the main graph saved at `saved` with those of `model` on `inputs`.

    Raises what onnxruntime and the interpreter refuse.
    """
    run = all_outputs.opened(saved, {value.name for value in model.inputs}, threads)
    interpreter = Interpreter(model, limits=limits, threads=threads or None, progress=progress)
    rounded = any(map(_quantises, model.nodes))
    seen: list[_Comparer] = []
    for place, feeds in enumerate(inputs):
        if progress is not None:
            progress(place, len(inputs), "comparing values")
        before = seen[-1].readings if seen else None
        comparer = _Comparer({**feeds, **run(feeds)}, before, rounded)
        comparer.compare(feeds)
        interpreter.with_observers(comparer).run(None, feeds)
        comparer.made.clear()
        seen.append(comparer)
    return Evidence(
        inputs=len(inputs),
        equal={name: _strongest(found) for name, found in seen[-1].readings.items()},
        loose=frozenset(name for name, found in seen[-1].readings.items() if _loose(found)),
        blank=_blank([comparer.made_marks for comparer in seen]),
        fixed=frozenset(_blank([comparer.marks for comparer in seen])),
        mute=frozenset(seen[-1].mute),
    )


class _Comparer:
    """Holds the tensors of the model against `made`, those of the rewritten graph, on one input.

    `readings` tells for each of the latter which of the former it equals, and how it is read;
    only what was equal `before`, on another input, is compared.
    """

    def __init__(
        self,
        made: Mapping[str, Any],
        before: Mapping[str, Mapping[str, int]] | None,
        rounded: bool,
    ) -> None:
        self.made = {name: one for name, value in made.items() if (one := known(value))}
        self.made_marks = {name: _mark(one) for name, one in self.made.items()}
        self.marks: dict[str, _Mark] = {}
        self.mute: set[str] = set()
        self.readings: dict[str, dict[str, int]] = {name: {} for name in self.made}
        self._before = before
        self._rounded = rounded

    def before(self, node: Node, inputs: Sequence[Value]) -> None:
        """Nothing is known yet."""

    def after(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Compare what a node of the main graph made."""
        if not node.scope.path:
            self.compare(dict(zip(node.outputs, outputs, strict=False)))

    def compare(self, tensors: Mapping[str, Any]) -> None:
        """Note which tensors of the rewritten graph have the values of these."""
        for name, value in tensors.items():
            original = known(value)
            if original is None:
                self.mute.add(name)
                continue
            self.marks[name] = _mark(original)
            for other, one in self.made.items():
                before = 0 if self._before is None else self._before.get(other, {}).get(name)
                found = None if before is None else reading(one, original, self._rounded)
                if found is not None and before is not None:
                    self.readings[other][name] = max(found, before)


def _quantises(node: Node) -> bool:
    return "Quantize" in node.op_type or node.op_type.startswith(("QLinear", "QGemm"))


@dataclass(frozen=True, slots=True)
class _Mark:
    """What tells whether a tensor's values differ from input to input."""

    digest: bytes
    extremes: tuple[float, float]


def _mark(one: Known) -> _Mark:
    return _Mark(hashlib.blake2b(one.array.tobytes(), digest_size=16).digest(), one.extremes)


def _blank(marks: Sequence[Mapping[str, _Mark]]) -> dict[str, str]:
    """Tensors whose values show nothing, with the reason: those that no input changes."""
    found = {}
    for name, first in marks[0].items():
        every = [each[name] for each in marks if name in each]
        low, high = first.extremes
        if any(mark.digest != first.digest for mark in every) or (len(every) == 1 and low != high):
            continue
        found[name] = _ZERO if low == high == 0 else _CONSTANT if low == high else _FIXED
    return found


def _loose(found: Mapping[str, int]) -> bool:
    return min(found.values(), default=0) == ANY_ORDER


def _strongest(found: Mapping[str, int]) -> tuple[str, ...]:
    """The tensors that had to be bent least to be equal, in the order they are computed."""
    best = min(found.values(), default=0)
    return tuple(name for name, how in found.items() if how == best)
