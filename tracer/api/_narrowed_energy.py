"""Adds the energies of a sample, before and after, to the result of narrowing."""

from dataclasses import replace

import numpy as np

from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.any_accumulator import AnyAccumulator
from tracer.accumulators.spec.policy import Entry, Policy
from tracer.analyzers.energy import EnergyModel, Work
from tracer.graph.model import Model
from tracer.inputs.datasets.dataset import Dataset
from tracer.records.transformed import Narrowed, NarrowedNode
from tracer.records.whatif import EnergyBasis
from tracer.whatif.criteria import EnergyCost, energy_cost

_CONVENTION = "plain"


def with_energies(result: Narrowed, wide: Model, dataset: Dataset, energy: EnergyModel) -> Narrowed:
    """Returns `result` with the energy of each node for one sample, by the model `energy`.

    `wide` is the quantised model. Before, an accumulator has as many bits as the sums of any input
    need, and no fewer than afterwards; both factors have the types of the graph. Afterwards it has
    its own width, and activations have the bits that they are rounded to. Raises InputError for a
    width that the energy model lacks.
    """
    rules = Policy(tuple(map(_entry, result.nodes))).assign(wide.nodes)
    before = energy_cost(wide, dataset, rules, energy, _CONVENTION)
    after = replace(before, work=_coarser(before, result.nodes))
    rows = {node.node: node for node in result.nodes}
    safe = [max(rows[key].guaranteed_before, rows[key].bits) for key in before.nodes]
    pairs = zip(
        before.nodes, before.per_node(safe), after.per_node([rows[k].bits for k in after.nodes]),
        strict=True,
    )  # fmt: skip
    energies = {key: each for key, *each in pairs}
    return replace(
        result,
        nodes=tuple(_priced(node, *energies[node.node]) for node in result.nodes),
        energy=EnergyBasis(energy.name, energy.unit, energy.source, _CONVENTION),
        notes=(*result.notes, *before.notes),
    )


def _entry(node: NarrowedNode) -> Entry[AnyAccumulator]:
    return Entry(node.node, Accumulator(node.bits), node.node, exact=True)


def _priced(node: NarrowedNode, before: float | None, after: float | None) -> NarrowedNode:
    return replace(node, energy_before=before, energy=after)


def _coarser(cost: EnergyCost, nodes: tuple[NarrowedNode, ...]) -> Work:
    """Returns the work with the activations of the changed nodes."""
    bits = {node.node: node.activation_bits for node in nodes if node.activation_bits is not None}
    work = cost.work
    given = zip(work.nodes, work.operand_bits.tolist(), strict=True)
    return replace(work, operand_bits=np.array([bits.get(key, own) for key, own in given], float))
