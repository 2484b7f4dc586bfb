"""Why a graph cannot run in the order it is written in, in words that name the node."""

from __future__ import annotations

from collections.abc import Sequence

import onnx


def fault(graph: onnx.GraphProto, around: frozenset[str] = frozenset()) -> str:
    """What is wrong with the order of a graph or of a body within; '' where nothing is.

    `around` are the tensors of the graphs around it that are made before it runs.
    """
    given = _given_names(graph)
    found = _own_fault(graph.node, given, graph.name, around)
    known = {*around, *given}
    for index, node in enumerate(graph.node):
        for attribute in node.attribute:
            for body in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                found = found or _within(body, frozenset(known), _label(node, index))
        known.update(node.output)
    return found


def _within(body: onnx.GraphProto, around: frozenset[str], owner: str) -> str:
    found = fault(body, around)
    return f"{found}, in body '{body.name}' of {owner}" if found else ""


def _own_fault(
    nodes: Sequence[onnx.NodeProto], given: set[str], graph: str, around: frozenset[str]
) -> str:
    """Which of three the checker's one message about sorting means; '' for none of them.

    The three: an input that nothing makes, nodes in the wrong order, or a cycle. A fourth is told
    as well: a tensor written twice (not SSA).
    """
    makers: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for output in filter(None, node.output):
            if output in makers or output in given:
                return f"tensor '{output}' is written twice, again by {_label(node, index)}"
            makers[output] = index
    for index, node in enumerate(nodes):
        for name in filter(None, node.input):
            if name not in given and name not in makers and name not in around:
                return f"{_label(node, index)} reads '{name}', which nothing in '{graph}' makes"
    late = _late_reads(nodes, makers)
    if not late:
        return ""
    cycle = _in_cycle(nodes, makers)
    if cycle is not None:
        return f"the graph has a cycle through {_label(nodes[cycle], cycle)}"
    index, name = late[0]
    return (
        f"the nodes are not sorted: {_label(nodes[index], index)} reads '{name}' before it is made"
    )


def _late_reads(nodes: Sequence[onnx.NodeProto], makers: dict[str, int]) -> list[tuple[int, str]]:
    return [
        (index, name)
        for index, node in enumerate(nodes)
        for name in node.input
        if makers.get(name, -1) >= index
    ]


def _in_cycle(nodes: Sequence[onnx.NodeProto], makers: dict[str, int]) -> int | None:
    """Index of a node on a cycle, by taking away nodes that wait for nothing (Kahn)."""
    waits = [{makers[name] for name in node.input if name in makers} for node in nodes]
    readers: list[list[int]] = [[] for _ in nodes]
    for index, needed in enumerate(waits):
        for maker in needed:
            readers[maker].append(index)
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


def _given_names(graph: onnx.GraphProto) -> set[str]:
    names = {v.name for v in graph.input} | {i.name for i in graph.initializer}
    return names | {s.values.name for s in graph.sparse_initializer}
