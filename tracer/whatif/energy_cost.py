"""What a sample costs in accumulators of given widths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from analyzers.cost import cost
from analyzers.energy import EnergyModel, Work, operand_bits
from tracer.graph import shape_inference
from tracer.graph.model import Model
from tracer.inputs.datasets import Dataset
from tracer.inputs.feedset import FeedSet
from tracer.records.whatif import NodeWork

PLAIN, CHANNELWISE = "plain", "channelwise"


@dataclass(frozen=True, slots=True)
class Prices:
    """Energies of the narrow `nodes` for one sample; `free` are those without multiplications."""

    nodes: tuple[str, ...]
    model: EnergyModel
    work: Work = field(repr=False)
    notes: tuple[str, ...] = ()

    def __call__(self, widths: Sequence[int]) -> float:
        """Of all nodes, at these widths in their order."""
        return sum(self.per_node(widths))

    def per_node(self, widths: Sequence[int]) -> tuple[float, ...]:
        """Of each node, 0 where nothing is multiplied. Raises InputError as the model does."""
        bits = dict(zip(self.nodes, widths, strict=True))
        found = self.model.per_node(self.work, {node: bits[node] for node in self.work.nodes})
        return tuple(found.get(node, 0.0) for node in self.nodes)

    def table(self, widths: Iterable[int]) -> dict[int, tuple[float, ...]]:
        """Of each node, for each width that all have."""
        return {bits: self.per_node((bits,) * len(self.nodes)) for bits in sorted(set(widths))}


def prices(
    model: Model,
    dataset: Dataset,
    nodes: Sequence[str],
    energy: EnergyModel,
    convention: str,
) -> Prices:
    """Energies of `nodes` of a quantised model, its work counted on the shapes of one sample.

    A model with a fixed batch is counted with that, and its work divided among the samples.
    """
    sample = next(dataset.batches(1))
    types = shape_inference.infer(model, FeedSet(sample.inputs, None).shapes)
    counted = cost(model, types, convention=convention).table
    table = counted.loc[[node for node in nodes if node in counted.index]]
    work = Work.of(table.astype({"muls": "Float64", "adds": "Float64"}), operand_bits(model, types))
    rows = dataset.layout.batch or 1
    shared = Work(work.nodes, work.muls / rows, work.adds / rows, work.operand_bits,
                  work.weight_bits)  # fmt: skip
    unknown = [node for node in nodes if counted["macs"].isna().get(node, True)]
    notes = (f"work not known, and in no energy: {', '.join(unknown)}",) if unknown else ()
    return Prices(tuple(nodes), energy, shared, notes)


def described(model: Model, priced: Prices) -> tuple[NodeWork, ...]:
    """The nodes as plain data, with 0 for those that multiply nothing."""
    known = {node.key: node for node in model.nodes}
    work = priced.work
    places: Mapping[str, int] = {node: place for place, node in enumerate(work.nodes)}

    def value(array: np.ndarray, node: str) -> float:
        return float(array[places[node]]) if node in places else 0.0

    return tuple(
        NodeWork(
            node=node,
            op_type=known[node].op_type,
            module=known[node].module,
            muls=value(work.muls, node),
            adds=value(work.adds, node),
            activation_bits=value(work.operand_bits, node),
            weight_bits=value(work.weight_bits, node),
        )
        for node in priced.nodes
    )
