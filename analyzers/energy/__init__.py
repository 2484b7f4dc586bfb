"""Energy of sums of products, from the number of operations and the types of their operands.

`find` returns an energy model by the name of its module in `analyzers.energy.models`, or from a
TOML file with the user's own figures. `energy` fills the column `energy` of the node table.
"""

from __future__ import annotations

import importlib
import tomllib
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tracer.analyzers.cost import Operands, operands
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.analyzers.energy import models
from tracer.analyzers.energy.energy_model import EnergyModel, EnergyRule, FloatEnergy, Work
from tracer.analyzers.options import energy_models
from tracer.errors import InputError, UsageError, refusing
from tracer.support.files import read_regular
from tracer.support.suggestions import suggest
from tracer.support.types import FloatArray

if TYPE_CHECKING:
    from tracer.accumulators.spec.policy import Rule

_OPERATIONS = ("mul", "add")
_KEYS = {"name", "unit", "source", *_OPERATIONS}
_FLOATS = frozenset({
    "float16", "bfloat16", "float32", "float64",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
})  # fmt: skip
_WIDTHS: dict[str, EnergyRule] = {
    "accumulator": lambda operands, weights, widths: widths,
    "operands": lambda operands, weights, widths: np.sqrt(operands * weights),
}
_LARGEST = 1e30
_FORMS = ("polynomial", "table")
_HINT = "'tracer docs energy' shows what such a file holds."

__all__ = [
    "EnergyModel",
    "FloatEnergy",
    "NodeEnergies",
    "Operands",
    "Pricing",
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


@dataclass(frozen=True, slots=True)
class Pricing:
    """An energy model, and the rules of the nodes with narrow accumulators by key."""

    model: EnergyModel
    rules: Mapping[str, Rule] = field(default_factory=dict)

    def energies(self, typed: TypedModel, counts: pd.DataFrame) -> NodeEnergies:
        """Returns the energies of the nodes; see `energy`."""
        return energy(self.model, typed, counts, self.rules)


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
        return _read(Path(spec))
    raise UsageError(
        f"there is no energy model '{spec}'",
        f"{suggest(spec, names())}There are {', '.join(names())}; or give a .toml file.",
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
        rule, factor = rules.get(node), factors[node]
        own = None if rule is None else rule.bits
        bits[node] = own or max(WIDE, factor.activation_bits, factor.weight_bits)
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


def _read(path: Path) -> EnergyModel:
    """Returns the energy model in a TOML file.

    `mul` and `add` each have `bits`, "accumulator" or "operands" (√(activation × weight)), and
    either `polynomial`, coefficients of 1, b, b², …, or `table`, energies by width, interpolated
    linearly. A float type, as `float32`, has two numbers, `mul` and `add`.

    Raises InputError, with file and key, for a file that is missing or not of this form.
    """
    if not path.exists():
        raise InputError(f"{path}: no such energy model", _HINT)
    with refusing(lambda why: InputError(f"{path}: not TOML ({why})", _HINT)):
        document = tomllib.loads(read_regular(path).decode())
    _check_keys(path, "", document, {*_KEYS, *_FLOATS}, {"unit", *_OPERATIONS})
    texts = {key: document.get(key, "") for key in ("name", "unit", "source")}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise InputError(f"{path}: {key} is not a text", _HINT)
    mul, add = (_rule(path, key, document[key]) for key in _OPERATIONS)
    floats = {}
    for key in _FLOATS & set(document):
        table = _table_of(path, key, document[key])
        _check_keys(path, f"{key}.", table, set(_OPERATIONS), set(_OPERATIONS))
        energies = (_positive(path, f"{key}.{name}", table[name]) for name in _OPERATIONS)
        floats[key] = FloatEnergy(*energies)
    name = texts["name"] or path.stem
    return EnergyModel(name, texts["unit"], texts["source"] or str(path), mul, add, floats)


def _table_of(path: Path, key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{path}: {key} is not a table such as [{key}]", _HINT)
    return value


def _rule(path: Path, key: str, value: Any) -> EnergyRule:
    table = _table_of(path, key, value)
    _check_keys(path, f"{key}.", table, {"bits", *_FORMS}, {"bits"})
    width = table["bits"]
    if not isinstance(width, str) or width not in _WIDTHS:
        raise InputError(f"{path}: {key}.bits is {width!r}", f"It is one of {', '.join(_WIDTHS)}.")
    forms = [form for form in _FORMS if form in table]
    if len(forms) != 1:
        raise InputError(f"{path}: {key} has {' and '.join(forms) or 'no energy'}",
                         f"Give one of {key}.polynomial and {key}.table.")  # fmt: skip
    make = _polynomial if forms == ["polynomial"] else _table
    energy = make(path, f"{key}.{forms[0]}", table[forms[0]])
    bits_of = _WIDTHS[width]
    return lambda operands, weights, widths: energy(bits_of(operands, weights, widths))


def _polynomial(path: Path, key: str, values: Any) -> Callable[[FloatArray], FloatArray]:
    if not isinstance(values, list) or not values:
        raise InputError(f"{path}: {key} is not a list of coefficients", _HINT)
    coefficients = [_number(path, f"{key}[{i}]", value) for i, value in enumerate(values)]

    def energies(bits: FloatArray) -> FloatArray:
        result = np.asarray(np.polynomial.polynomial.polyval(bits, coefficients), np.float64)
        if (result < 0).any():
            width = bits[result < 0].flat[0]
            raise InputError(f"{path}: {key} is below 0 at {width:g} bits", _HINT)
        return result

    return energies


def _table(path: Path, key: str, table: Any) -> Callable[[FloatArray], FloatArray]:
    if not isinstance(table, dict) or not table:
        raise InputError(f"{path}: {key} is not a table of energies by width", _HINT)
    points: dict[int, float] = {}
    for name, value in table.items():
        if not (name.isascii() and name.isdigit() and len(name) <= 2 and 1 <= int(name) <= 64):
            raise InputError(f"{path}: {key}.{name} is no width in bits", "Widths are 1 to 64.")
        points[int(name)] = _positive(path, f"{key}.{name}", value)
    widths = sorted(points)

    def energies(bits: FloatArray) -> FloatArray:
        outside = bits[(bits < widths[0]) | (bits > widths[-1])]
        if outside.size:
            raise InputError(
                f"{path}: {key} says nothing of {outside.flat[0]:g} bits",
                f"It has widths {widths[0]} to {widths[-1]}: add the others.",
            )
        return np.interp(bits, widths, [points[width] for width in widths])

    return energies


def _positive(path: Path, key: str, value: Any) -> float:
    number = _number(path, key, value)
    if number < 0:
        raise InputError(f"{path}: {key} is below 0", _HINT)
    return number


def _number(path: Path, key: str, value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not abs(value) < _LARGEST:
        raise InputError(f"{path}: {key} is {value!r:.40}, not a number", _HINT)
    return float(value)


def _check_keys(
    path: Path, prefix: str, table: Mapping[str, Any], known: set[str], needed: set[str]
) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        allowed = ", ".join(sorted(known))
        raise InputError(f"{path}: unknown key {prefix}{unknown[0]}", f"Keys are {allowed}.")
    missing = sorted(needed - set(table))
    if missing:
        raise InputError(f"{path}: no key {prefix}{missing[0]}", _HINT)
