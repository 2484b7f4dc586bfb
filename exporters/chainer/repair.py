"""Repair the graphs of onnx_chainer for current runtimes."""

from collections import Counter

import onnx

from tracer.exporters import runtime


def repair(proto: onnx.ModelProto) -> None:
    """Turns constants into initializers, removes weights from the inputs, makes names unique.

    Works in place. Drops unread parameters, since runtimes warn of each.
    """
    runtime.fit_ir_version(proto)  # onnx_chainer's may be too new for the runtime
    _lift_constants(proto.graph)
    _drop_weights_from_inputs(proto.graph)
    _drop_unread_weights(proto.graph)
    _rename_repeated(proto.graph)


def _lift_constants(graph: onnx.GraphProto) -> None:
    """Replaces Constant nodes, which have the name of the operator that reads them."""
    nodes = []
    for node in graph.node:
        if node.op_type != "Constant":
            nodes.append(node)
            continue
        weight = graph.initializer.add()
        weight.CopyFrom(node.attribute[0].t)
        weight.name = node.output[0]
    del graph.node[:]
    graph.node.extend(nodes)


def _drop_weights_from_inputs(graph: onnx.GraphProto) -> None:
    """Removes initializers from the inputs; runtimes do not fold weights that may be overridden."""
    weights = {weight.name for weight in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    del graph.input[:]
    graph.input.extend(inputs)


def _drop_unread_weights(graph: onnx.GraphProto) -> None:
    """Drops parameters of links that were not called; onnx_chainer writes no subgraphs."""
    read = {name for node in graph.node for name in node.input}
    read |= {value.name for value in graph.output}
    weights = [weight for weight in graph.initializer if weight.name in read]
    del graph.initializer[:]
    graph.initializer.extend(weights)


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
