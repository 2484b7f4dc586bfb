"""Find the parameters of each node: constant tensors that it combines with an activation.

A weight may be stored (an initializer, a Constant node), generated (ConstantOfShape, as in small
test models) or derived (transposed, dequantised). A derived tensor counts as its source.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import onnx

from analyzers.cost import registry
from analyzers.cost.count import UnknownWorkError
from analyzers.cost.operation import Address, Facts, Operand, Operation
from analyzers.cost.traffic import known_sum
from tracer.graph import tensor_type
from tracer.graph.model import Model, Node, Scope

_RANDOM = frozenset({"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike",
                     "RandomUniform", "RandomUniformLike"})  # fmt: skip
_INDEX_TYPES = ("int64", "bool", "string")


@dataclass(frozen=True, slots=True)
class Weight:
    """A stored tensor: number of weights, bytes as stored; None is unknown."""

    size: int | None
    nbytes: int | None
    dtype: str | None
    rank: int | None


Weights = dict[Address, Weight]
Sources = list[tuple[int, Weights | None]]
"""Inputs of a node by position, with the weights each is derived from; None depends on an input."""


def owned(model: Model, facts: Facts, multiplying: Collection[str]) -> dict[str, Weights]:
    """Returns the parameters of every node, by its key; one weight may belong to several nodes.

    `multiplying` has the keys of nodes with MACs; their weights may have any type.
    """
    _, inputs = _sources(model, facts)
    return {
        node.key: _parameters(node, inputs[node.key], facts, node.key in multiplying)
        for node in model.nodes
    }


def constants(model: Model, facts: Facts) -> frozenset[Address]:
    """Returns the tensors that depend on no input: weights and tensors computed from them alone."""
    origins, _ = _sources(model, facts)
    return frozenset(origins)


def size(weights: Mapping[Address, Weight]) -> int | None:
    """Returns the number of parameters, None if a size is unknown."""
    return known_sum(weight.size for weight in weights.values())


def nbytes(weights: Mapping[Address, Weight]) -> int | None:
    """Returns bytes of the parameters as they are stored, None if a size is unknown."""
    return known_sum(weight.nbytes for weight in weights.values())


def _sources(model: Model, facts: Facts) -> tuple[dict[Address, Weights], dict[str, Sources]]:
    """Returns the sources of every constant tensor, and of the inputs of every node, by its key.

    A node that computes a constant has none.
    """
    origins = _stored(model, facts)
    inputs: dict[str, Sources] = {}
    for node in model.nodes:
        sources = [(i, _resolve(name, node.scope, origins)) for i, name in _numbered_inputs(node)]
        constant = _is_constant(node, [source for _, source in sources])
        inputs[node.key] = [] if constant else sources
        if constant:
            _derive(node, sources, origins, facts)
    return origins, inputs


def _stored(model: Model, facts: Facts) -> dict[Address, Weights]:
    """Returns the initializers of every graph, each its own source."""
    origins: dict[Address, Weights] = {}
    for scope in model.scopes:
        for weight in scope.graph.initializer:
            address = (scope.path, weight.name)
            origins[address] = {address: _weight(facts.operand(weight.name, scope))}
        for sparse in scope.graph.sparse_initializer:
            address = (scope.path, sparse.values.name)
            origins[address] = {address: _sparse(sparse)}
    return origins


def _sparse(proto: onnx.SparseTensorProto) -> Weight:
    """Returns the stored weights; the bytes include their indices."""
    values, indices = map(tensor_type.from_initializer, (proto.values, proto.indices))
    nbytes = known_sum((values.nbytes, indices.nbytes))
    return Weight(values.size, nbytes, values.dtype, len(proto.dims))


def _numbered_inputs(node: Node) -> Iterator[tuple[int, str]]:
    return ((index, name) for index, name in enumerate(node.proto.input) if name)


def _resolve(name: str, scope: Scope, origins: Mapping[Address, Weights]) -> Weights | None:
    """Returns the sources of a constant, None if it depends on an input."""
    for outer in scope.outward():
        sources = origins.get((outer.path, name))
        if sources is not None:
            return sources
    return None


def _is_constant(node: Node, sources: list[Weights | None]) -> bool:
    if node.op_type in _RANDOM or any(source is None for source in sources):
        return False
    return not any(a.HasField("g") or a.graphs for a in node.proto.attribute)


def _derive(node: Node, sources: Sources, origins: dict[Address, Weights], facts: Facts) -> None:
    """Adds the outputs of a constant node; their sources are its weights, else themselves."""
    settings = _settings(node)
    data: Weights = {}
    for index, source in sources:
        if index not in settings:
            data |= source or {}
    for name in filter(None, node.proto.output):
        address = (node.scope.path, name)
        origins[address] = data or {address: _weight(facts.operand(name, node.scope))}


def _parameters(node: Node, sources: Sources, facts: Facts, multiplies: bool) -> Weights:
    rule = registry.find(node.domain, node.op_type)
    settings = _settings(node)
    parameters: Weights = {}
    for index, source in sources:
        if source is None or index in settings:
            continue
        if rule is not None and index in rule.packed:
            count = _unpacked(rule.packed[index], Operation(node, facts))
            parameters |= {a: replace(weight, size=count) for a, weight in source.items()}
            continue
        parameters |= {a: w for a, w in source.items() if _is_parameter(w, multiplies)}
    return parameters


def _unpacked(number: Callable[[Operation], int], op: Operation) -> int | None:
    try:
        return number(op)
    except UnknownWorkError:
        return None


def _settings(node: Node) -> frozenset[int]:
    rule = registry.find(node.domain, node.op_type)
    return frozenset() if rule is None else rule.settings


def _is_parameter(weight: Weight, multiplies: bool) -> bool:
    """Returns whether it counts: a scalar is a literal, and an index or a mask is no weight."""
    return weight.rank != 0 and (multiplies or weight.dtype not in _INDEX_TYPES)


def _weight(operand: Operand) -> Weight:
    rank = None if operand.known_shape is None else len(operand.known_shape)
    return Weight(operand.known_size, operand.nbytes, operand.dtype, rank)
