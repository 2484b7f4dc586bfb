"""Computes the energy of one sample in accumulators of chosen widths, node by node."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from tracer.accumulators.spec.policy import Rule
from tracer.analyzers.cost import cost
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.analyzers.coverage import coverage
from tracer.analyzers.energy import EnergyModel, Work, operands
from tracer.graph.model import Model
from tracer.inputs.datasets.dataset import Dataset
from tracer.inputs.feedset import FeedSet
from tracer.records.coverage import Coverage
from tracer.records.whatif import NodeWork, known_sum
from tracer.shapes import infer
from tracer.support.types import FloatArray


@dataclass(frozen=True, slots=True)
class EnergyCost:
    """Energies per sample of the narrow `nodes`.

    None for nodes that multiply nothing, and for nodes of unknown work. `coverage` tells how much
    of the model's products these nodes add.
    """

    nodes: tuple[str, ...]
    model: EnergyModel
    work: Work = field(repr=False)
    notes: tuple[str, ...] = ()
    coverage: Coverage | None = None

    def __call__(self, widths: Sequence[int]) -> float:
        """Returns the energy of all nodes together; `widths` in the order of `nodes`."""
        return known_sum(self.per_node(widths))

    def per_node(self, widths: Sequence[int]) -> tuple[float | None, ...]:
        """Returns the energy of each node. Raises InputError for a width the model lacks."""
        bits = dict(zip(self.nodes, widths, strict=True))
        energies = self.model.per_node(self.work, {node: bits[node] for node in self.work.nodes})
        return tuple(energies.get(node) for node in self.nodes)

    def by_width(self, widths: Iterable[int]) -> dict[int, tuple[float | None, ...]]:
        """Returns the energy of each node, for each width that all nodes share."""
        return {bits: self.per_node((bits,) * len(self.nodes)) for bits in sorted(set(widths))}


def energy_cost(
    model: Model,
    dataset: Dataset,
    rules: Mapping[str, Rule],
    energy: EnergyModel,
    addition_convention: str,
) -> EnergyCost:
    """Counts the work of the nodes with `rules` on the shapes of one sample of a model.

    A model with a fixed batch is counted with that batch, and the work divided by its size.
    """
    sample = next(dataset.batches(1))
    typed = TypedModel(model, infer(model, FeedSet(sample.inputs, None).shapes))
    counts = cost(typed, convention=addition_convention).table
    own = counts.loc[counts.index.isin(list(rules))]
    work = Work.of(own, operands(typed, rules))
    batch = dataset.layout.batch or 1
    per_sample = replace(work, muls=work.muls / batch, adds=work.adds / batch)
    counted = {*work.nodes, *own.index[(own["macs"] == 0).fillna(False)]}
    unknown = [node for node in rules if node not in counted]
    notes = (f"energies exclude nodes of unknown work: {', '.join(unknown)}",) if unknown else ()
    types = pd.Series({node.key: node.op_type for node in model.nodes}, dtype=object)
    every = counts.assign(op_type=types)
    narrow = pd.Series(counts.index.isin(list(rules)), counts.index)
    return EnergyCost(tuple(rules), energy, per_sample, notes, coverage(every, narrow))


def node_work(model: Model, cost: EnergyCost) -> tuple[NodeWork, ...]:
    """Returns the work of each narrow node."""
    nodes = {node.key: node for node in model.nodes}
    work = cost.work
    indices = {node: index for index, node in enumerate(work.nodes)}

    def value(array: FloatArray, node: str) -> float | None:
        return float(array[indices[node]]) if node in indices else None

    return tuple(
        NodeWork(
            node=node,
            op_type=nodes[node].op_type,
            module=nodes[node].module,
            muls=value(work.muls, node),
            adds=value(work.adds, node),
            activation_bits=value(work.operand_bits, node),
            weight_bits=value(work.weight_bits, node),
        )
        for node in cost.nodes
    )
