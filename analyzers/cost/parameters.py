"""Find the parameters of each node: constant tensors that it combines with an activation.

A weight may be stored (an initializer, a Constant node), generated (ConstantOfShape, as in small
test models) or derived (transposed, dequantised). A derived tensor counts as its source, at the
bits of its numbers where a graph quantises it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx

from analyzers.cost import registry
from analyzers.cost.operation import Address, Facts, Operand, Operation
from analyzers.cost.quantized_types import QuantizedTypes
from analyzers.cost.traffic import known_sum
from tracer.graph import qonnx, tensor_type
from tracer.graph.model import Model, Node, Scope, bodies
from tracer.graph.randomness import draws

_INDEX_TYPES = ("int64", "bool", "string")
_QUANTIZING = qonnx.QUANTIZERS | {"QuantizeLinear", "Clip", "DequantizeLinear"}
"""Operators whose result has fewer bits than the weight has as it is stored."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A stored tensor: number of weights, bytes at their width; None is unknown."""

    size: int | None
    nbytes: int | None
    dtype: str | None
    rank: int | None

    def narrowed(self, bits: int | None) -> Weight:
        """Returns the weight with numbers of so many bits, if they are fewer than its own."""
        if bits is None or self.size is None or self.nbytes is None:
            return self
        return replace(self, nbytes=min(self.nbytes, -(-self.size * bits // 8)))


Weights = dict[Address, Weight]

_MOST_SOURCES = 100
"""A constant tensor from more weights counts as itself, so that long chains of constants, each with
a weight of its own, take linear time and memory."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The weights from which tensors are derived.

    `of_tensors` has those of every constant tensor; `of_inputs` those of the constant inputs of
    each node, by its key, with their positions. A node that computes a constant has none.
    """

    of_tensors: Mapping[Address, Weights]
    of_inputs: Mapping[str, Sequence[tuple[int, Weights]]]


def owned(
    operations: Iterable[Operation], sources: Sources, multiplying: Collection[str]
) -> dict[str, Weights]:
    """Returns the parameters of every node, by its key; one weight may belong to several nodes.

    `multiplying` has the keys of nodes with MACs; their weights may have any type.
    """
    return {
        op.node.key: _parameters(op, found, op.node.key in multiplying)
        if (found := sources.of_inputs[op.node.key])
        else {}
        for op in operations
    }


def of_idle(weights: Mapping[str, Weights], idle: Collection[str]) -> tuple[str, ...]:
    """Returns a note where parameters belong to nodes that do not run, by key, and to no others."""
    used = {weight for key, owned in weights.items() if key not in idle for weight in owned}
    unused = {
        address: weight
        for key in idle
        for address, weight in weights[key].items()
        if address not in used
    }
    if not unused:
        return ()
    count = size(unused)
    some = "some" if count is None else f"{count:,}"
    return (f"parameters are those of the whole model; {some} are of branches that do not run",)


def size(weights: Mapping[Address, Weight]) -> int | None:
    """Returns the number of parameters, None if a size is unknown."""
    return known_sum(weight.size for weight in weights.values())


def nbytes(weights: Mapping[Address, Weight]) -> int | None:
    """Returns bytes of the parameters at their width, None if a size is unknown."""
    return known_sum(weight.nbytes for weight in weights.values())


def united(parts: Iterable[Weights]) -> Weights:
    """Returns the weights of all parts; one of several widths has the greatest of them."""
    union: Weights = {}
    for part in parts:
        for address, weight in part.items():
            other = union.setdefault(address, weight)
            if (weight.nbytes or 0) > (other.nbytes or 0):
                union[address] = weight
    return union


def sources(model: Model, facts: Facts, types: QuantizedTypes) -> Sources:
    """Returns the sources of every constant tensor, and of the inputs of every node."""
    origins = _stored(model, facts)
    inputs: dict[str, Sequence[tuple[int, Weights]]] = {}
    for node in model.nodes:
        scope = node.scope
        every = [(i, _resolve(name, scope, origins)) for i, name in enumerate(node.inputs) if name]
        known = [(i, source) for i, source in every if source is not None]
        is_constant = len(known) == len(every) and _is_repeatable(node)
        inputs[node.key] = () if is_constant else known
        if is_constant:
            _derive(node, known, origins, facts, types)
    return Sources(origins, inputs)


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


def _resolve(name: str, scope: Scope, origins: Mapping[Address, Weights]) -> Weights | None:
    """Returns the sources of a constant, None if it depends on an input."""
    outer: Scope | None = scope
    while outer is not None:
        sources = origins.get((outer.path, name))
        if sources is not None:
            return sources
        outer = outer.parent
    return None


def _is_repeatable(node: Node) -> bool:
    """Returns whether the outputs of a node depend on its inputs alone."""
    return not draws(node.op_type) and not bodies(node.proto)


def _derive(
    node: Node,
    sources: Sequence[tuple[int, Weights]],
    origins: dict[Address, Weights],
    facts: Facts,
    types: QuantizedTypes,
) -> None:
    """Adds the outputs of a constant node; their sources are its weights, else themselves."""
    settings = _settings(node)
    data: Weights = {}
    for index, source in sources:
        if index not in settings and len(data) <= _MOST_SOURCES:
            data = united((data, source))
    if len(data) > _MOST_SOURCES:
        data = {}
    if node.op_type in _QUANTIZING:
        bits = types.bits(node.outputs[0], node.scope)
        data = {address: weight.narrowed(bits) for address, weight in data.items()}
    for name in filter(None, node.outputs):
        address = (node.scope.path, name)
        origins[address] = data or {address: _weight(facts.operand(name, node.scope))}


def _parameters(op: Operation, sources: Sequence[tuple[int, Weights]], multiplies: bool) -> Weights:
    node = op.node
    rule = registry.find(node.domain, node.op_type)
    settings = _settings(node)
    parts: list[Weights] = []
    for index, source in sources:
        if index in settings:
            continue
        if rule is not None and index in rule.packed:
            count = _unpacked(rule.packed[index], op)
            parts.append({a: replace(weight, size=count) for a, weight in source.items()})
            continue
        parts.append({a: w for a, w in source.items() if _is_parameter(w, multiplies)})
    return united(parts)


def _unpacked(number: Callable[[Operation], int], op: Operation) -> int | None:
    try:
        return number(op)
    except MemoryError:
        raise
    except Exception:  # it is unknown, or an attribute does not fit
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
