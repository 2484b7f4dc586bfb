"""The parts of a model that mutations pick from, in the main graph, in bodies and in functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import TypeVar

import onnx

T = TypeVar("T")


class NothingToMutateError(Exception):
    """The model has no such part."""


def picked(random: Random, parts: Sequence[T]) -> T:
    if not parts:
        raise NothingToMutateError
    return random.choice(parts)


def graphs(model: onnx.ModelProto) -> list[onnx.GraphProto]:
    """The main graph first, then those of attributes, at any depth."""
    return list(_graphs(model.graph))


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            bodies = [attribute.g] if attribute.HasField("g") else []
            for body in (*bodies, *attribute.graphs):
                yield from _graphs(body)


def nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    inside = [node for function in model.functions for node in function.node]
    return [*(node for graph in graphs(model) for node in graph.node), *inside]


def attributes(model: onnx.ModelProto) -> list[onnx.AttributeProto]:
    return [attribute for node in nodes(model) for attribute in node.attribute]


def values(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Inputs, outputs and what shape inference told."""
    return [
        value
        for graph in graphs(model)
        for value in (*graph.input, *graph.output, *graph.value_info)
    ]


def tensors(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Weights and tensors in attributes."""
    weights = [tensor for graph in graphs(model) for tensor in graph.initializer]
    return weights + [each.t for each in attributes(model) if each.HasField("t")]


def names(graph: onnx.GraphProto) -> list[str]:
    """The tensors of a graph, and '' for an input that is left out."""
    made = [name for node in graph.node for name in node.output]
    given = [value.name for value in graph.input]
    return [*given, *(tensor.name for tensor in graph.initializer), *made, ""]
