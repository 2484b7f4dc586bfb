"""Parses a policy from text on the command line, or from a TOML file."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tracer.accumulators.spec import kinds
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.any_accumulator import AnyAccumulator
from tracer.accumulators.spec.fixed_point import Formats, formats
from tracer.accumulators.spec.kinds import Parsed, width
from tracer.accumulators.spec.kinds.width import PROPERTIES
from tracer.accumulators.spec.operand_format import OperandFormat, operand_format
from tracer.accumulators.spec.policy import ALL, Entry, Policy
from tracer.accumulators.spec.spelling import halves, parts
from tracer.errors import InputError, UsageError, refusing
from tracer.support.files import read_regular

FILE = ".toml"
_FIELD_TYPES: Mapping[str, type] = {"bits": int, "accumulator": str, **PROPERTIES, "fixed": str,
                                      "operands": str}  # fmt: skip
"""Fields of a table in a policy file, and their types."""

_ENTRIES = "A policy is one accumulator, or conv1=18,conv2=16,*=17, or a .toml file."


def read(
    accumulator: str,
    fixed: str | None = None,
    like: Accumulator | None = None,
    operands: str | None = None,
) -> Policy:
    """Parses `accumulator`: `18`, `conv1=18,*=tc:a100`, or the path of a TOML file.

    A value is a spelling of any kind in `spec.kinds`. `fixed` are fixed-point formats of float
    operands: `8:5`, `conv1=16:8,*=8:5/8:7`; `operands` are those of float accumulators: `bf16`,
    `conv*=fp8-e4m3,*=bf16`. Both take precedence over formats in a file. `like` has the properties
    that an entry leaves out. Raises UsageError, naming the entry, where an entry is invalid, and
    for a property of `like` that no entry takes; InputError for a file that cannot be read.
    """
    like = like or Accumulator(32)
    if accumulator.strip().endswith(FILE):
        parsed = _file(Path(accumulator.strip()), like)
    else:
        parsed = _Entries(tuple(_accumulators(accumulator, like)))
    _check_taken(parsed.accumulators, like)
    return Policy(
        tuple(Entry(e.pattern, e.value.accumulator, e.text) for e in parsed.accumulators),
        (*_formats(fixed), *parsed.fixed),
        (*_operands(operands), *parsed.operands),
    )


def policy(
    source: int | str | Path | AnyAccumulator | Policy,
    fixed: str | None = None,
    operands: str | None = None,
) -> Policy:
    """Returns the policy for a width, text that `read` parses, an accumulator, or a policy.

    `fixed` and `operands` are formats as in `read`; they take precedence over those in the policy.
    """
    if isinstance(source, int | str | Path):
        return read(str(source), fixed, operands=operands)
    base = source if isinstance(source, Policy) else Policy.of(source)
    return replace(
        base,
        formats=(*_formats(fixed), *base.formats),
        operands=(*_operands(operands), *base.operands),
    )


class _Entries(NamedTuple):
    """The entries of a policy, before it is checked which properties they take."""

    accumulators: tuple[Entry[Parsed], ...]
    fixed: tuple[Entry[Formats], ...] = ()
    operands: tuple[Entry[OperandFormat], ...] = ()


def _accumulators(text: str, like: Accumulator) -> Iterator[Entry[Parsed]]:
    for entry, pattern, spelling in entries(text, _ENTRIES):
        with _named(f"accumulator '{entry}'"):
            yield Entry(pattern, kinds.parse(spelling, like), entry)


def _check_taken(parsed: Sequence[Entry[Parsed]], like: Accumulator) -> None:
    """Raises UsageError for a property that is set beside the entries, and that none takes."""
    for name in _changed(like):
        if not any(name in entry.value.takes for entry in parsed):
            raise UsageError(
                f"{name} {getattr(like, name)}: no accumulator of the policy takes it",
                f"'{parsed[0].value.accumulator}' has its own; leave out the option.",
            )


def _changed(like: Accumulator) -> list[str]:
    """Returns the properties that are not the default."""
    usual = Accumulator(like.bits)
    return [name for name in PROPERTIES if getattr(like, name) != getattr(usual, name)]


def _formats(text: str | None) -> Iterator[Entry[Formats]]:
    if text is None:
        return
    for entry, pattern, spelling in entries(text, "Formats are 8:5, or conv1=16:8,*=8:5/8:7."):
        with _named(f"fixed point '{entry}'"):
            yield Entry(pattern, formats(spelling), entry)


def _operands(text: str | None) -> Iterator[Entry[OperandFormat]]:
    if text is None:
        return
    for entry, pattern, spelling in entries(text, "Operands are bf16, or conv*=fp8-e4m3,*=bf16."):
        with _named(f"operands '{entry}'"):
            yield Entry(pattern, operand_format(spelling), entry)


def entries(text: str, hint: str) -> Iterator[tuple[str, str, str]]:
    """Yields each entry, its pattern (default `*`), and the value after the last `=`.

    Commas and `=` in parentheses are parts of a value. Raises UsageError, with the hint, for an
    entry without pattern or value.
    """
    for entry in (part.strip() for part in parts(text, ",")):
        pattern, value = (half.strip() for half in halves(entry, "="))
        if not value or (not pattern and value != entry):
            raise UsageError(f"'{text}': the entry '{entry}' is incomplete", hint)
        yield entry, pattern or ALL, value


def _file(path: Path, like: Accumulator) -> _Entries:
    """Reads a TOML file with a table for each pattern."""
    with refusing(lambda why: InputError(f"{path}: not TOML ({why})")):
        tables = tomllib.loads(read_regular(path).decode())
    if not tables:
        raise UsageError(f"{path}: no table", 'A table is ["conv1"] and below it bits = 18.')
    accumulators, fixed, operands = [], [], []
    for pattern, table in tables.items():
        text = f'["{pattern}"] of {path}'
        with _named(text):
            values = _checked(table)
            if "fixed" in values:
                fixed.append(Entry(pattern, formats(values.pop("fixed")), text))
            if "operands" in values:
                operands.append(Entry(pattern, operand_format(values.pop("operands")), text))
            accumulators.append(Entry(pattern, _of_table(values, like), text))
    return _Entries(tuple(accumulators), tuple(fixed), tuple(operands))


def _of_table(values: Mapping[str, Any], like: Accumulator) -> Parsed:
    """Returns the accumulator of a table: `bits`, or `accumulator`, and its properties."""
    properties = {name: value for name, value in values.items() if name in PROPERTIES}
    own = replace(like, **properties)
    if "bits" in values:
        return Parsed(replace(own, bits=values["bits"]), width.TAKES)
    parsed = kinds.parse(values["accumulator"].strip(), own)
    untaken = [name for name in properties if name not in parsed.takes]
    if untaken:
        raise UsageError(
            f"'{parsed.accumulator}' has no {untaken[0]} to set",
            f"Leave out {untaken[0]}, or set a width.",
        )
    return parsed


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
    if ("bits" in table) == ("accumulator" in table):
        both = "bits are missing" if "bits" not in table else "bits and accumulator together"
        raise UsageError(both, 'Every table says bits = … or accumulator = "…".')
    return dict(table)


@contextmanager
def _named(entry: str) -> Iterator[None]:
    """Puts the entry before the message of a UsageError."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{entry}: {error.what}", error.hint) from error
