"""`tracer.count`: counts the work of every node of an ONNX model, without running it."""

from collections.abc import Mapping

from analyzers.cost import cost
from analyzers.memory import memory
from analyzers.table import node_table
from tracer.api._assembly import cost_notes, parameter_count
from tracer.graph import shape_inference
from tracer.graph.loading import ModelSource, open_model
from tracer.inputs import dims as dimensions
from tracer.records import environment
from tracer.records.node_table import typed
from tracer.records.trace import ModelInfo, Trace


def count(
    model: ModelSource,
    *,
    batch: int | None = None,
    dims: Mapping[str, int] | None = None,
    convention: str = "plain",
) -> Trace:
    """Counts the work of every node of `model` from shapes.

    `dims` sizes symbolic dimensions by name; `convention` says how additions are counted (see
    `analyzers.cost`). Raises the errors of `tracer.errors`.
    """
    loaded = open_model(model)
    shapes, assumed = dimensions.choose(loaded, batch, dims or {})
    types = shape_inference.infer(loaded, shapes)
    counted = cost(loaded, types, convention=convention)
    table = node_table(loaded, types, [counted.table, memory(loaded, types)])
    return Trace(
        model=ModelInfo.of(loaded, parameter_count(counted)),
        environment=environment.observe(),
        settings={"dims": dict(dims or {}), "convention": convention},
        runs=(),
        nodes=typed(table.assign(batch=dimensions.batch_of(loaded, shapes))),
        notes=(*dimensions.notes(assumed), *cost_notes(counted)),
    )
