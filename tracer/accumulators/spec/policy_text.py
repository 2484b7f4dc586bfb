"""Parses a policy from text on the command line, or from a TOML file."""

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.fixed_point import Formats, formats
from tracer.accumulators.spec.policy import ALL, Entry, Policy
from tracer.errors import InputError, UsageError
from tracer.support.files import read_regular

FILE = ".toml"
_DIGITS = 4
_FIELD_TYPES: Mapping[str, type] = {
    "bits": int, "overflow": str, "order": str, "bias": str, "product_bits": int,
    "convention": str, "zero_points": str, "product_shift": int, "product_rounding": str,
    "fixed": str,
}  # fmt: skip
"""Fields of a table in a policy file, and their types."""

_EXAMPLE = "18, or conv1=18,conv2=16,*=17, or a .toml file"


def read(accumulator: str, fixed: str | None = None, like: Accumulator | None = None) -> Policy:
    """Parses `accumulator`: `18`, `conv1=18,*=17`, or the path of a TOML file.

    `fixed` are formats of float operands: `8:5`, `conv1=16:8,*=8:5/8:7`; they take precedence over
    formats in a file. `like` has the properties that an entry leaves out. Raises UsageError, naming
    the entry, where an entry is invalid; InputError for a file that cannot be read.
    """
    like = like or Accumulator(32)
    fixed_entries = tuple(_formats(fixed)) if fixed is not None else ()
    if accumulator.strip().endswith(FILE):
        policy = _file(Path(accumulator.strip()), like)
        return replace(policy, formats=(*fixed_entries, *policy.formats))
    return Policy(tuple(_accumulators(accumulator, like)), fixed_entries)


def policy(source: int | str | Path | Accumulator | Policy, fixed: str | None = None) -> Policy:
    """Returns the policy for a width, text that `read` parses, an accumulator, or a policy.

    `fixed` are formats as in `read`; they take precedence over formats in the policy.
    """
    if not isinstance(source, Accumulator | Policy):
        return read(str(source), fixed)
    base = Policy.of(source) if isinstance(source, Accumulator) else source
    return base if fixed is None else replace(base, formats=(*_formats(fixed), *base.formats))


def _accumulators(text: str, like: Accumulator) -> Iterator[Entry[Accumulator]]:
    for entry, pattern, bits in entries(text, f"A policy is {_EXAMPLE}."):
        if not (bits.isascii() and bits.isdigit() and len(bits) <= _DIGITS):
            raise UsageError(
                f"accumulator '{entry}': '{bits}' is not a width", f"A policy is {_EXAMPLE}."
            )
        with _named(f"accumulator '{entry}'"):
            yield Entry(pattern, replace(like, bits=int(bits)), entry)


def _formats(text: str) -> Iterator[Entry[Formats]]:
    for entry, pattern, spelling in entries(text, "Formats are 8:5, or conv1=16:8,*=8:5/8:7."):
        with _named(f"fixed point '{entry}'"):
            yield Entry(pattern, formats(spelling), entry)


def entries(text: str, hint: str) -> Iterator[tuple[str, str, str]]:
    """Yields each entry, its pattern (default `*`), and the value after the last `=`.

    Raises UsageError, with the hint, for an entry without pattern or value.
    """
    for entry in (part.strip() for part in text.split(",")):
        pattern, _, value = entry.rpartition("=")
        if not value.strip() or ("=" in entry and not pattern.strip()):
            raise UsageError(f"'{text}': the entry '{entry}' is incomplete", hint)
        yield entry, pattern.strip() or ALL, value.strip()


def _file(path: Path, like: Accumulator) -> Policy:
    """Reads a TOML file with a table for each pattern."""
    try:
        tables = tomllib.loads(read_regular(path).decode())
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        raise InputError(f"{path}: not TOML ({error})") from error
    if not tables:
        raise UsageError(f"{path}: no table", 'A table is ["conv1"] and below it bits = 18.')
    accumulators, fixed = [], []
    for pattern, table in tables.items():
        text = f'["{pattern}"] of {path}'
        with _named(text):
            properties = _checked(table)
            if "fixed" in properties:
                fixed.append(Entry(pattern, formats(properties.pop("fixed")), text))
            accumulators.append(Entry(pattern, replace(like, **properties), text))
    return Policy(tuple(accumulators), tuple(fixed))


def _checked(table: Any) -> dict[str, Any]:
    """Returns a copy of a table. Raises UsageError for an unknown field or another type."""
    if not isinstance(table, dict):
        raise UsageError("stands outside any table", 'A table is ["conv1"] and below it bits = 18.')
    for name, value in table.items():
        if isinstance(value, dict):
            raise UsageError(
                f"a table '{name}' in a table",
                'A pattern with a dot is quoted, as in ["stage1.conv1"].',
            )
        if name not in _FIELD_TYPES:
            raise UsageError(f"'{name}' is not known", f"A table has {', '.join(_FIELD_TYPES)}.")
        if type(value) is not _FIELD_TYPES[name]:
            type_name = "a whole number" if _FIELD_TYPES[name] is int else "a text"
            raise UsageError(f"{name} = {value!r}", f"It is {type_name}.")
    if "bits" not in table:
        raise UsageError("bits are missing", "Every table says bits = …")
    return dict(table)


@contextmanager
def _named(entry: str) -> Iterator[None]:
    """Puts the entry before the message of a UsageError."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{entry}: {error.what}", error.hint) from error
