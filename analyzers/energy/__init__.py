"""Energy of sums of products, from the number of operations and the types of their operands.

`find` returns an energy model by the name of its module in `analyzers.energy.models`, or from a
TOML file with the user's own figures. `energy` fills the column `energy` of the node table.
"""

from __future__ import annotations

import importlib
import tomllib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from tracer.analyzers.cost import Operands, operands
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.analyzers.energy import models
from tracer.analyzers.options import energy_models as names
from tracer.errors import InputError, UsageError, refusing
from tracer.support.files import read_regular
from tracer.support.types import FloatArray
from tracer.text import agree, suggest

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

WIDE = 32
"""Bits of the accumulator of a node without a narrow one; wider operands have as many as they."""

_LISTED = 6
"""Nodes that a note lists by name; it counts further nodes."""
OPERAND_BITS = 8
_EIGHT_BITS = Operands(OPERAND_BITS, OPERAND_BITS)


@dataclass(frozen=True)
class Work:
    """Nodes with their multiplications and additions per run, and the types of both factors.

    Arrays are (nodes,): `muls` and `adds` of the node table, float64; `operand_bits`, the width of
    the activations, and `weight_bits`. `float_types` are None for nodes that multiply integers,
    `adders` for those that add integers.
    """

    nodes: tuple[str, ...]
    muls: FloatArray = field(repr=False)
    adds: FloatArray = field(repr=False)
    operand_bits: FloatArray = field(repr=False)
    weight_bits: FloatArray = field(repr=False)
    float_types: tuple[str | None, ...] = field(repr=False)
    adders: tuple[str | None, ...] = field(repr=False)

    @classmethod
    def of(cls, counts: pd.DataFrame, operands: Mapping[str, Operands] | None = None) -> Work:
        """Returns the nodes with MACs of a cost table (indexed by node, `macs`, `muls`, `adds`).

        Without `operands`, all factors are integers of 8 bits. Nodes that they lack are left out.
        """
        table = counts[counts["macs"].fillna(0) > 0]
        if operands is not None:
            table = table[table.index.isin(list(operands))]
        nodes = tuple(str(node) for node in table.index)
        each = [_EIGHT_BITS if operands is None else operands[node] for node in nodes]
        return cls(
            nodes,
            table["muls"].to_numpy(np.float64),
            table["adds"].to_numpy(np.float64),
            np.array([operand.activation_bits for operand in each], np.float64),
            np.array([operand.weight_bits for operand in each], np.float64),
            tuple(operand.float_type for operand in each),
            tuple(operand.adder or operand.float_type for operand in each),
        )

    def widths(self, bits: Mapping[str, int] | int) -> FloatArray:
        """Returns the accumulator bits of each node, float64 (nodes,). Raises KeyError."""
        if isinstance(bits, int):
            return np.full(len(self.nodes), float(bits))
        return np.array([bits[node] for node in self.nodes], np.float64)


EnergyRule: TypeAlias = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
"""Maps bits of activation, weight and accumulator to the energy of one integer operation."""


class FloatEnergy(NamedTuple):
    """Energies of one multiplication and one addition of floats."""

    multiplication: float
    addition: float


@dataclass(frozen=True, slots=True)
class EnergyModel:
    """Energies of a multiplication and an addition, in `unit`; `source` cites their origin.

    `multiplication` and `addition` are rules for integers. `floats` has the figures of float types
    by name, as `float16`; a type without figures has no energy. Only sums of products count:
    memory traffic and other arithmetic do not depend on the width of the accumulator.
    """

    name: str
    unit: str
    source: str
    multiplication: EnergyRule = field(repr=False)
    addition: EnergyRule = field(repr=False)
    floats: Mapping[str, FloatEnergy] = field(default_factory=dict, repr=False)

    @property
    def settings(self) -> dict[str, str]:
        """What a trace says of its energies."""
        return {"model": self.name, "unit": self.unit, "source": self.source}

    def energies(self, work: Work, widths: FloatArray) -> FloatArray:
        """Returns the energy per run of each node, float64 (..., nodes); NaN without figures.

        `widths` has the accumulator bits: (nodes,), or (candidates, nodes) for many assignments.
        Nodes that add floats do not depend on them.
        """
        bits = work.operand_bits, work.weight_bits, widths
        multiplied = self._of_operation("multiplication", bits, work.float_types)
        added = self._of_operation("addition", bits, work.adders)
        return multiplied * work.muls + added * work.adds

    def _of_operation(
        self,
        operation: Literal["multiplication", "addition"],
        bits: tuple[FloatArray, FloatArray, FloatArray],
        types: Sequence[str | None],
    ) -> FloatArray:
        """Returns the energy of one operation in each node: by its rule where the type is None."""
        rule: EnergyRule = getattr(self, operation)
        operands, weights, widths = bits
        energies = np.full(widths.shape, np.nan)
        ints = np.array([name is None for name in types], bool)
        energies[..., ints] = rule(operands[ints], weights[ints], widths[..., ints])
        for index, name in enumerate(types):
            if name is not None and name in self.floats:
                energies[..., index] = getattr(self.floats[name], operation)
        return energies

    def lacks(self, operands: Operands) -> str | None:
        """Returns the type of floats that a node multiplies or adds and that has no figures."""
        types = (operands.float_type, operands.adder)
        return next((name for name in types if name is not None and name not in self.floats), None)

    def per_node(self, work: Work, bits: Mapping[str, int] | int) -> dict[str, float]:
        """Returns the energy per run of each node; `bits` is one width or a width for each node.

        Nodes of a type without figures are left out. Raises KeyError for a node without a width.
        """
        energies = self.energies(work, work.widths(bits))
        pairs = zip(work.nodes, energies.tolist(), strict=True)
        return {node: energy for node, energy in pairs if energy == energy}  # NaN differs

    def total(self, work: Work, bits: Mapping[str, int] | int) -> float:
        """Returns the energy per run of all nodes with figures. Raises KeyError as `per_node`."""
        return float(sum(self.per_node(work, bits).values()))


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
            at = f"{width:g} {agree(width, 'bit', 'bits')}"
            raise InputError(f"{path}: {key} is below 0 at {at}", _HINT)
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
                f"{path}: {key} says nothing of {outside.flat[0]:g} "
                f"{agree(outside.flat[0], 'bit', 'bits')}",
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
