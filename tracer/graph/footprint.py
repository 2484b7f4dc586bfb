"""How much memory a runtime may take for a model, by the sizes of its tensors."""

import os

from tracer.graph import tensor_type
from tracer.graph.model import Model, Node
from tracer.graph.shape_inference import TensorTypes

_COPIES = 6
"""What a runtime may take ÷ the bytes of all tensors whose size is known: several sessions hold the
weights, packed for their kernels as well, and kernels copy what they read."""

_LEAST = 4 << 30
"""Bytes for tensors whose size is not known, and for the runtime itself."""

_NUMBER, _TEXT = 8, 64
"""Bytes of an element of an attribute's list: protobuf holds a text of a few letters so."""

_LARGE = 1 << 30
"""Bytes of weights that are held once at a time, and not in protobufs, which end at 2 GB."""

_A_CORE = 64 << 20
"""Bytes for each processor: stacks of the threads of all sessions."""


def allowance(model: Model, types: TensorTypes) -> int:
    """Returns the bytes in proportion to weights, tables, inputs and tensors of a known size.

    A model that has little, and makes gigabytes of it in a loop, is stopped early. A large model
    may take all that the process may.
    """
    known = [tensor.nbytes or 0 for graph in types.tensors.values() for tensor in graph.values()]
    stored = sum(known) + sum(map(_attribute_bytes, model.nodes))
    return _LEAST + _A_CORE * (os.cpu_count() or 1) + _COPIES * stored


def _attribute_bytes(node: Node) -> int:
    """Returns the bytes of the lists that a node has as attributes, as the tables of a forest."""
    attributes = node.proto.attribute
    return sum(
        _NUMBER * (len(each.ints) + len(each.floats)) + _TEXT * len(each.strings)
        for each in attributes
    )


def is_large(model: Model) -> bool:
    """Returns whether the weights should be in memory once at a time: what holds them takes turns.

    A session of onnxruntime holds weights of its own, packed for its kernels.
    """
    return is_much(stored_bytes(model))


def is_much(nbytes: int) -> bool:
    """Returns whether so many bytes of weights should be in memory once at a time."""
    return nbytes >= _LARGE


def stored_bytes(model: Model) -> int:
    """Returns the bytes of all initializers, wherever they are stored; 0 for each of strings."""
    stored = (tensor for scope in model.scopes for tensor in scope.graph.initializer)
    return sum(tensor_type.from_initializer(tensor).nbytes or 0 for tensor in stored)
