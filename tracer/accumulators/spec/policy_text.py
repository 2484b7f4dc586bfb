"""A policy as it is written: on the command line, or in a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tracer.accumulators.spec import orders
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.fixed_point import Formats, formats
from tracer.accumulators.spec.policy import ALL, Entry, Policy
from tracer.errors import InputError, UsageError

FILE = ".toml"
_DIGITS = 4
_KINDS: Mapping[str, type] = {
    "bits": int, "overflow": str, "order": str, "bias": str, "product_bits": int,
    "convention": str, "zero_points": str, "fixed": str,
}  # fmt: skip
"""What a table of a policy file may say, and with which type."""

_EXAMPLE = "18, or conv1=18,conv2=16,*=17, or a .toml file"


def read(accumulator: str, fixed: str | None = None, like: Accumulator | None = None) -> Policy:
    """The policy that `accumulator` means: `18`, `conv1=18,*=17`, or the path of a TOML file.

    `fixed` are formats for float operands in the same way: `8:5`, `conv1=16:8,*=8:5/8:7`; they
    come before those of a file. `like` has whatever an entry does not say. Raises UsageError for
    an entry that cannot be, naming it; InputError for a file that cannot be read.
    """
    like = like or Accumulator(32)
    given = tuple(_formats(fixed)) if fixed is not None else ()
    if accumulator.strip().endswith(FILE):
        policy = _file(Path(accumulator.strip()), like)
        return Policy(policy.accumulators, (*given, *policy.formats))
    return Policy(tuple(_accumulators(accumulator, like)), given)


def policy(given: int | str | Path | Accumulator | Policy, fixed: str | None = None) -> Policy:
    """A policy from whatever says one: a width, what `read` takes, an accumulator for all.

    `fixed` are formats as `read` takes them, before those that the policy has.
    """
    if not isinstance(given, Accumulator | Policy):
        return read(str(given), fixed)
    whole = Policy.of(given) if isinstance(given, Accumulator) else given
    return whole if fixed is None else replace(whole, formats=(*_formats(fixed), *whole.formats))


def _accumulators(text: str, like: Accumulator) -> Iterator[Entry[Accumulator]]:
    for entry, pattern, bits in entries(text, f"A policy is {_EXAMPLE}."):
        if not (bits.isascii() and bits.isdigit() and len(bits) <= _DIGITS):
            raise UsageError(
                f"accumulator '{entry}': '{bits}' is not a width", f"A policy is {_EXAMPLE}."
            )
        with _naming(f"accumulator '{entry}'"):
            given = replace(like, bits=int(bits))
        yield Entry(pattern, given, entry)


def _formats(text: str) -> Iterator[Entry[Formats]]:
    for entry, pattern, format_ in entries(text, "Formats are 8:5, or conv1=16:8,*=8:5/8:7."):
        with _naming(f"fixed point '{entry}'"):
            given = formats(format_)
        yield Entry(pattern, given, entry)


def entries(text: str, hint: str) -> Iterator[tuple[str, str, str]]:
    """Every entry with its pattern, `*` if there is none, and what comes after the last `=`.

    Raises UsageError, with the hint, for an entry of which a part is missing.
    """
    for entry in (part.strip() for part in text.split(",")):
        pattern, _, given = entry.rpartition("=")
        if not given.strip() or ("=" in entry and not pattern.strip()):
            raise UsageError(f"'{text}': the entry '{entry}' is incomplete", hint)
        yield entry, pattern.strip() or ALL, given.strip()


def _file(path: Path, like: Accumulator) -> Policy:
    """A table for each pattern, in the order of the file."""
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not TOML ({error})") from error
    if not tables:
        raise UsageError(f"{path}: no table", 'A table is ["conv1"] and below it bits = 18.')
    accumulators, fixed = [], []
    for pattern, table in tables.items():
        text = f'["{pattern}"] of {path}'
        with _naming(text):
            said = _checked(table)
            if "fixed" in said:
                fixed.append(Entry(pattern, formats(said.pop("fixed")), text))
            if "order" in said:
                said["order"] = orders.named(said["order"])
            accumulators.append(Entry(pattern, replace(like, **said), text))
    return Policy(tuple(accumulators), tuple(fixed))


def _checked(table: Any) -> dict[str, Any]:
    """A copy of a table that says what it may, in the types it should. Raises UsageError."""
    if not isinstance(table, dict):
        raise UsageError("stands outside any table", 'A table is ["conv1"] and below it bits = 18.')
    for name, value in table.items():
        if isinstance(value, dict):
            raise UsageError(
                f"a table '{name}' in a table",
                'A pattern with a dot is quoted, as in ["stage1.conv1"].',
            )
        if name not in _KINDS:
            raise UsageError(f"'{name}' is not known", f"A table has {', '.join(_KINDS)}.")
        if type(value) is not _KINDS[name]:
            kind = "a whole number" if _KINDS[name] is int else "a text"
            raise UsageError(f"{name} = {value!r}", f"It is {kind}.")
    if "bits" not in table:
        raise UsageError("bits are missing", "Every table says bits = …")
    return dict(table)


@contextmanager
def _naming(entry: str) -> Iterator[None]:
    """Within, a UsageError is told with the entry that it is about."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{entry}: {error.what}", error.hint) from error
