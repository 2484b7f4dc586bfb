"""How a model takes samples: which inputs have one row per sample, and the fixed batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import onnx

from tracer.graph import tensor_type
from tracer.graph.model import Model
from tracer.graph.tensor_type import Dim
from tracer.inputs import dims as dimensions


@dataclass(frozen=True, slots=True)
class SampleLayout:
    """`rows` are the inputs whose axis 0 counts samples; other inputs belong to all samples.

    `batch` is the fixed number of rows, None if any is allowed. Without `rows` the inputs cannot
    be cut into samples.
    """

    rows: frozenset[str]
    batch: int | None = None

    @classmethod
    def of(cls, model: Model) -> SampleLayout:
        """Derives the layout from the declared inputs and outputs."""
        inputs = _shapes(model.inputs)
        axes = dimensions.batch_axes(inputs)
        unknown = {v.name for v in model.inputs if _is_unshaped(v)}
        outputs = [shape[:1] for shape in _shapes(model.graph.output).values()]
        if axes or unknown:
            cuts = set(axes.values()) <= {0} and not any(_fixed(lead) for lead in outputs)
            return cls(frozenset({*axes, *unknown} if cuts else ()))
        leading = {shape[0] for shape in inputs.values() if len(shape) > 1}
        if len(leading) != 1 or any(lead != tuple(leading) for lead in outputs if _fixed(lead)):
            return cls(frozenset())
        (batch,) = leading
        if not isinstance(batch, int) or batch < 1:
            return cls(frozenset())
        return cls(frozenset(n for n, shape in inputs.items() if shape[:1] == (batch,)), batch)


def _fixed(lead: tuple[Dim, ...]) -> bool:
    """Whether an output declares a fixed number of rows, or has none."""
    return not lead or isinstance(lead[0], int)


def _shapes(values: Iterable[onnx.ValueInfoProto]) -> Mapping[str, tuple[Dim, ...]]:
    kinds = {value.name: tensor_type.from_type_proto(value.type) for value in values}
    return {n: k.shape for n, k in kinds.items() if k is not None and k.shape is not None}


def _is_unshaped(value: onnx.ValueInfoProto) -> bool:
    kind = tensor_type.from_type_proto(value.type)
    return kind is not None and kind.shape is None
