"""Read what a torch module says of its inputs and outputs: names, and axes of any size.

Two optional attributes say it. `tensor_names` is a pair: the names of the inputs and those of the
outputs. `dynamic_axes` has for each input the names of its axes of any size, as {1: "sequence"};
axes of one name have one size. The batch, axis 0, need not be named.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir
import torch

from tracer.errors import ModelError
from tracer.exporters.records import BATCH, InputSpec


def dynamic_shapes(
    model: torch.nn.Module, inputs: Sequence[InputSpec], batched: bool
) -> tuple[Any, ...] | None:
    """Returns the open axes of each input for torch.export; None where all are fixed.

    Raises ModelError where `dynamic_axes` has another number of inputs.
    """
    own: Sequence[Mapping[int, str]] | None = getattr(model, "dynamic_axes", None)
    if own is None:
        axes = [dict[int, str]() for _ in inputs]
    else:
        _require_count(model, "dynamic_axes", len(own), len(inputs))
        axes = [dict(each) for each in own]
    if batched:
        axes = [{0: BATCH, **a} if s.shape else a for a, s in zip(axes, inputs, strict=True)]
    if not any(axes):
        return None
    shapes = tuple(each or None for each in axes)
    parameters = inspect.signature(model.forward).parameters.values()
    kinds = [parameter.kind for parameter in parameters]
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        return shapes
    first = kinds.index(inspect.Parameter.VAR_POSITIONAL)
    return (*shapes[:first], shapes[first:])  # torch takes those of *args as one


def rename(graph: onnx_ir.Graph, model: torch.nn.Module) -> None:
    """Gives inputs and outputs of `graph` the `tensor_names` of the module, if it has any.

    Raises ModelError for another number of names.
    """
    names: tuple[Sequence[str], Sequence[str]] | None = getattr(model, "tensor_names", None)
    if names is None:
        return
    for values, own in zip((graph.inputs, graph.outputs), names, strict=True):
        _require_count(model, "tensor_names", len(own), len(values))
        for value, name in zip(values, own, strict=True):
            value.name = name


def _require_count(model: torch.nn.Module, attribute: str, own: int, needed: int) -> None:
    if own != needed:
        raise ModelError(
            f"{type(model).__name__}.{attribute} describes {own} tensors, and the model has "
            f"{needed}",
            "Describe each of them, in the order of forward.",
        )
