"""Energy of sums of products: pure functions of how many operations there are and how wide.

An energy model is one module; `find` takes its name, or a TOML file with the user's own figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from analyzers.energy import file, horowitz45, lab, qtools
from analyzers.energy.energy import EnergyModel
from analyzers.energy.work import Work, operand_bits
from tracer.errors import UsageError

ENERGY_MODELS = {model.name: model for model in (lab.MODEL, horowitz45.MODEL, qtools.MODEL)}
"""The energy models with a name."""


def find(spec: str) -> EnergyModel:
    """The energy model called `spec`, or that of a .toml file.

    Raises UsageError for an unknown name, InputError for a file that is none.
    """
    if spec in ENERGY_MODELS:
        return ENERGY_MODELS[spec]
    if spec.endswith(".toml"):
        return file.read(Path(spec))
    raise UsageError(
        f"there is no energy model '{spec}'",
        f"There are {', '.join(ENERGY_MODELS)}; or give a .toml file.",
    )


def energy(model: EnergyModel, work: Work, bits: Mapping[str, int] | int) -> pd.DataFrame:
    """The column `energy` of the node table, per run, indexed by node key.

    Nodes without sums of products are missing. Raises KeyError for a node without a width.
    """
    found = model.per_node(work, bits)
    values = pd.array(list(found.values()), dtype="Float64")
    return pd.DataFrame(
        {"energy": values}, index=pd.Index(list(found), name="node", dtype="object")
    )


__all__ = ["ENERGY_MODELS", "EnergyModel", "Work", "energy", "find", "operand_bits"]
