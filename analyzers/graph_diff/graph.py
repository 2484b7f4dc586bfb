"""A graph as `diff` sees it: its tensors in each run, and nodes with what they read and hold."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tracer.accumulators.engine.value_ranges import StoredValues
from tracer.analyzers.attribution import constants
from tracer.graph.model import Model
from tracer.graph.operators import returns_integers
from tracer.interpreter.operators import evaluated
from tracer.support.types import Array

_COMMUTATIVE = frozenset(("Add", "And", "Equal", "Max", "Mean", "Min", "Mul", "Or", "Sum", "Xor"))
_OF_SHAPES = ("Shape", "Size")
_FOLDED = frozenset(
    ("Add", "BatchNormalization", "Clip", "DequantizeLinear", "Div", "Dropout", "Identity", "Mul",
     "QuantizeLinear", "Relu", "Sub")
)  # fmt: skip
"""Operators of one tensor that quantisation adds, or that become a part of the node before."""
_TELLING = 4
"""The least elements of a weight that tells nodes apart."""
_ALIKE = 0.5
"""The least cosine of weights that are equal but for rounding: 0.75 and more; others have 0.05."""
_SAMPLED, _TINY = 1 << 16, 1e-30
"""The most elements that are compared, and what keeps zeros from division by zero."""


class Graph:
    """The main graph of a model, and its tensors on each of several inputs.

    `inputs` are in the order of those of the other graph. Nodes that depend on no input are no
    `nodes`: they are constants. `kinds` has their operators. If one of both graphs `is_quantised`,
    these are the float forms, and nodes that quantisation adds or absorbs are `folded`, by the
    tensor before them, which `origins` has by the tensors behind them. `digests` are those of
    constants so far; graphs of the same bytes may share them.
    """

    def __init__(
        self, model: Model, tensors: Sequence[Mapping[str, Any]], inputs: Sequence[str],
        is_quantised: bool = False,
    ) -> None:  # fmt: skip
        self.model, self.tensors, self.inputs = model, tensors, inputs
        self.is_quantised = is_quantised
        main = [node for node in model.nodes if node.scope.path == model.root]
        self.constant = constants(main)
        self.nodes = [node for node in main if not self.constant.issuperset(node.outputs)]
        self.kinds = [node.qualified_type for node in self.nodes]
        if is_quantised:  # an operator has its name in floats; Gemm stands for MatMul, too
            names = [node.op_type.removeprefix("QLinear") for node in self.nodes]
            alike = ("QGemm", "MatMul", "MatMulNBits")
            self.kinds = ["Gemm" if name in alike else name for name in names]
        self.makers = {name: n for n, each in enumerate(self.nodes) for name in each.outputs}
        self._stored = StoredValues(model)
        self._anchors: dict[int, tuple[Any, ...]] = {}
        self.digests: dict[str, int] = {}
        self.origins: dict[str, str] = {}
        self.folded: dict[str, list[int]] = defaultdict(list)
        self.readers: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for number, kind in enumerate(self.kinds):
            reads = [*self.reads(number)]
            if is_quantised and kind in _FOLDED and len(reads) == 1:
                self.origins[self.nodes[number].outputs[0]] = reads[0][1]
                self.folded[reads[0][1]].append(number)
            else:
                for slot, name in reads:
                    self.readers[name].append((number, slot))
        self.ends = [value.name for value in model.graph.output]
        self.results = [self.origins.get(name, name) for name in self.ends]

    def slots(self, number: int) -> Iterator[tuple[int, str]]:
        """Yields the slots, of the float form, and tensors that depend on an input; 0 if alike."""
        names: Iterable[str] = self.nodes[number].inputs
        if self.is_quantised and returns_integers(self.nodes[number].op_type):
            ranks = {n: getattr(self.stored(n), "ndim", 0) for n in names}
            names = [n for n in names if ranks[n] > 1 or n not in self.constant]
        for slot, name in enumerate(names):
            if name and name not in self.constant:
                yield 0 if self.kinds[number] in _COMMUTATIVE else slot, name

    def reads(self, number: int) -> Iterator[tuple[int, str]]:
        """Yields what `slots` does, with the origins of tensors behind folded nodes."""
        yield from ((slot, self.origins.get(name, name)) for slot, name in self.slots(number))

    def leaving(self, group: Sequence[int]) -> list[str]:
        """Returns the outputs of nodes that others read, or that are results of the model."""
        names = [name for number in group for name in self.nodes[number].outputs if name]
        read = (({n for n, _ in self.readers.get(name, ())} - {*group}) for name in names)
        return [n for n, others in zip(names, read, strict=True) if others or n in self.results]

    def following(self, number: int) -> list[str]:
        """Returns the operators that read the results of a node, "" for the model's own results."""
        names = self.nodes[number].outputs
        readers = (n for name in names for n, _ in self.readers.get(name, ()))
        ends = ["" for name in names if name in self.results]
        return sorted([*ends, *(self.kinds[n] for n in readers)])

    def sources(self, name: str) -> list[int]:
        """Returns hashes of the weights behind a constant that follows from shapes, sorted.

        There are none behind a constant that does not: its value tells all.
        """
        scope, found = self.model.scopes[0], dict[str, int]()
        names, seen = [name] if self._stored.value(name, scope) is None else [], set[str]()
        while names:
            each = names.pop()
            if each in seen:
                continue
            seen.add(each)
            maker = self.model.dataflow.makers.get((self.model.root, each))
            if self._stored.tensor(each, scope) is not None:
                found[each] = self.digest(each)
            elif maker is not None and maker.op_type not in _OF_SHAPES:
                names += filter(None, maker.inputs)
        return sorted(found.values())

    def weights(self, number: int) -> dict[int, str]:
        """Returns the constants that a node reads, by slot; by order where slots are alike."""
        node = self.nodes[number]
        found = {slot: name for slot, name in enumerate(node.inputs) if name in self.constant}
        return dict(enumerate(found.values())) if node.op_type in _COMMUTATIVE else found

    def stored(self, name: str) -> Array | None:
        """Returns the value of a constant, in the first run if it follows from shapes."""
        found = self._stored.value(name, self.model.scopes[0])
        return self.tensors[0].get(name) if found is None else found

    def digest(self, name: str) -> int:
        """Returns a hash of the bytes of a constant; of all that are not known, the same."""
        if name not in self.digests:
            self.digests[name] = hash(np.asarray(self.stored(name)).tobytes())
        return self.digests[name]

    def anchor(self, number: int) -> tuple[Any, ...]:
        """The operator of a node and its weights; () where no weight tells it apart."""
        if number not in self._anchors:
            names = self.weights(number).values()
            known = [(n, x) for n in names if (x := self.stored(n)) is not None]
            digests = (self.digest(n) for n, _ in known)
            is_told = any(np.size(x) >= _TELLING for _, x in known)
            self._anchors[number] = (self.kinds[number], *digests) if is_told else ()
        return self._anchors[number]


def alike_weights(first: Graph, second: Graph) -> Mapping[int, Sequence[int]]:
    """Returns for nodes of the second graph those of the first with the same weights.

    Of quantised graphs the greatest of each, but for rounding and for a factor of each channel:
    BatchNormalization may be folded into it, and the scale be left out.
    """
    sides = [defaultdict[tuple[Any, ...], dict[int, Any]](dict) for _ in range(2)]
    for side, graph in zip(sides, (first, second), strict=True):
        for number, kind in enumerate(graph.kinds):
            stored: Sequence[Any] = [*map(graph.stored, graph.weights(number).values())]
            node = graph.nodes[number]
            if node.op_type == "MatMulNBits" and graph.is_quantised:  # packed: the product with 1
                depth = next(each.i for each in node.proto.attribute if each.name == "K")
                stored = evaluated(node, 1, [np.eye(depth, dtype=np.float32), *stored])
            told = [x for x in stored if x is not None and x.ndim > 1 and x.dtype.kind in "fiu"]
            weight = max(told, key=np.size, default=None) if graph.is_quantised else None
            if weight is not None and weight.size and np.isfinite(weight).all():
                side[kind, weight.shape][number] = [_direction(weight, axis) for axis in (0, -1)]
            elif stored and (graph.is_quantised or graph.anchor(number)):
                digests = map(graph.digest, graph.weights(number).values())
                side[kind, *digests][number] = [[1.0]]
    found = dict[int, Sequence[int]]()
    for key in sides[0].keys() & sides[1].keys():
        ours, theirs = (np.array([*side[key].values()]) for side in sides)
        cosines = (theirs.swapaxes(0, 1) @ ours.transpose(1, 2, 0)).max(axis=0)
        for number, row in zip(sides[1][key], cosines, strict=True):
            found[number] = [n for n, x in zip(sides[0][key], row, strict=True) if x >= _ALIKE]
    return found


def _direction(weight: Array, axis: int) -> Array:
    """Returns the slices of an axis in a row: of one length, about 0, their greatest above it."""
    slices = np.moveaxis(weight, axis, 0).astype(np.float64).reshape(weight.shape[axis], -1)
    slices -= slices.mean(axis=1, keepdims=True)
    tops = np.take_along_axis(slices, np.abs(slices).argmax(axis=1, keepdims=True), 1)
    slices /= np.copysign(np.linalg.norm(slices, axis=1, keepdims=True) + _TINY, tops)
    row = slices.ravel()[:: -(-slices.size // _SAMPLED)] * (slices.shape[1] >= _TELLING)
    return row / (np.linalg.norm(row) + _TINY)
