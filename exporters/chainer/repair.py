"""What onnx_chainer wrote, as today's runtimes and readers want it."""

from __future__ import annotations

from collections import Counter

import onnx

from exporters import runtime


def repair(proto: onnx.ModelProto) -> None:
    """Constants become initializers, initializers no inputs, node names unique; in place.

    A parameter that no node reads is dropped: runtimes warn of every one.
    """
    runtime.fit_ir_version(proto)  # onnx_chainer takes onnx's newest, which no runtime may read
    _lift_constants(proto.graph)
    _drop_weights_from_inputs(proto.graph)
    _drop_unread_weights(proto.graph)
    _rename_repeated(proto.graph)


def _lift_constants(graph: onnx.GraphProto) -> None:
    """onnx_chainer gives a Constant node the name of the operator that reads it."""
    kept = []
    for node in graph.node:
        if node.op_type != "Constant":
            kept.append(node)
            continue
        weight = graph.initializer.add()
        weight.CopyFrom(node.attribute[0].t)
        weight.name = node.output[0]
    del graph.node[:]
    graph.node.extend(kept)


def _drop_weights_from_inputs(graph: onnx.GraphProto) -> None:
    """An initializer that is an input too may be overridden, so runtimes do not fold it."""
    weights = {weight.name for weight in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    del graph.input[:]
    graph.input.extend(inputs)


def _drop_unread_weights(graph: onnx.GraphProto) -> None:
    """A link that was not called leaves its parameters; onnx_chainer writes no subgraphs."""
    read = {name for node in graph.node for name in node.input}
    read |= {value.name for value in graph.output}
    kept = [weight for weight in graph.initializer if weight.name in read]
    del graph.initializer[:]
    graph.initializer.extend(kept)


def _rename_repeated(graph: onnx.GraphProto) -> None:
    counts = Counter(node.name for node in graph.node)
    taken = set(counts)
    for index, node in enumerate(graph.node):
        if node.name and counts[node.name] == 1:
            continue
        name = f"{node.name or node.op_type}_{index}"
        while name in taken:
            name += "_"
        taken.add(name)
        node.name = name
