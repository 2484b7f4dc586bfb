"""Detect values in a traced Chainer model that depend on the input but look like constants.

Chainer computes some things on arrays, outside of its graph (`F.floor`, or any use of `x.array`). A
trace holds their value for one input. Comparing two traces on different inputs reveals them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import onnx
from numpy.typing import NDArray

from tracer.errors import ModelError
from tracer.exporters.chainer.frames import Caller, caller
from tracer.graph import provenance

_REMEDY = "Compute it by functions that docs/chainer-coverage.md lists."


@dataclass(frozen=True)
class ChainerTrace:
    """One traced forward pass: the model as onnx_chainer writes it, and values by tensor name.

    `origins` has, for each tensor that no function computed, the line that created it.
    """

    proto: onnx.ModelProto
    values: dict[str, NDArray[Any]] = field(repr=False)
    origins: dict[str, Caller | None]


@contextmanager
def origins(chainer: Any) -> Iterator[dict[int, Caller]]:
    """Records which line created each Variable, by its id, within the context."""
    callers: dict[int, Caller] = {}
    original = chainer.Variable.__init__

    def recording_init(self: Any, *args: Any, **kwargs: Any) -> None:
        callers[id(self)] = caller("Variable")
        original(self, *args, **kwargs)

    chainer.Variable.__init__ = recording_init
    try:
        yield callers
    finally:
        chainer.Variable.__init__ = original


def no_function(origin: Caller | None, reader: str) -> ModelError:
    """Returns the error for a value that depends on the input and that no function computes."""
    source = str(origin) if origin else "an array"
    verb = "is" if origin is None or origin.applied else "gives"
    return ModelError(
        f"{source} {verb} a value that Chainer's graph does not record; {reader}", _REMEDY
    )


def check_constants(first: ChainerTrace, second: ChainerTrace) -> None:
    """Raises ModelError if nodes or weights of two traces of the same shapes differ.

    The difference is a value of the input.
    """
    graphs = first.proto.graph, second.proto.graph
    weights = [{w.name: _bytes(w) for w in graph.initializer} for graph in graphs]
    nodes = [[_bytes(node) for node in graph.node] for graph in graphs]
    if nodes[0] != nodes[1]:
        raise ModelError(
            "the model computes another graph for another input of the same shape",
            "ONNX would keep one of them: have the graph depend on shapes alone.",
        )
    for node in graphs[0].node:
        for name in node.input:
            if name in weights[0] and weights[0][name] != weights[1].get(name):
                raise _of_one_input(node, name, first)


def _of_one_input(node: onnx.NodeProto, name: str, trace: ChainerTrace) -> ModelError:
    where = f"node '{node.name}' ({node.op_type})"
    source = provenance.source_of(node)
    where += f" at {source}" if source else ""
    if name in trace.origins:
        return no_function(trace.origins[name], f"{where} reads it")
    return ModelError(
        f"the values of one input are baked into {where}", "Have it computed from the input."
    )


def _bytes(proto: onnx.NodeProto | onnx.TensorProto) -> bytes:
    return proto.SerializeToString(deterministic=True)
