"""Which tensors are parameters: those that depend on no input of the graph.

A weight may be stored (an initializer, a Constant node), generated (ConstantOfShape, as in models
made small for tests) or derived from one (transposed, dequantised): what counts is the tensor it
was made from. It belongs to the node where it meets an activation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import onnx

from analyzers.cost import registry
from analyzers.cost.count import UnknownWorkError
from analyzers.cost.operation import Address, Facts, Operand, Operation
from tracer.graph import tensor_type
from tracer.graph.model import Model, Node, Scope

_RANDOM = frozenset(
    (
        *("Bernoulli", "Multinomial"),
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    )
)
_INDEX_TYPES = ("int64", "bool", "string")


@dataclass(frozen=True, slots=True)
class Weight:
    """A stored tensor: number of weights, bytes as stored; None is not known."""

    size: int | None
    nbytes: int | None
    dtype: str | None
    rank: int | None


Weights = dict[Address, Weight]


def owned(model: Model, facts: Facts, multiplying: Collection[str]) -> dict[str, Weights]:
    """The parameters of every node, by its key; one weight may belong to several nodes.

    `multiplying` are the keys of the nodes with MACs, whose weights may be of any type.
    """
    made = _stored(model, facts)
    found: dict[str, Weights] = {}
    for node in model.nodes:
        sources = [(i, _resolve(name, node.scope, made)) for i, name in _given(node)]
        if _is_constant(node, [source for _, source in sources]):
            found[node.key] = {}
            _derive(node, sources, made, facts)
        else:
            found[node.key] = _parameters(node, sources, facts, node.key in multiplying)
    return found


def constants(model: Model, facts: Facts) -> frozenset[Address]:
    """Every tensor that depends on no input: weights, and what is made of them alone."""
    made = _stored(model, facts)
    for node in model.nodes:
        sources = [(i, _resolve(name, node.scope, made)) for i, name in _given(node)]
        if _is_constant(node, [source for _, source in sources]):
            _derive(node, sources, made, facts)
    return frozenset(made)


def size(weights: Mapping[Address, Weight]) -> int | None:
    """Number of parameters, None where a size is not known."""
    return _sum(weight.size for weight in weights.values())


def nbytes(weights: Mapping[Address, Weight]) -> int | None:
    """Bytes of the parameters as they are stored, None where a size is not known."""
    return _sum(weight.nbytes for weight in weights.values())


def _stored(model: Model, facts: Facts) -> dict[Address, Weights]:
    """The initializers of every graph, each its own source."""
    made: dict[Address, Weights] = {}
    for scope in model.scopes:
        for weight in scope.graph.initializer:
            address = (scope.path, weight.name)
            made[address] = {address: _weight(facts.operand(weight.name, scope))}
        for sparse in scope.graph.sparse_initializer:
            address = (scope.path, sparse.values.name)
            made[address] = {address: _sparse(sparse)}
    return made


def _sparse(proto: onnx.SparseTensorProto) -> Weight:
    """As many weights as are stored; their indices are bytes too."""
    values, indices = (
        tensor_type.from_initializer(proto.values),
        tensor_type.from_initializer(proto.indices),
    )
    parts = (values.nbytes, indices.nbytes)
    return Weight(values.size, _sum(parts), values.dtype, len(proto.dims))


def _given(node: Node) -> Iterator[tuple[int, str]]:
    return ((index, name) for index, name in enumerate(node.proto.input) if name)


def _resolve(name: str, scope: Scope, made: Mapping[Address, Weights]) -> Weights | None:
    """The sources of a constant, None for what depends on an input."""
    for outer in scope.outward():
        found = made.get((outer.path, name))
        if found is not None:
            return found
    return None


def _is_constant(node: Node, sources: list[Weights | None]) -> bool:
    if node.op_type in _RANDOM or any(source is None for source in sources):
        return False
    return not any(a.HasField("g") or a.graphs for a in node.proto.attribute)


def _derive(
    node: Node,
    sources: list[tuple[int, Weights | None]],
    made: dict[Address, Weights],
    facts: Facts,
) -> None:
    """Constants made from weights stand for them; made from settings alone, for themselves."""
    settings = _settings(node)
    data: Weights = {}
    for index, source in sources:
        if index not in settings:
            data |= source or {}
    for name in filter(None, node.proto.output):
        address = (node.scope.path, name)
        made[address] = data or {address: _weight(facts.operand(name, node.scope))}


def _parameters(
    node: Node,
    sources: list[tuple[int, Weights | None]],
    facts: Facts,
    multiplies: bool,
) -> Weights:
    rule = registry.find(node.domain, node.op_type)
    settings = _settings(node)
    found: Weights = {}
    for index, source in sources:
        if source is None or index in settings:
            continue
        if rule is not None and index in rule.packed:
            count = _unpacked(rule.packed[index], Operation(node, facts))
            found |= {address: replace(weight, size=count) for address, weight in source.items()}
            continue
        found |= {a: w for a, w in source.items() if _is_parameter(w, multiplies)}
    return found


def _unpacked(number: Callable[[Operation], int], op: Operation) -> int | None:
    try:
        return number(op)
    except UnknownWorkError:
        return None


def _settings(node: Node) -> frozenset[int]:
    rule = registry.find(node.domain, node.op_type)
    return frozenset() if rule is None else rule.settings


def _is_parameter(weight: Weight, multiplies: bool) -> bool:
    """A scalar is a literal of the code; an index or a mask is a parameter of no activation."""
    return weight.rank != 0 and (multiplies or weight.dtype not in _INDEX_TYPES)


def _weight(operand: Operand) -> Weight:
    rank = None if operand.known_shape is None else len(operand.known_shape)
    return Weight(operand.known_size, operand.nbytes, operand.dtype, rank)


def _sum(parts: Iterable[int | None]) -> int | None:
    known = 0
    for part in parts:
        if part is None:
            return None
        known += part
    return known
