"""Compares each tensor of the optimised graph with each tensor of the model, by its values.

The reference interpreter computes the model, node by node and without rewriting. Each tensor is
compared as soon as it is computed, so that only the tensors of the optimised graph are all held.

Tensors of the same values are one kind. Kinds are compared instead of tensors, since a graph may
have thousands of tensors of one kind.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tracer.accumulators.engine.tensor_scales import TensorScales
from tracer.containment.activity import Progress
from tracer.errors import TracerError
from tracer.executors.onnxruntime import all_outputs, kernel_nodes
from tracer.executors.settings import OrtSettings
from tracer.graph import stored_weights
from tracer.graph.model import Model, Node
from tracer.graph.operators import multiplies_packed_integers, rounds_values
from tracer.inputs.feedset import Feeds
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.values import Value
from tracer.limits import Limits
from tracer.records import tensor_match
from tracer.records.tensor_match import Evidence, NumericTensor, match, numeric_tensor

_MAIN = ""
"""The path of the main graph."""

_ZERO = "is 0 everywhere"
_CONSTANT = "is one value everywhere, on every input"
_FIXED = "is the same on every input"


def evidence(
    model: Model,
    saved: Path,
    inputs: Sequence[Feeds],
    settings: OrtSettings,
    limits: Limits,
    progress: Progress,
) -> Evidence:
    """Returns which tensors of `model` equal each tensor of the graph at `saved` on all `inputs`.

    `settings` have the threads, and libraries of operators, which onnxruntime computes on both
    sides. Raises the errors of onnxruntime and of the interpreter.
    """
    proto = kernel_nodes.saved_proto(saved)
    graph = Model.of(proto, saved)
    optimized = _tensors_of_optimized(model, graph, inputs, settings)
    register = settings.register
    interpreter = Interpreter(
        model, limits=limits, threads=settings.threads or None, progress=progress,
        fallback=all_outputs.NodeKernels(register) if register else None, late_kernels=True,
    )  # fmt: skip
    rounded = any(rounds_values(node.op_type) for node in model.nodes)
    rounded |= any(map(multiplies_packed_integers, graph.nodes))  # of weights of few bits
    comparers: dict[str, list[_Comparer]] = defaultdict(list)
    for index, feeds in enumerate(inputs):
        progress(index, len(inputs), "comparing values")
        of_graph = {
            path: _Comparer(tensors, comparers[path][-1] if comparers[path] else None, rounded)
            for path, tensors in next(optimized).items()
        }
        of_graph[_MAIN].compare(feeds)
        interpreter.with_observers(_Observer(of_graph, model)).run(None, feeds)
        for path, comparer in of_graph.items():
            comparer.tensors.clear()
            comparers[path].append(comparer)
    found: dict[str, Evidence] = {}
    always = [(path, each) for path, each in comparers.items() if len(each) == len(inputs)]
    for path, every in always:
        equal, reordered = every[-1].strongest()
        found[path] = Evidence(
            inputs=len(every),
            equal=equal,
            reordered=reordered,
            uninformative=_uninformative([comparer.optimized_marks for comparer in every]),
            constant=frozenset(_uninformative([comparer.model_marks for comparer in every])),
            not_numeric=frozenset(every[-1].not_numeric),
        )
    main = found.pop(_MAIN)
    lost = [value.name for value in model.graph.output if main.equal.get(value.name) == ()]
    if lost:
        with suppress(TracerError):  # it is less known, and the rest is known as before
            names = {value.name for value in model.inputs}
            sides = (
                all_outputs.runner_of_saved(saved, names, settings)(inputs[-1]),
                all_outputs.tensors(model, inputs[-1], settings),
                dict(zip(lost, interpreter.run(lost, inputs[-1]), strict=True)),
            )
            main = replace(main, wrong=frozenset(_wrong_outputs(model, lost, sides, rounded)))
    return replace(main, bodies=found)


def _wrong_outputs(
    model: Model, names: Sequence[str], sides: Sequence[Mapping[str, Any]], rounded: bool
) -> Iterator[str]:
    """Yields outputs of the first side that clearly differ from those of the other two."""
    scales = TensorScales(model)
    for name in names:
        ours, unfused, theirs = (numeric_tensor(side[name]) for side in sides)
        if ours is None or unfused is None or theirs is None:
            continue
        scale = scales.of(name, model.scopes[0])
        step = 0.0 if scale is None else float(scale.step.max())
        is_wrong = tensor_match.differs_clearly(ours, theirs, rounded, step)
        if is_wrong and match(unfused, theirs, rounded) is not None:
            yield name


def _tensors_of_optimized(
    model: Model, graph: Model, inputs: Sequence[Feeds], settings: OrtSettings
) -> Iterator[Mapping[str, Mapping[str, Any]]]:
    """Yields the tensors of a saved graph, and of its bodies, on each of `inputs`, by path.

    Of a large model, all are computed first, so that its session is gone when the interpreter runs.
    """
    names = {value.name for value in model.inputs}
    assert graph.path is not None
    run = all_outputs.runner_of_saved(graph.path, names, settings)

    def tensors(feeds: Feeds) -> Mapping[str, Mapping[str, Any]]:
        main = {**feeds, **run(feeds)}
        return {_MAIN: main, **dict(all_outputs.first_runs(model, graph, main, settings))}

    return iter([*map(tensors, inputs)]) if stored_weights.is_large(model) else map(tensors, inputs)


class _Observer:
    """Hands the tensors of the model to the comparer of their graph, as they are first computed.

    Stored tensors are not compared.
    """

    def __init__(self, comparers: Mapping[str, _Comparer], model: Model) -> None:
        self._comparers = comparers
        self._weights = {w.name for scope in model.scopes for w in scope.graph.initializer}
        self._ran: set[str] = set()

    def before(self, node: Node, inputs: Sequence[Value]) -> None:
        """Does nothing: the outputs of `node` are not computed yet."""

    def after(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Compares the outputs of a node; in a body also what it reads from outside."""
        comparer = self._comparers.get(node.scope.path)
        if comparer is None or node.key in self._ran:
            return
        self._ran.add(node.key)
        if node.scope.path:
            read = zip(node.inputs, inputs, strict=False)
            known = comparer.model_kinds
            comparer.compare(
                {n: v for n, v in read if n and n not in known and n not in self._weights}
            )
        comparer.compare(dict(zip(node.outputs, outputs, strict=False)))


class _Comparer:
    """Compares the tensors of a graph of the model with the `optimized` tensors, on one input.

    `tensors` has one of the optimised tensors of each kind. Only kinds that were equal on the
    `previous` input are compared. `readings` has, for each kind of the optimised graph, the equal
    kinds of the model, and how each is read.
    """

    def __init__(
        self, optimized: Mapping[str, Any], previous: _Comparer | None, rounded: bool
    ) -> None:
        self._previous = previous
        self._rounded = rounded
        self.optimized_marks: dict[str, _Mark] = {}
        self.model_marks: dict[str, _Mark] = {}
        self.not_numeric: set[str] = set()
        self.optimized_kinds: dict[str, _Kind] = {}
        self.model_kinds: dict[str, _Kind] = {}
        self.tensors: dict[_Kind, NumericTensor] = {}
        self._compared: set[_Kind] = set()
        before = {} if previous is None else previous.optimized_kinds
        for name, value in optimized.items():
            tensor = numeric_tensor(value)
            if tensor is not None:
                mark = self.optimized_marks[name] = _mark(tensor)
                kind = self.optimized_kinds[name] = _kind(before.get(name), tensor, mark)
                self.tensors.setdefault(kind, tensor)
        self._candidates = tensor_match.Candidates(self.tensors, rounded)
        self.readings: dict[_Kind, dict[_Kind, int]] = {kind: {} for kind in self.tensors}

    def compare(self, tensors: Mapping[str, Any]) -> None:
        """Records which tensors of the optimised graph equal these tensors of the model."""
        before = {} if self._previous is None else self._previous.model_kinds
        for name, value in tensors.items():
            original = numeric_tensor(value)
            if original is None:
                self.not_numeric.add(name)
                continue
            mark = self.model_marks[name] = _mark(original)
            kind = self.model_kinds[name] = _kind(before.get(name), original, mark)
            if kind in self._compared:
                continue
            self._compared.add(kind)
            for other in self._candidates.near(original):
                previous = self._reading_before(other, kind)
                if previous is None:
                    continue
                reading = match(self.tensors[other], original, self._rounded)
                if reading is not None:
                    self.readings[other][kind] = max(reading, previous)

    def strongest(self) -> tuple[dict[str, tuple[str, ...]], frozenset[str]]:
        """Returns `equal` and `reordered` of the evidence."""
        places = {name: place for place, name in enumerate(self.model_kinds)}
        members: dict[_Kind, list[str]] = defaultdict(list)
        for name, kind in self.model_kinds.items():
            members[kind].append(name)
        equal: dict[_Kind, tuple[str, ...]] = {}
        reordered: set[_Kind] = set()
        for kind, readings in self.readings.items():
            best = min(readings.values(), default=0)
            names = [n for other, how in readings.items() if how == best for n in members[other]]
            equal[kind] = tuple(sorted(names, key=places.__getitem__))
            if best == tensor_match.ANY_ORDER:
                reordered.add(kind)
        return (
            {name: equal[kind] for name, kind in self.optimized_kinds.items()},
            frozenset(n for n, kind in self.optimized_kinds.items() if kind in reordered),
        )

    def _reading_before(self, other: _Kind, kind: _Kind) -> int | None:
        """Returns how two kinds were read on the inputs before; None where they differed."""
        if self._previous is None:
            return 0
        if other.before is None or kind.before is None:
            return None
        return self._previous.readings[other.before].get(kind.before)


@dataclass(frozen=True, slots=True)
class _Mark:
    """A digest of a tensor's values, which differs where the values differ, and their range."""

    digest: bytes
    extremes: tuple[float, float]
    zero: int


def _mark(tensor: NumericTensor) -> _Mark:
    digest = hashlib.blake2b(tensor.array.tobytes(), digest_size=16).digest()
    return _Mark(digest, tensor.extremes, tensor.zero)


@dataclass(frozen=True, slots=True)
class _Kind:
    """What tensors have in common that nothing can tell apart, also on the inputs before."""

    before: _Kind | None
    dtype: str
    shape: tuple[int, ...]
    digest: bytes


def _kind(before: _Kind | None, tensor: NumericTensor, mark: _Mark) -> _Kind:
    return _Kind(before, tensor.array.dtype.str, tensor.array.shape, mark.digest)


def _uninformative(marks: Sequence[Mapping[str, _Mark]]) -> dict[str, str]:
    """Returns the tensors whose values are the same on every input, with the reason."""
    reasons = {}
    for name, first in marks[0].items():
        every = [each[name] for each in marks if name in each]
        low, high = first.extremes
        if any(mark.digest != first.digest for mark in every) or (len(every) == 1 and low != high):
            continue
        reasons[name] = _ZERO if low == high == first.zero else _CONSTANT if low == high else _FIXED
    return reasons
