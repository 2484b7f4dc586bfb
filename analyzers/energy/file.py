"""An energy model from a TOML file of the user's."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from analyzers.energy.energy import EnergyModel, Rule
from analyzers.energy.work import Floats
from tracer.errors import InputError

_OPERATIONS = ("mul", "add")
_KEYS = {"name", "unit", "source", *_OPERATIONS}
_WIDTHS: dict[str, Rule] = {
    "accumulator": lambda operands, weights, widths: widths,
    "operands": lambda operands, weights, widths: np.sqrt(operands * weights),
}
_LARGEST = 1e30
_FORMS = ("polynomial", "table")
_HINT = "docs/energy.md shows what such a file holds."


def read(path: Path) -> EnergyModel:
    """The energy model in a TOML file; the file and the key are named in what is wrong with it.

    `mul` and `add` each have `bits`, "accumulator" or "operands" (√(activation × weight)), and
    either `polynomial`, coefficients of 1, b, b², …, or `table`, energies by width, between which
    lines are drawn. Raises InputError for a file that is missing, no TOML, or not of that form.
    """
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such energy model", _HINT) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error})", _HINT) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not TOML ({error})", _HINT) from error
    _check_keys(path, "", found, _KEYS, {"unit", *_OPERATIONS})
    texts = {key: found.get(key, "") for key in ("name", "unit", "source")}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise InputError(f"{path}: {key} is not a text", _HINT)
    mul, add = (_rule(path, key, found[key]) for key in _OPERATIONS)
    name = texts["name"] or path.stem
    return EnergyModel(name, texts["unit"], texts["source"] or str(path), mul, add)


def _rule(path: Path, key: str, given: Any) -> Rule:
    if not isinstance(given, dict):
        raise InputError(f"{path}: {key} is not a table such as [{key}]", _HINT)
    _check_keys(path, f"{key}.", given, {"bits", *_FORMS}, {"bits"})
    width = given["bits"]
    if not isinstance(width, str) or width not in _WIDTHS:
        raise InputError(f"{path}: {key}.bits is {width!r}", f"It is one of {', '.join(_WIDTHS)}.")
    forms = [form for form in _FORMS if form in given]
    if len(forms) != 1:
        raise InputError(f"{path}: {key} has {' and '.join(forms) or 'no energy'}",
                         f"Give one of {key}.polynomial and {key}.table.")  # fmt: skip
    make = _polynomial if forms == ["polynomial"] else _table
    energy = make(path, f"{key}.{forms[0]}", given[forms[0]])
    bits_of = _WIDTHS[width]
    return lambda operands, weights, widths: energy(bits_of(operands, weights, widths))


def _polynomial(path: Path, key: str, given: Any) -> Callable[[Floats], Floats]:
    if not isinstance(given, list) or not given:
        raise InputError(f"{path}: {key} is not a list of coefficients", _HINT)
    coefficients = [_number(path, f"{key}[{i}]", value) for i, value in enumerate(given)]

    def energies(bits: Floats) -> Floats:
        found = np.asarray(np.polynomial.polynomial.polyval(bits, coefficients), np.float64)
        if (found < 0).any():
            width = bits[found < 0].flat[0]
            raise InputError(f"{path}: {key} is below 0 at {width:g} bits", _HINT)
        return found

    return energies


def _table(path: Path, key: str, given: Any) -> Callable[[Floats], Floats]:
    if not isinstance(given, dict) or not given:
        raise InputError(f"{path}: {key} is not a table of energies by width", _HINT)
    points: dict[int, float] = {}
    for name, value in given.items():
        if not (name.isascii() and name.isdigit() and len(name) <= 2 and 1 <= int(name) <= 64):
            raise InputError(f"{path}: {key}.{name} is no width in bits", "Widths are 1 to 64.")
        points[int(name)] = _number(path, f"{key}.{name}", value)
        if points[int(name)] < 0:
            raise InputError(f"{path}: {key}.{name} is below 0", _HINT)
    widths = sorted(points)
    return lambda bits: _between(path, key, bits, widths, [points[width] for width in widths])


def _between(
    path: Path, key: str, bits: Floats, widths: list[int], energies: list[float]
) -> Floats:
    outside = bits[(bits < widths[0]) | (bits > widths[-1])]
    if outside.size:
        raise InputError(
            f"{path}: {key} says nothing of {outside.flat[0]:g} bits",
            f"It has widths {widths[0]} to {widths[-1]}: add the others.",
        )
    return np.interp(bits, widths, energies)


def _number(path: Path, key: str, value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not abs(value) < _LARGEST:
        raise InputError(f"{path}: {key} is {value!r:.40}, not a number", _HINT)
    return float(value)


def _check_keys(
    path: Path, prefix: str, given: Mapping[str, Any], known: set[str], needed: set[str]
) -> None:
    unknown = sorted(set(given) - known)
    if unknown:
        allowed = ", ".join(sorted(known))
        raise InputError(f"{path}: unknown key {prefix}{unknown[0]}", f"Keys are {allowed}.")
    missing = sorted(needed - set(given))
    if missing:
        raise InputError(f"{path}: no key {prefix}{missing[0]}", _HINT)
