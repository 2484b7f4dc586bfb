"""Edits a copy of a quantised graph: initializers, nodes by the tensors they use, their order."""

import itertools
from collections import defaultdict
from collections.abc import Container, Sequence
from copy import deepcopy
from graphlib import TopologicalSorter
from typing import Any

import numpy as np
import onnx

from tracer.errors import ModelError
from tracer.graph.model import names_read
from tracer.graph.provenance import describe_like
from tracer.interpreter.values import from_tensor
from tracer.support.types import Array


def sort_nodes(graph: onnx.GraphProto) -> None:
    """Sorts the nodes of `graph`: onnxruntime's order ignores what subgraphs read."""
    nodes = [*map(deepcopy, graph.node)]
    producers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    needed = {
        index: {producers[name] for name in names_read(node) if name in producers}
        for index, node in enumerate(nodes)
    }
    if all(before < index for index, sources in needed.items() for before in sources):
        return
    order = list(TopologicalSorter(needed).static_order())
    del graph.node[:]
    graph.node.extend(nodes[index] for index in order)


def free_name(wanted: str, taken: Container[str]) -> str:
    """Returns a name that is not taken: `wanted`, or with a number behind it."""
    names = itertools.chain([wanted], (f"{wanted}_{n}" for n in itertools.count(2)))
    return next(name for name in names if name not in taken)


class GraphEditor:
    """A copy `proto` of a model, with methods that look up and change nodes and initializers.

    `inserted_names` are the names of the nodes that were inserted, in that order.
    """

    def __init__(self, proto: onnx.ModelProto) -> None:
        self.proto = deepcopy(proto)
        self.inserted_names: list[str] = []
        self._weights = {weight.name: weight for weight in self.proto.graph.initializer}
        self._producers: dict[str, onnx.NodeProto] = {}
        self._readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in self.proto.graph.node:
            self._producers.update((name, node) for name in node.output)
            for name in node.input:
                self._readers[name].append(node)

    def nodes(self, *op_types: str) -> list[onnx.NodeProto]:
        """Returns the nodes of these operators."""
        return [node for node in self.proto.graph.node if node.op_type in op_types]

    def producer(self, name: str) -> onnx.NodeProto | None:
        """Returns the node whose output a tensor is."""
        return self._producers.get(name)

    def readers(self, name: str) -> list[onnx.NodeProto]:
        """Returns the nodes that read a tensor."""
        return self._readers.get(name, [])

    def stored(self, name: str, but: Any = None) -> Array | None:
        """Returns the initializer of this name; None without one, or if it has the type `but`."""
        if name not in self._weights:
            return None
        value = from_tensor(self._weights[name])
        return None if but is not None and value.dtype == but else value

    def parameters(self, node: onnx.NodeProto) -> tuple[Array | None, Array, Array]:
        """Returns the stored input (or None), scale and zero point of a (De)QuantizeLinear.

        Raises ModelError where scale or zero point is not an initializer.
        """
        scale = self.stored(node.input[1])
        zero = self.stored(node.input[2]) if len(node.input) > 2 else None
        if scale is None or zero is None:
            raise ModelError(
                f"node '{node.name}' ({node.op_type}) has no stored scale and zero point",
                "Quantise the float model with `tracer quantize` first.",
            )
        return self.stored(node.input[0]), scale, zero

    def store(self, node: onnx.NodeProto, index: int, value: Array) -> None:
        """Replaces the initializer that `node` reads at `index`."""
        name = node.input[index]
        self._weights[name].CopyFrom(onnx.numpy_helper.from_array(value, name))

    def clipped(self, node: onnx.NodeProto, name: str, low: Array, high: Array) -> str:
        """Inserts a Clip of a tensor before `node`; returns the output's name."""
        ends = [self.constant(node, part, end) for part, end in (("low", low), ("high", high))]
        return self.inserted(node, "Clip", [name, *ends])

    def constant(self, node: onnx.NodeProto, part: str, value: Array) -> str:
        """Adds an initializer that belongs to `node`; returns its name."""
        name = free_name(f"{node.output[0]}_{part}", self.names())
        tensor = onnx.numpy_helper.from_array(np.asarray(value), name)
        self._weights[name] = self.proto.graph.initializer.add()
        self._weights[name].CopyFrom(tensor)
        return name

    def inserted(
        self, node: onnx.NodeProto, op_type: str, inputs: Sequence[str], axis: int | None = None
    ) -> str:
        """Inserts a node before `node`, with its module and source; returns the output's name."""
        output = free_name(f"{node.output[0]}_{op_type}", self.names())
        made = onnx.helper.make_node(op_type, list(inputs), [output], output)
        if axis is not None:
            made.attribute.append(onnx.helper.make_attribute("axis", axis))
        describe_like(made, node)
        nodes = self.proto.graph.node
        place = next(i for i, n in enumerate(nodes) if n.output[0] == node.output[0])
        nodes.insert(place, made)
        self.inserted_names.append(output)
        self._producers[output] = nodes[place]
        return output

    def replace(
        self, output: str, nodes: Sequence[onnx.NodeProto], weights: Sequence[onnx.TensorProto]
    ) -> None:
        """Puts `nodes`, which read `weights`, in the place of the node that writes a tensor."""
        graph = self.proto.graph
        place = next(i for i, node in enumerate(graph.node) if output in node.output)
        del graph.node[place]
        for offset, node in enumerate(nodes):
            graph.node.insert(place + offset, node)
            self._producers.update((name, graph.node[place + offset]) for name in node.output)
        graph.initializer.extend(weights)
        self._weights.update((weight.name, weight) for weight in graph.initializer)

    def names(self) -> set[str]:
        """Returns the names of all nodes and tensors."""
        nodes = {node.name for node in self.proto.graph.node}
        inputs = {value.name for value in self.proto.graph.input}
        return nodes | inputs | self._weights.keys() | self._producers.keys()

    def prune(self) -> None:
        """Removes nodes and initializers that nothing reads."""
        graph = self.proto.graph
        read = {value.name for value in graph.output}
        kept: list[onnx.NodeProto] = []
        for node in reversed(graph.node):
            if read.isdisjoint(node.output):
                continue
            kept.append(node)
            read.update(names_read(node))
        weights = [weight for weight in graph.initializer if weight.name in read]
        nodes = kept[::-1]
        del graph.node[:], graph.initializer[:]
        graph.node.extend(nodes)
        graph.initializer.extend(weights)
