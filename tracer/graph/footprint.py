"""How much memory a model may take by default, in proportion to its weights and inputs."""

import os
from collections.abc import Iterable

from tracer.graph import tensor_type
from tracer.graph.model import Model

_VALUES, _RUNTIME = 512 << 20, 640 << 20
"""Bytes for the values of any model in the interpreter, and for a runtime with its sessions."""

_PROPORTION = 512
"""Further bytes for each byte of weights and inputs. A convolution makes 64 channels of a grey
image, several are alive at a time, and in several sessions. What makes more of what it is given
was made to fill the memory."""

_LARGE = 1 << 30
"""Bytes of weights that are held once at a time, and not in protobufs, which end at 2 GB."""

_A_CORE = 64 << 20
"""Bytes for each processor: stacks of the threads of all sessions."""


def of_values(given: int) -> int:
    """Returns the bytes that values in the interpreter may take for so many `given_bytes`."""
    return _VALUES + _PROPORTION * given


def of_runtime(given: int) -> int:
    """Returns the bytes that a runtime may take for so many `given_bytes`."""
    return _RUNTIME + _A_CORE * (os.cpu_count() or 1) + _PROPORTION * given


def given_bytes(model: Model, feeds: Iterable[object]) -> int:
    """Returns the bytes of a model, its weights wherever they are stored, and of its feeds."""
    fed = sum(int(getattr(value, "nbytes", 0)) for value in feeds)
    return model.proto.ByteSize() + stored_bytes(model) + fed


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
