"""Computes the energy of one sample in accumulators of chosen widths, node by node."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from analyzers.cost import cost
from analyzers.energy import EnergyModel, Work, operand_bits
from tracer.graph import shape_inference
from tracer.graph.model import Model
from tracer.inputs.datasets.dataset import Dataset
from tracer.inputs.feedset import FeedSet
from tracer.records.whatif import NodeWork
from tracer.support.types import FloatArray


@dataclass(frozen=True, slots=True)
class EnergyCost:
    """Energies per sample of the narrow `nodes`; 0 for nodes that multiply nothing."""

    nodes: tuple[str, ...]
    model: EnergyModel
    work: Work = field(repr=False)
    notes: tuple[str, ...] = ()

    def __call__(self, widths: Sequence[int]) -> float:
        """Returns the energy of all nodes together; `widths` in the order of `nodes`."""
        return sum(self.per_node(widths))

    def per_node(self, widths: Sequence[int]) -> tuple[float, ...]:
        """Returns the energy of each node. Raises InputError for a width the model lacks."""
        bits = dict(zip(self.nodes, widths, strict=True))
        energies = self.model.per_node(self.work, {node: bits[node] for node in self.work.nodes})
        return tuple(energies.get(node, 0.0) for node in self.nodes)

    def by_width(self, widths: Iterable[int]) -> dict[int, tuple[float, ...]]:
        """Returns the energy of each node, for each width that all nodes share."""
        return {bits: self.per_node((bits,) * len(self.nodes)) for bits in sorted(set(widths))}


def energy_cost(
    model: Model,
    dataset: Dataset,
    nodes: Sequence[str],
    energy: EnergyModel,
    addition_convention: str,
) -> EnergyCost:
    """Counts the work of `nodes` on the shapes of one sample of a quantised model.

    A model with a fixed batch is counted with that batch, and the work divided by its size.
    """
    sample = next(dataset.batches(1))
    types = shape_inference.infer(model, FeedSet(sample.inputs, None).shapes)
    table = cost(model, types, convention=addition_convention).table
    own = table.loc[[node for node in nodes if node in table.index]]
    work = Work.of(own.astype({"muls": "Float64", "adds": "Float64"}), operand_bits(model, types))
    batch = dataset.layout.batch or 1
    per_sample = Work(work.nodes, work.muls / batch, work.adds / batch, work.operand_bits,
                      work.weight_bits)  # fmt: skip
    unknown = [node for node in nodes if table["macs"].isna().get(node, True)]
    notes = (f"energies exclude nodes of unknown work: {', '.join(unknown)}",) if unknown else ()
    return EnergyCost(tuple(nodes), energy, per_sample, notes)


def node_work(model: Model, cost: EnergyCost) -> tuple[NodeWork, ...]:
    """Returns the work of each narrow node; 0 for nodes that multiply nothing."""
    nodes = {node.key: node for node in model.nodes}
    work = cost.work
    indices = {node: index for index, node in enumerate(work.nodes)}

    def value(array: FloatArray, node: str) -> float:
        return float(array[indices[node]]) if node in indices else 0.0

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
