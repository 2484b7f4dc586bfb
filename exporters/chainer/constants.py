"""Values that no function of Chainer's graph computes: constants, where they are the same always.

Chainer computes some things on arrays, outside of its graph (`F.floor`, or whatever is done to
`x.array`). A trace has their value for the one input it saw. Two traces on different inputs tell
these from the constants that they look like.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import onnx

from exporters.chainer.frames import Caller, caller
from tracer.errors import ModelError
from tracer.graph import provenance

if TYPE_CHECKING:
    from exporters.chainer.trace import Trace

_REMEDY = "Compute it by functions that docs/chainer-coverage.md lists."


@contextmanager
def origins(chainer: Any) -> Iterator[dict[int, Caller]]:
    """Who made each Variable, by its id, while the context lasts."""
    made: dict[int, Caller] = {}
    original = chainer.Variable.__init__

    def noting(self: Any, *args: Any, **kwargs: Any) -> None:
        made[id(self)] = caller("Variable")
        original(self, *args, **kwargs)

    chainer.Variable.__init__ = noting
    try:
        yield made
    finally:
        chainer.Variable.__init__ = original


def no_function(origin: Caller | None, reader: str) -> ModelError:
    """The error for a value that depends on the input though no function computes it."""
    made = str(origin) if origin else "an array"
    gives = "is" if origin is None or origin.applied else "gives"
    return ModelError(
        f"{made} {gives} a value that Chainer's graph does not record; {reader}", _REMEDY
    )


def check_constants(first: Trace, second: Trace) -> None:
    """Raise ModelError where the traces, of the same shapes, show a value of their inputs.

    The nodes must be the same, and every weight.
    """
    mine, theirs = first.proto.graph, second.proto.graph
    weights = [{w.name: _bytes(w) for w in graph.initializer} for graph in (mine, theirs)]
    if [_bytes(n) for n in mine.node] != [_bytes(n) for n in theirs.node]:
        raise ModelError(
            "the model computes another graph for another input of the same shape",
            "ONNX would keep the one: have the graph depend on shapes alone.",
        )
    for node in mine.node:
        for name in node.input:
            if name in weights[0] and weights[0][name] != weights[1].get(name):
                raise _of_one_input(node, name, first)


def _of_one_input(node: onnx.NodeProto, name: str, trace: Trace) -> ModelError:
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
