"""Energy of sums of products, from the number of operations and their widths in bits.

`find` returns an energy model by the name of its module in `analyzers.energy.models`, or from a
TOML file with the user's own figures.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from analyzers.energy import model_file, models
from analyzers.energy.energy_model import EnergyModel
from analyzers.energy.work import Work, operand_bits
from tracer.errors import UsageError

__all__ = ["EnergyModel", "Work", "energy", "find", "names", "operand_bits"]


def names() -> tuple[str, ...]:
    """Returns the names of the energy models."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(models.__path__)))


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


def energy(model: EnergyModel, work: Work, bits: Mapping[str, int] | int) -> pd.DataFrame:
    """Returns the column `energy` of the node table, per run, indexed by node key.

    Nodes without sums of products are missing. Raises KeyError for a node without a width.
    """
    energies = model.per_node(work, bits)
    index = pd.Index(list(energies), name="node", dtype="object")
    return pd.DataFrame({"energy": pd.array(list(energies.values()), dtype="Float64")}, index=index)
