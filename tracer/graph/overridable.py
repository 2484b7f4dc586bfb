"""Weights that are inputs too: an initializer is then a default, which a feed may override (ONNX).

Before IR version 4 every initializer had to be an input, and runtimes take none for a default.
"""

from collections.abc import Collection
from dataclasses import replace

import onnx

from tracer.graph.model import IR_WITH_UNLISTED_WEIGHTS, Model


def overridable(model: Model) -> tuple[onnx.ValueInfoProto, ...]:
    """Returns the inputs that have a default, in the order of the graph."""
    if model.proto.ir_version < IR_WITH_UNLISTED_WEIGHTS:
        return ()
    weights = {weight.name for weight in model.graph.initializer}
    return tuple(value for value in model.graph.input if value.name in weights)


def as_inputs(model: Model, names: Collection[str]) -> Model:
    """Returns the model with these overridable weights as inputs, which must then be fed."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    kept = [weight for weight in proto.graph.initializer if weight.name not in names]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    stand_in = model.stand_in
    if stand_in is not None:
        stand_in = replace(stand_in, model=as_inputs(stand_in.model, names))
    return replace(model, proto=proto, stand_in=stand_in)
