"""Counts the work of every node of an ONNX model, without running it: see `tracer.count`."""

from collections.abc import Mapping

import pandas as pd

from analyzers import energy as energy_models
from analyzers.cost import cost
from analyzers.cost.typed_model import TypedModel
from analyzers.memory import memory
from analyzers.table import node_table
from exporters.subject import Subject, open_subject
from tracer.accumulators.narrowed_model import Narrowing
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.policy import Policy, Rule
from tracer.accumulators.spec.policy_text import policy
from tracer.api._assembly import (
    Pricing,
    cost_notes,
    energy_settings,
    parameter_count,
    priced,
)
from tracer.errors import UsageError
from tracer.graph import shape_inference
from tracer.graph.model import Model
from tracer.inputs.choice import choose
from tracer.inputs.dims import batch_of
from tracer.records import environment
from tracer.records.node_table import typed
from tracer.records.trace import ModelInfo, Trace


def count(
    model: Subject,
    batch: int | None,
    dims: Mapping[str, int],
    convention: str,
    energy: str | None,
    accumulator: int | str | Accumulator | Policy | None,
    fixed: str | None,
) -> Trace:
    """Returns the trace of a count, without runs."""
    energy_model = None if energy is None else energy_models.find(energy)
    loaded = open_subject(model)
    rules, unfit = _narrowed(loaded, accumulator, fixed)
    sizes = choose(loaded, batch, dims)
    types = shape_inference.infer(loaded, sizes.shapes)
    typed_model = TypedModel(loaded, types)
    counted = cost(typed_model, convention=convention)
    pricing = None if energy_model is None else Pricing(energy_model, rules)
    work, unpriced = priced(loaded, types, counted, pricing)
    table = node_table(loaded, types, [*work, _widths(rules), memory(typed_model)])
    return Trace(
        model=ModelInfo.of(loaded, parameter_count(counted)),
        environment=environment.observe(),
        settings={
            "dims": dict(dims), "convention": convention,
            "accumulator": None if accumulator is None else str(policy(accumulator, fixed)),
            "energy": energy_settings(energy_model),
        },
        runs=(),
        nodes=typed(table.assign(batch=batch_of(loaded, sizes.shapes))),
        notes=(*sizes.notes, *cost_notes(counted), *unfit, *unpriced),
    )  # fmt: skip


def _narrowed(
    model: Model, accumulator: int | str | Accumulator | Policy | None, fixed: str | None
) -> tuple[Mapping[str, Rule], tuple[str, ...]]:
    """Returns the rules of the nodes that would have narrow accumulators, and notes on others."""
    if accumulator is None:
        if fixed is not None:
            raise UsageError(
                "fixed-point formats are about narrow accumulators", "Set an accumulator as well."
            )
        return {}, ()
    chosen = policy(accumulator, fixed)
    narrowing = Narrowing(model, chosen)
    rules = chosen.assign(model.nodes)
    return {node: rules[node] for node in narrowing.runners}, narrowing.notes


def _widths(rules: Mapping[str, Rule]) -> pd.DataFrame:
    """Returns the column `bits` (Int64) of nodes with narrow accumulators, by node key."""
    bits = {node: rule.accumulator.bits for node, rule in rules.items()}
    return pd.DataFrame({"bits": pd.Series(bits, dtype="Int64")})
