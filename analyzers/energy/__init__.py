"""Energy of sums of products, from the number of operations and the types of their operands.

`find` returns an energy model by the name of its module in `analyzers.energy.models`, or from a
TOML file with the user's own figures. `energy` fills the column `energy` of the node table.
"""

import importlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.policy import Rule
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.analyzers.energy import model_file, models
from tracer.analyzers.energy.energy_model import EnergyModel, FloatEnergy, Operands, Work, operands
from tracer.analyzers.options import energy_models
from tracer.errors import UsageError

__all__ = [
    "EnergyModel",
    "FloatEnergy",
    "NodeEnergies",
    "Operands",
    "Work",
    "energy",
    "find",
    "names",
    "operands",
]

WIDE = 32
"""Bits of the accumulator of a node without a narrow one; wider operands have as many as they."""

_LISTED = 6
"""Nodes that a note lists by name; it counts further nodes."""


@dataclass(frozen=True, slots=True)
class NodeEnergies:
    """The column `energy` (Float64), indexed by node key, and notes on nodes without one."""

    table: pd.DataFrame = field(repr=False)
    notes: tuple[str, ...]


def names() -> tuple[str, ...]:
    """Returns the names of the energy models."""
    return energy_models()


def find(spec: str) -> EnergyModel:
    """Returns the energy model called `spec`, or the one in a .toml file.

    Raises UsageError for an unknown name, InputError for a file that is no energy model.
    """
    if spec in names():
        model: EnergyModel = importlib.import_module(f"{models.__name__}.{spec}").MODEL
        return model
    if spec.endswith(".toml"):
        return model_file.read(Path(spec))
    raise UsageError(
        f"there is no energy model '{spec}'",
        f"There are {', '.join(names())}; or give a .toml file.",
    )


def energy(
    energy_model: EnergyModel,
    typed: TypedModel,
    counts: pd.DataFrame,
    rules: Mapping[str, Rule] | None = None,
) -> NodeEnergies:
    """Returns the energies per run of the nodes with known MACs.

    `counts` is the table of `analyzers.cost`. `rules` are those of nodes with narrow accumulators;
    other nodes have 32 bits, or the type of their operands. A float accumulator adds in its format.
    Raises InputError for a width that the user's own figures lack.
    """
    rules = rules or {}
    factors = operands(typed, rules)
    work = Work.of(counts, factors)
    bits = {}
    for node in work.nodes:
        accumulator, factor = getattr(rules.get(node), "accumulator", None), factors[node]
        bits[node] = max(WIDE, factor.activation_bits, factor.weight_bits)
        if isinstance(accumulator, Accumulator):
            bits[node] = accumulator.bits
    energies = energy_model.per_node(work, bits)
    multiplying = counts.index[counts["macs"].fillna(0) > 0]
    unpriced: dict[str, list[str]] = defaultdict(list)
    for node in multiplying.difference(list(energies), sort=False):
        known = factors.get(node)
        kind = energy_model.lacks(known) if known is not None else "operands of unknown type"
        unpriced[f"{energy_model.name} has no figures for {kind}"].append(node)
    index = pd.Index(list(energies), name="node", dtype="object")
    column = pd.array(list(energies.values()), dtype="Float64")
    notes = []
    for why, nodes in unpriced.items():
        more = f" and {len(nodes) - _LISTED} more" if len(nodes) > _LISTED else ""
        listed = f"{', '.join(nodes[:_LISTED])}{more}"
        notes.append(f"energy unknown, excluded from the total: {listed}: {why}")
    return NodeEnergies(pd.DataFrame({"energy": column}, index=index), tuple(notes))
