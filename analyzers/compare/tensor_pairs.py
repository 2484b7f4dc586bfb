"""Which tensors of two models are compared, and which of these pairs the values contradict.

Layers are matched by names, modules and places (see `alignment`), and two exports of one network
share few of these. So a pair is a guess. It is a wrong one where its tensors differ and all that
follows from them is the same in both models.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from tracer.analyzers.attribution import constants
from tracer.analyzers.compare.alignment import align, canonical, layer_rows
from tracer.graph.model import Model, Node
from tracer.graph.operators import CONVERSIONS, reads_by_main_node, rounds_values
from tracer.support.tolerance import rounding

_ROUNDING = frozenset(filter(rounds_values, CONVERSIONS))

Agreement = Callable[[str, str], bool]
"""Whether the values of two nodes, by key, are within tolerance."""


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a model: its outputs in order, and the first output of each node by key.

    `nodes` is its node table, with or without times. `makers` are the keys of the nodes that
    compute the outputs, by the names of the outputs. `model` is the graph of these nodes.
    """

    label: str
    nodes: pd.DataFrame = field(repr=False)
    outputs: Sequence[tuple[str, Any]] = field(repr=False)
    by_node: Mapping[str, Any] = field(repr=False)
    makers: Mapping[str, str] = field(default_factory=dict, repr=False)
    model: Model | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TensorPair:
    """The nodes, by key, whose first outputs are compared; they have one kind of type.

    They have one shape, unless it depends on data and the pair `is_certain`.
    `layer` has the keys of all nodes of the layer in the second model. The pair `is_alike` if both
    nodes have one operator, or their tensors one name; it `is_certain` if they have one operator,
    and what they compute and read has the same names.
    """

    first: str
    second: str
    layer: tuple[str, ...]
    is_alike: bool = False
    is_certain: bool = False


def tensor_pairs(first: Values, second: Values, agree: Agreement) -> list[TensorPair]:
    """Returns a pair for each layer of both models, and one for each further tensor of one name.

    Of the tensors of a layer those that agree come first, then those of one name, then those of
    one operator, then the last. A layer that is quantised has a pair for each kind of type. What
    does not depend on the inputs is no result of a layer: an exporter or a runtime folds it, each
    in another way.
    """
    sides = _Tensors(first), _Tensors(second)
    names = _Names(*sides)
    found = list[TensorPair]()
    for ours, theirs in _layers(*sides):
        ranked = [
            ((agree(key, other), *names.rank(key, other)), key, other)
            for key in ours
            for other in theirs
            if names.may_pair(key, other)
        ]
        allowed = [each for each in ranked if each[0][0] or names.allows(*each[1:])]
        kinds = dict[str, TensorPair]()
        # Of equals the first is taken, which is the last of the layer.
        for _, key, other in sorted(allowed, key=lambda each: each[0], reverse=True):
            pair = names.pair(key, other, theirs)
            kinds.setdefault(second.by_node[other].dtype.kind, pair)
        found += kinds.values()
    taken = {pair.first for pair in found}, {pair.second for pair in found}
    for key, other in names.partners.items():
        if key not in taken[0] and other not in taken[1]:
            found.append(names.pair(key, other, [other]))
    places = {key: place for place, key in enumerate(first.nodes["node"])}
    return sorted(found, key=lambda pair: places[pair.first])


class _Tensors:
    """What the graph says of the first outputs of the nodes of a model, by the keys of the nodes.

    `names` are theirs, and `operators` those of the nodes, under one name for all frameworks;
    `operations` are operators with the names of inputs that are not constant. `constants` do not
    depend on the values of inputs; the shapes of `unsized` ones do. `owners` has for conversions to
    or from quantised numbers the node whose result these are. Quantisers alone read `rounded` ones.
    """

    def __init__(self, values: Values) -> None:
        nodes = values.nodes
        self.table, self.values = nodes, values.by_node
        is_sized = nodes["output_shapes"].str.match(r"\w+\[[\d,]*\]").fillna(False)  # of the first
        self.unsized = set(nodes["node"][~is_sized.astype(bool)])
        self.operators = dict(zip(nodes["node"], map(canonical, nodes["op_type"]), strict=True))
        self.names, self.owners = dict[str, str](), dict[str, str]()
        self.constants, self.rounded = set[str](), set[str]()
        self.operations = dict[str, tuple[str, ...]]()
        if values.model is None:
            return
        flow = values.model.dataflow
        main = [node for node in values.model.nodes if not node.scope.path and node.outputs]
        fixed = constants(main)
        for node in main:
            address = (node.scope.path, node.outputs[0])
            self.names[node.key] = node.outputs[0]
            read = (name for name in node.inputs if name not in fixed)
            self.operations[node.key] = (node.qualified_type, *read)
            if node.outputs[0] in fixed:
                self.constants.add(node.key)
            readers = flow.readers.get(address, ())
            types = {reader.op_type for reader in readers} - _ROUNDING
            if readers and not types and address not in flow.results:
                self.rounded.add(node.key)
            maker = flow.makers.get((node.scope.path, node.inputs[0])) if node.inputs else None
            if maker is not None and node.op_type in CONVERSIONS:
                self.owners[node.key] = self.owners.get(maker.key, maker.key)


def _layers(first: _Tensors, second: _Tensors) -> Iterator[tuple[list[str], list[str]]]:
    """Yields the nodes of each layer in both models, by key, the last ones first.

    What rounds or scales the result of a node belongs to its layer.
    """
    sides = (first, second)
    tables = [side.table[~side.table["node"].isin(list(side.owners))] for side in sides]
    followers: tuple[dict[str, list[str]], dict[str, list[str]]] = ({}, {})
    for side, of_owner in zip(sides, followers, strict=True):
        for key, owner in side.owners.items():
            of_owner.setdefault(owner, []).insert(0, key)
    for layer in align([layer_rows(table) for table in tables]):
        ours, theirs = (
            [
                each
                for row in reversed(rows)
                for key in (str(table["node"].iloc[row]),)
                for each in (*of_owner.get(key, ()), key)
            ]
            for table, of_owner, rows in zip(tables, followers, layer.rows, strict=True)
        )
        yield ours, theirs


class _Names:
    """The names of the tensors of two models, and what they tell.

    `partners` are the comparable nodes, by key, whose tensors have one name. Names tell nothing
    where most of these nodes have another operator: they are numbers, and one model has more nodes.
    """

    def __init__(self, first: _Tensors, second: _Tensors) -> None:
        self._sides = (first, second)
        by_name = {name: key for key, name in second.names.items()}
        partners = {
            key: by_name[name]
            for key, name in first.names.items()
            if name in by_name and self.may_pair(key, by_name[name])
        }
        alike = sum(self._have_one_operator(*pair) for pair in partners.items())
        self.partners = partners if 2 * alike >= len(partners) else {}
        self._named = set(self.partners.values())

    def may_pair(self, key: str, other: str) -> bool:
        """Whether both are results of layers that are comparable, before or behind rounding.

        They are arrays of one type or both of floats. They have one shape, or it depends on data
        and one operator computes them, from tensors of the same names.
        """
        first, second = self._sides
        if key in first.constants or other in second.constants:
            return False
        if (key in first.rounded) != (other in second.rounded):
            return False
        a, b = first.values.get(key), second.values.get(other)
        if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
            return False
        is_unsized = key in first.unsized and other in second.unsized
        if a.shape != b.shape and not (is_unsized and self._compute_alike(key, other)):
            return False
        return a.dtype == b.dtype or bool(rounding(a.dtype) and rounding(b.dtype))

    def allows(self, key: str, other: str) -> bool:
        """Whether no other node has the name of one of these; of other shapes names must tell."""
        if key in self.partners:
            return self.partners[key] == other
        first, second = self._sides
        has_one_shape = first.values[key].shape == second.values[other].shape
        return has_one_shape and other not in self._named

    def rank(self, key: str, other: str) -> tuple[bool, bool]:
        """Returns how well two nodes fit: by their name, by their operator."""
        return self.partners.get(key) == other, self._have_one_operator(key, other)

    def pair(self, key: str, other: str, layer: Sequence[str]) -> TensorPair:
        """Returns two nodes as a pair."""
        has_one_name, has_one_operator = self.rank(key, other)
        is_certain = has_one_name and self._compute_alike(key, other)
        return TensorPair(key, other, tuple(layer), has_one_name or has_one_operator, is_certain)

    def _compute_alike(self, key: str, other: str) -> bool:
        """Whether one operator computes tensors of one name from tensors of the same names."""
        first, second = self._sides
        names = first.names.get(key), second.names.get(other)
        return names[0] == names[1] and first.operations.get(key) == second.operations.get(other)

    def _have_one_operator(self, key: str, other: str) -> bool:
        return self._sides[0].operators.get(key) == self._sides[1].operators.get(other)


def without_effect(
    pairs: Sequence[TensorPair], model: Model, agree: Agreement, wrong_outputs: Collection[str]
) -> list[TensorPair]:
    """Returns the pairs from which only tensors follow that agree, up to the outputs.

    `model` is the second one, and `wrong_outputs` are those of its outputs that do not agree.
    """
    agreeing = {
        node.outputs[0]
        for node, pair in _last_first(model, pairs)
        if pair is not None and agree(pair.first, pair.second)
    }
    reads, reached = reads_by_main_node(model), set(wrong_outputs)
    for node, _ in _last_first(model, pairs):
        if any(name in reached and name not in agreeing for name in node.outputs):
            reached.update(reads[node.key])
    return [
        pair
        for node, pair in _last_first(model, pairs)
        if pair is not None and node.outputs[0] not in reached
    ]


def leading_to_others(pairs: Sequence[TensorPair], model: Model) -> list[TensorPair]:
    """Returns the pairs from which others of them follow in the second model, the last first."""
    reads, leading, found = reads_by_main_node(model), set[str](), list[TensorPair]()
    for node, pair in _last_first(model, pairs):
        leads = not leading.isdisjoint(node.outputs)
        if leads and pair is not None:
            found.append(pair)
        if leads or pair is not None:
            leading.update(reads[node.key])
    return found


def _last_first(
    model: Model, pairs: Sequence[TensorPair]
) -> Iterator[tuple[Node, TensorPair | None]]:
    """Yields the nodes of the main graph with the pairs of their first outputs, the last first."""
    of_node = {pair.second: pair for pair in pairs}
    for node in reversed(model.nodes):
        if not node.scope.path:
            yield node, of_node.get(node.key)
