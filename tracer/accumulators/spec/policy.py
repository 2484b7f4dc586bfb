"""Policies: which accumulator and which format of operands each node has, from text or TOML."""

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from tracer.accumulators.spec import halves, kinds, parts
from tracer.accumulators.spec.accumulator import Accumulator, AnyAccumulator
from tracer.accumulators.spec.float_accumulator import FloatAccumulator
from tracer.accumulators.spec.kinds import PROPERTIES, Parsed
from tracer.accumulators.spec.operand_format import Formats, OperandFormat, formats, operand_format
from tracer.errors import InputError, UsageError, locate_errors, refusing
from tracer.graph.model import Node
from tracer.graph.operators import CONVERSIONS
from tracer.support.files import read_regular
from tracer.text import printable, suggest

ALL = "*"
POLICY_FILE = ".toml"
_NAMES_LISTED = 10
_SHOWN = 120
"""Characters of an entry that a message repeats."""
_FIELD_TYPES: Mapping[str, type] = {"bits": int, "accumulator": str, **PROPERTIES, "fixed": str,
                                      "operands": str}  # fmt: skip
"""Fields of a table in a policy file, and their types."""
ValueT = TypeVar("ValueT")
Traits = Callable[[Node], Sequence[str]]
"""Returns the traits of a node, as "depthwise"."""


@dataclass(frozen=True, slots=True)
class Entry(Generic[ValueT]):
    """The value of the nodes that `pattern` matches; `text` is the entry as the user wrote it.

    A pattern is a node's key, its operator or its module, with `*`, `?` and `[…]` as in a shell.
    With `exact`, it is a node's key and nothing else. `instead` has the values of operators, and of
    nodes of other traits, that have another one.
    """

    pattern: str
    value: ValueT
    text: str
    exact: bool = False
    instead: Mapping[str, ValueT] = field(default_factory=dict)

    def value_of(self, node: Node, traits: Traits) -> ValueT:
        """Returns the value of a node that the pattern describes."""
        found = (node.op_type, *traits(node)) if self.instead else ()
        return next((self.instead[each] for each in found if each in self.instead), self.value)

    def matches(self, node: Node) -> bool:
        """Whether the pattern describes the node's key, operator or module."""
        if self.exact:
            return node.key == self.pattern
        names = (node.key, node.op_type, node.qualified_type, node.module or "")
        return any(n == self.pattern or fnmatchcase(n, self.pattern) for n in names if n)

    def without_effect(self, nodes: Sequence[Node]) -> UsageError:
        """Returns the error that says why this entry is the first match of none of `nodes`."""
        taken = next((node.key for node in nodes if self.matches(node)), None)
        if taken is not None:
            return UsageError(
                f"entry '{self.text}' has no effect: an earlier entry already matches every node "
                f"it names (e.g. '{taken}')",
                "The first entry that matches a node counts: put the special before the general.",
            )
        computing = [node for node in nodes if node.op_type not in CONVERSIONS]
        names = [node.op_type for node in computing]
        names = list(dict.fromkeys(names + [n for x in computing for n in (x.module, x.key) if n]))
        more = ", …" if len(names) > _NAMES_LISTED else ""
        listed = f"There are {', '.join(names[:_NAMES_LISTED]) or 'none'}{more}."
        return UsageError(
            f"entry '{self.text}' matches no node, operator or module",
            f"{suggest(self.pattern, names)}{listed}",
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """The accumulator of one node, and the format that its operands are brought into.

    `format` are fixed-point formats for sums of integers in a float graph, `operands` is a format
    for sums of floats.
    """

    accumulator: AnyAccumulator
    format: Formats | None = None
    operands: OperandFormat | None = None

    @property
    def bits(self) -> int | None:
        """The width of an accumulator of integers; None where floats are added."""
        return self.accumulator.bits if isinstance(self.accumulator, Accumulator) else None

    @property
    def adder(self) -> str | None:
        """The float format that adds, or the spelling of what has several; None for integers."""
        if isinstance(self.accumulator, Accumulator):
            return None
        if isinstance(self.accumulator, FloatAccumulator):
            return str(self.accumulator.format)
        return str(self.accumulator)


@dataclass(frozen=True, slots=True)
class Policy:
    """Accumulators and formats by node; the first entry that matches a node counts.

    `formats` are fixed-point formats of operands whose products are summed in integers, `operands`
    formats of those summed in floats. Raises UsageError for formats without such an accumulator.

    >>> import tracer
    >>> print(tracer.Policy.of(tracer.Accumulator(16)))
    *=16
    """

    accumulators: tuple[Entry[AnyAccumulator], ...]
    formats: tuple[Entry[Formats], ...] = ()
    operands: tuple[Entry[OperandFormat], ...] = ()

    def __post_init__(self) -> None:
        if self.formats and not self.adds_integers:
            raise UsageError(
                f"fixed-point format '{self.formats[0].text}', and no accumulator adds integers",
                "Set formats of operands of float accumulators, as in --operands bf16.",
            )
        if self.operands and all(isinstance(e.value, Accumulator) for e in self.accumulators):
            raise UsageError(
                f"operands '{self.operands[0].text}', and no accumulator adds floats",
                "Set one such as fp32 or tc:a100, or fixed-point formats with --fixed.",
            )

    @property
    def adds_integers(self) -> bool:
        """Whether any accumulator adds integers."""
        return any(isinstance(entry.value, Accumulator) for entry in self.accumulators)

    @classmethod
    def of(cls, accumulator: AnyAccumulator, fixed: Formats | None = None) -> "Policy":
        """Returns the policy with the same rule for every node."""
        text = f"{ALL}={accumulator}"
        formats = () if fixed is None else (Entry(ALL, fixed, f"{ALL}={fixed}"),)
        return cls((Entry(ALL, accumulator, text),), formats)

    def __str__(self) -> str:
        """The entries as they were written."""
        parts = self.accumulators, self.formats, self.operands
        return ",".join(dict.fromkeys(entry.text for part in parts for entry in part))

    def assign(self, nodes: Sequence[Node], traits: Traits = lambda _: ()) -> dict[str, Rule]:
        """Returns the rules of `nodes` by key, in their order, without the nodes no entry matches.

        `traits` are what presets tell nodes apart by, besides their operator.
        Raises UsageError for an entry other than `*` that is the first match of no node.
        """
        entries = first_matches(self.accumulators, nodes)
        by_key = {node.key: node for node in nodes}
        accumulators = {key: entry.value_of(by_key[key], traits) for key, entry in entries.items()}
        formats = {key: entry.value for key, entry in first_matches(self.formats, nodes).items()}
        operands = {key: entry.value for key, entry in first_matches(self.operands, nodes).items()}
        return {
            key: Rule(accumulator, format=formats.get(key))
            if isinstance(accumulator, Accumulator)
            else Rule(accumulator, operands=operands.get(key))
            for key, accumulator in accumulators.items()
        }


def first_matches(
    entries: Sequence[Entry[ValueT]], nodes: Sequence[Node]
) -> Mapping[str, Entry[ValueT]]:
    """Returns the first entry that matches each of `nodes`, by key; nodes without one are left out.

    Raises UsageError for an entry other than `*` that is the first match of no node.
    """
    matches = {}
    for node in nodes:
        entry = next((entry for entry in entries if entry.matches(node)), None)
        if entry is not None:
            matches[node.key] = entry
    used = {id(entry) for entry in matches.values()}
    for entry in entries:
        if id(entry) not in used and entry.pattern != ALL:
            raise entry.without_effect(nodes)
    return matches


def as_policy(
    source: int | str | Path | AnyAccumulator | Policy,
    fixed: str | None = None,
    operands: str | None = None,
) -> Policy:
    """Returns the policy for a width, text that `parse_policy` parses, an accumulator, or a policy.

    `fixed` and `operands` are formats as in `parse_policy`; they take precedence over those in the
    policy.
    """
    if isinstance(source, int | str | Path):
        return parse_policy(str(source), fixed, operands=operands)
    base = source if isinstance(source, Policy) else Policy.of(source)
    return _with_formats(base.accumulators, fixed, operands, base.formats, base.operands)


def parse_policy(
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
    if accumulator.strip().endswith(POLICY_FILE):
        parsed = _read_file(Path(accumulator.strip()), like)
    else:
        hint = "A policy is one accumulator, or conv1=18,conv2=16,*=17, or a .toml file."
        entries = _entries(accumulator, "accumulator", hint, lambda text: kinds.parse(text, like))
        parsed = _Entries(entries)
    usual = Accumulator(like.bits)
    for name in PROPERTIES:
        own = getattr(like, name)
        if own != getattr(usual, name) and not any(
            name in entry.value.takes for entry in parsed.accumulators
        ):
            raise UsageError(
                f"{name} {own}: no accumulator of the policy takes it",
                f"'{parsed.accumulators[0].value.accumulator}' has its own; leave out the option.",
            )
    accumulators = tuple(
        Entry(each.pattern, each.value.accumulator, each.text, instead=each.value.instead)
        for each in parsed.accumulators
    )
    return _with_formats(accumulators, fixed, operands, parsed.fixed, parsed.operands)


def _with_formats(
    accumulators: tuple[Entry[AnyAccumulator], ...],
    fixed: str | None,
    operands: str | None,
    further_fixed: tuple[Entry[Formats], ...],
    further_operands: tuple[Entry[OperandFormat], ...],
) -> Policy:
    """Returns the policy with the formats of the texts before further ones."""
    hint = "Formats are 8:5, or conv1=16:8,*=8:5/8:7."
    own_fixed = _entries(fixed, "fixed point", hint, formats)
    hint = "Operands are bf16, or conv*=fp8-e4m3,*=bf16."
    own_operands = _entries(operands, "operands", hint, operand_format)
    return Policy(accumulators, (*own_fixed, *further_fixed), (*own_operands, *further_operands))


class _Entries(NamedTuple):
    """The entries of a policy, before it is checked which properties they take."""

    accumulators: tuple[Entry[Parsed], ...]
    fixed: tuple[Entry[Formats], ...] = ()
    operands: tuple[Entry[OperandFormat], ...] = ()


def _entries(
    text: str | None, what: str, hint: str, parse: Callable[[str], ValueT]
) -> tuple[Entry[ValueT], ...]:
    """Parses entries, of which None has none; messages name `what` an entry is."""
    result = []
    for entry, pattern, spelling in () if text is None else split_entries(text, hint):
        with locate_errors(printable(f"{what} '{entry}'", _SHOWN)):
            result.append(Entry(pattern, parse(spelling), entry))
    return tuple(result)


def split_entries(text: str, hint: str) -> Iterator[tuple[str, str, str]]:
    """Yields each entry, its pattern (default `*`), and the value after the last `=`.

    Commas and `=` in parentheses are parts of a value. Raises UsageError, with the hint, for an
    entry without pattern or value.
    """
    for entry in (part.strip() for part in parts(text, ",")):
        pattern, value = (half.strip() for half in halves(entry, "="))
        if not value or (not pattern and value != entry):
            raise UsageError(f"'{text}': the entry '{entry}' is incomplete", hint)
        yield entry, pattern or ALL, value


def _read_file(path: Path, like: Accumulator) -> _Entries:
    """Reads a TOML file with a table for each pattern."""
    with refusing(lambda why: InputError(f"{path}: not TOML ({why})")):
        tables = tomllib.loads(read_regular(path).decode())
    if not tables:
        raise UsageError(f"{path}: no table", 'A table is ["conv1"] and below it bits = 18.')
    accumulators, fixed, operands = [], [], []
    for pattern, table in tables.items():
        text = f'["{pattern}"] of {path}'
        with locate_errors(printable(text, _SHOWN)):
            _check_table(table)
            if "fixed" in table:
                fixed.append(Entry(pattern, formats(table["fixed"]), text))
            if "operands" in table:
                operands.append(Entry(pattern, operand_format(table["operands"]), text))
            accumulators.append(Entry(pattern, _table_accumulator(table, like), text))
    return _Entries(tuple(accumulators), tuple(fixed), tuple(operands))


def _table_accumulator(table: Mapping[str, Any], like: Accumulator) -> Parsed:
    """Returns the accumulator of a table: `bits`, or `accumulator`, and its properties."""
    properties = {name: value for name, value in table.items() if name in PROPERTIES}
    own = replace(like, **properties)
    if "bits" in table:
        bits = table["bits"]
        widths = bits if isinstance(bits, list) else [bits]
        return Parsed(kinds.with_widths(own, widths), kinds.WIDTH.takes, {})
    parsed = kinds.parse(table["accumulator"].strip(), own)
    untaken = [name for name in properties if name not in parsed.takes]
    if untaken:
        raise UsageError(
            f"'{parsed.accumulator}' has no {untaken[0]} to set",
            f"Leave out {untaken[0]}, or set a width.",
        )
    return parsed


def _check_table(table: Any) -> None:
    """Raises UsageError for an unknown field of a table, or one of another type."""
    if not isinstance(table, dict):
        raise UsageError("stands outside any table", 'A table is ["conv1"] and below it bits = 18.')
    for name, value in table.items():
        if isinstance(value, dict):
            raise UsageError(
                f"a table '{name}' in a table",
                'A pattern with a dot is quoted, as in ["stage1.conv1"].',
            )
        if name not in _FIELD_TYPES:
            hint = f"{suggest(name, _FIELD_TYPES)}A table has {', '.join(_FIELD_TYPES)}."
            raise UsageError(f"'{name}' is not known", hint)
        is_by_channel = name == "bits" and isinstance(value, list)
        if is_by_channel and all(type(bits) is int for bits in value):
            continue
        if type(value) is not _FIELD_TYPES[name]:
            type_name = "a whole number" if _FIELD_TYPES[name] is int else "a text"
            raise UsageError(f"{name} = {value!r}", f"It is {type_name}.")
    if ("bits" in table) == ("accumulator" in table):
        both = "bits are missing" if "bits" not in table else "bits and accumulator together"
        raise UsageError(both, 'Every table says bits = … or accumulator = "…".')
