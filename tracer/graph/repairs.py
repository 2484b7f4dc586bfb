"""Repairs what exporters write and runtimes accept: unsorted nodes, missing imports, sizes of 0."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import onnx

from tracer.graph import operators
from tracer.graph.model import node_protos

UNSORTED_NOTE = "the nodes are not sorted in the file: each is taken after those that it reads"
_VERSION = 1
"""The version of the domain before it was imported."""


def repaired(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """Returns `proto`, or a repaired copy, and notes of what was assumed.

    The copy is sorted, imports QONNX's domain, and leaves an input's size open where 0 is declared:
    some exporters write 0 for an unknown size, and runtimes would take no other.
    """
    weights = {weight.name for weight in proto.graph.initializer}
    empty = [
        (place, axis)
        for place, value in enumerate(proto.graph.input)
        if value.name not in weights
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if dim.HasField("dim_value") and dim.dim_value == 0
    ]
    missing, sorts = missing_qonnx_imports(proto), not is_sorted(proto.graph)
    if not (empty or missing or sorts):
        return proto, ()
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for place, axis in empty:
        copy.graph.input[place].type.tensor_type.shape.dim[axis].Clear()
    add_qonnx_imports(copy, missing)
    if sorts:
        sort_nodes(copy.graph)
    listed = " and ".join(f"'{domain}'" for domain in missing)
    notes = [
        f"the model does not import {listed}: version {_VERSION} of QONNX's operators is assumed"
    ] * bool(missing) + [UNSORTED_NOTE] * sorts
    return copy, tuple(notes)


def missing_qonnx_imports(proto: onnx.ModelProto) -> tuple[str, ...]:
    """Returns the names of QONNX's domain that nodes of the main graph use and nothing imports."""
    imported = {entry.domain for entry in proto.opset_import}
    used = {node.domain for node in node_protos(proto.graph)}
    return tuple(sorted((used & operators.QONNX_DOMAINS) - imported))


def add_qonnx_imports(proto: onnx.ModelProto, domains: tuple[str, ...]) -> None:
    """Imports `domains` in `proto`."""
    for domain in domains:
        proto.opset_import.add(domain=domain, version=_VERSION)


def is_sorted(graph: onnx.GraphProto) -> bool:
    """Whether no node of a graph reads, itself or in a body, what a later node computes."""
    late = {name for node in graph.node for name in node.output}
    for node in graph.node:
        if not late.isdisjoint(_read_names(node)):
            return False
        late.difference_update(node.output)
    return True


def sort_nodes(graph: onnx.GraphProto) -> None:
    """Puts nodes after those that they read, else in their order; a cycle stays where it is.

    Converters to float16 add nodes at the end. onnxruntime sorts graphs, but not their bodies.
    """
    makers = {name: at for at, node in enumerate(graph.node) for name in node.output if name}
    waits = [{makers[name] for name in _read_names(node) if name in makers} for node in graph.node]
    readers: list[list[int]] = [[] for _ in waits]
    for at, needed in enumerate(waits):
        for maker in needed:
            readers[maker].append(at)
    ready = [at for at, needed in enumerate(waits) if not needed]
    heapify(ready)
    order: list[int] = []
    while ready:
        order.append(heappop(ready))
        for reader in readers[order[-1]]:
            waits[reader].discard(order[-1])
            if not waits[reader]:
                heappush(ready, reader)
    if len(order) == len(waits):
        nodes = [onnx.NodeProto.FromString(graph.node[at].SerializeToString()) for at in order]
        del graph.node[:]
        graph.node.extend(nodes)


def _read_names(node: onnx.NodeProto) -> set[str]:
    """Returns the tensors that a node reads, itself or in its bodies."""
    names = set(node.input)
    for attribute in node.attribute:
        for body in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            inside = {name for inner in body.node for name in _read_names(inner)}
            inside |= {value.name for value in body.output}
            inside -= {name for inner in body.node for name in inner.output}
            names |= inside - _source_names(body)
    return names - {""}


def order_fault(graph: onnx.GraphProto, outer: frozenset[str] = frozenset()) -> str:
    """Returns what is wrong with the order of a graph or of its bodies; '' if nothing is.

    `outer` holds the tensors of outer graphs that are computed before this graph runs.
    """
    sources = _source_names(graph)
    message = _own_fault(graph.node, sources, graph.name, outer)
    available = {*outer, *sources}
    for index, node in enumerate(graph.node):
        for attribute in node.attribute:
            for body in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                inner = "" if message else order_fault(body, frozenset(available))
                if inner:
                    message = f"{inner}, in body '{body.name}' of {_label(node, index)}"
        available.update(node.output)
    return message


def _own_fault(
    nodes: Sequence[onnx.NodeProto], sources: set[str], graph: str, outer: frozenset[str]
) -> str:
    """Returns the fault among a graph's own nodes; '' if there is none.

    The checker has one message for a missing input, unsorted nodes and a cycle; here each has its
    own, and so has a tensor written twice (not SSA).
    """
    producers: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for output in filter(None, node.output):
            if output in producers or output in sources:
                return f"tensor '{output}' is written twice, again by {_label(node, index)}"
            producers[output] = index
    for index, node in enumerate(nodes):
        for name in filter(None, node.input):
            if name not in sources and name not in producers and name not in outer:
                return f"{_label(node, index)} reads '{name}', which no node of '{graph}' computes"
    reads = ((index, name) for index, node in enumerate(nodes) for name in node.input)
    late = next(((index, name) for index, name in reads if producers.get(name, -1) >= index), None)
    if late is None:
        return ""
    cycle = _in_cycle(nodes, producers)
    if cycle is not None:
        return f"the graph has a cycle through {_label(nodes[cycle], cycle)}"
    index, name = late
    reader = _label(nodes[index], index)
    return f"the nodes are not sorted: {reader} reads '{name}' before it is computed"


def _in_cycle(nodes: Sequence[onnx.NodeProto], producers: dict[str, int]) -> int | None:
    """Returns the index of a node on a cycle, by removing nodes that wait for none (Kahn)."""
    waits = [{producers[name] for name in node.input if name in producers} for node in nodes]
    readers: list[list[int]] = [[] for _ in nodes]
    for index, needed in enumerate(waits):
        for producer in needed:
            readers[producer].append(index)
    ready = [index for index, needed in enumerate(waits) if not needed]
    while ready:
        done = ready.pop()
        for reader in readers[done]:
            waits[reader].discard(done)
            if not waits[reader]:
                ready.append(reader)
    return next((index for index, needed in enumerate(waits) if needed), None)


def _label(node: onnx.NodeProto, index: int) -> str:
    return f"node '{node.name}' ({node.op_type})" if node.name else f"node {node.op_type}_{index}"


def _source_names(graph: onnx.GraphProto) -> set[str]:
    names = {v.name for v in graph.input} | {i.name for i in graph.initializer}
    return names | {s.values.name for s in graph.sparse_initializer}
