"""Checks arguments at the entry of a function: `RULES` says what each name may be.

An argument has the same name, and so the same rule, in every function and on the command line.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from tracer.errors import UsageError

LARGEST = 2**31 - 1
"""Largest count and dimension; a larger one is a typing error."""

BOUNDS = {
    "batch": (1, LARGEST), "tile": (1, LARGEST), "runs": (1, LARGEST),
    "warmup": (0, LARGEST), "threads": (0, 1024),
    "seed": (0, 2**32 - 1), "replay": (0, LARGEST), "split": (0, LARGEST),
    "depth": (1, LARGEST), "limit": (1, LARGEST), "test_limit": (1, LARGEST), "sessions": (2, 1024),
    "prefill": (1, LARGEST), "decode": (1, LARGEST), "past": (0, LARGEST),
}  # fmt: skip
"""Least and greatest whole number. The seeds are those that numpy takes."""

_REPEATED = 60
"""Characters of a value that a message repeats."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What an argument may be: `allowed` in words, and `holds` for a value.

    `reads` says how a command line reads it: the name of a type of `tracer.cli._types`, and its
    arguments; () for any text. `takes_none`: None is allowed besides, which `allowed` leaves out.
    """

    allowed: str
    holds: Callable[[Any], bool]
    reads: tuple[Any, ...] = ()
    takes_none: bool = False


def integer(least: int = 0, most: int = LARGEST) -> Rule:
    """A whole number, of Python or numpy, from `least` to `most`; True and False are none."""
    return Rule(
        f"a whole number from {least:,} to {most:,}",
        lambda v: isinstance(v, Integral) and not isinstance(v, bool) and least <= int(v) <= most,
        ("count", least, most),
    )


def amount(unit: str = "") -> Rule:
    """A finite number of at least 0."""
    return Rule(
        f"a number of {unit}{' of ' if unit else ''}at least 0",
        lambda v: (
            isinstance(v, Real) and not isinstance(v, bool) and math.isfinite(v) and float(v) >= 0
        ),
        ("amount", unit or "number"),
    )


def instance(*names: str) -> Rule:
    """An object of one of these classes, by their full names, so that none is imported."""

    def holds(value: object) -> bool:
        bases = type(value).__mro__
        return any(f"{base.__module__}.{base.__qualname__}" in names for base in bases)

    return Rule(f"a {' or '.join(names)}", holds)


def _listed(value: object, rule: Rule) -> bool:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return False
    return len(value) > 0 and all(rule.holds(each) for each in value)


def maybe(rule: Rule) -> Rule:
    """What `rule` allows, or None."""
    return replace(rule, holds=lambda v: v is None or rule.holds(v), takes_none=True)


def several(rule: Rule) -> Rule:
    """A list of what `rule` allows, one at least."""
    reads = _LISTS.get(rule.reads[:1], rule.reads[:1]) + rule.reads[1:]
    return Rule(f"a list, each {rule.allowed}", lambda v: _listed(v, rule), reads)


def either(*rules: Rule) -> Rule:
    """What one of `rules` allows."""
    return Rule(
        "; or ".join(rule.allowed for rule in rules), lambda v: any(r.holds(v) for r in rules)
    )


def swept(rule: Rule) -> Rule:
    """What `rule` allows, or a list of it."""
    return Rule(
        f"{rule.allowed}, or a list of them", lambda v: rule.holds(v) or _listed(v, rule),
        several(rule).reads,
    )  # fmt: skip


def mapping(rule: Rule) -> Rule:
    """A mapping of names to what `rule` allows."""
    return Rule(
        f"a mapping of names, each to {rule.allowed}",
        lambda v: (
            isinstance(v, Mapping)
            and all(isinstance(name, str) and rule.holds(each) for name, each in v.items())
        ),
        _PAIRS.get(rule.reads[:1], ("pair",)),
    )


_LISTS = {(): ("words",), ("count",): ("counts",)}
_PAIRS = {("count",): ("size",)}
"""What a command line reads lists and pairs of a type as."""

ANYTHING = Rule("anything", lambda v: True)
"""For arguments that another check names."""
FLAG = Rule("True or False", lambda v: isinstance(v, bool))
TEXT = Rule("text", lambda v: isinstance(v, str))
PATH = Rule("a path", lambda v: isinstance(v, str | Path) and str(v) != "", ("path",))
FUNCTION = Rule("a function", callable)

_COUNTS = {name: integer(*bounds) for name, bounds in BOUNDS.items()}
_SIZES = several(integer())
_SHAPES = Rule(
    "a shape with the batch first, as (1, 3, 32, 32), or a list of shapes",
    either(_SIZES, several(_SIZES)).holds,
)
_EMPTY = Rule("an empty list", lambda v: isinstance(v, list | tuple) and not v)
_INPUTS = Rule(
    "a path, a list of paths, arrays by name, a tracer.Samples",
    either(swept(PATH), _EMPTY, instance("tracer.inputs.request.Samples")).holds,
)

RULES: Mapping[str, Rule] = {
    **{name: rule if name == "seed" else maybe(rule) for name, rule in _COUNTS.items()},
    **dict.fromkeys(
        ("force", "confirm", "backward", "compiled", "trust", "train", "by_sample",
         "in_process", "run"), FLAG
    ),
    **dict.fromkeys(("convention", "executor", "device", "by"), TEXT),
    **dict.fromkeys(
        ("optimization", "provider", "energy", "metric", "fixed", "operands", "against",
         "fallback", "loss", "optimizer", "framework"), maybe(TEXT),
    ),
    **dict.fromkeys(("path", "data", "data_dir"), PATH),
    **dict.fromkeys(("output", "calibrate", "test", "trace", "weights", "plan"), maybe(PATH)),
    **dict.fromkeys(("receive", "peaks", "keep", "note"), maybe(FUNCTION)),
    "target": ANYTHING,
    "progress": maybe(either(FUNCTION, FLAG)),
    "machine": maybe(PATH),
    "models": Rule("a list of models", lambda v: isinstance(v, list | tuple)),
    "model": ANYTHING,  # opening or exporting it says what it is not
    "accumulator": maybe(
        either(integer(), PATH, instance(*(f"tracer.accumulators.spec.{name}" for name in
                                         ("accumulator.Accumulator", "accumulator.ByOperands",
                                          "float_accumulator.FloatAccumulator",
                                          "block_fma.BlockFma", "policy.Policy"))))
    ),
    "receivers": ANYTHING,
    "cluster": maybe(either(TEXT, instance("distributed.client.Client"))),
    "min_time": maybe(amount("seconds")),
    "precision": maybe(amount()),
    **dict.fromkeys(("fail_above", "fail_unless_within"), maybe(amount())),
    "dims": maybe(mapping(integer(0))),
    "provider_options": maybe(mapping(TEXT)),
    "register": Rule("a list of paths", either(_EMPTY, several(PATH)).holds, ("path",)),
    "args": maybe(replace(mapping(ANYTHING), reads=("argument",))),
    "inputs": maybe(_INPUTS),
    "sides": several(either(TEXT, PATH, instance(
        "tracer.records.trace.Trace", "onnx.onnx_ml_pb2.ModelProto", "tracer.graph.model.Model",
        "tracer.exporters.subject.Code"))),
    "metrics": maybe(several(TEXT)),
    "batches": several(_COUNTS["batch"]),
    "input_shape": maybe(_SHAPES),
    "input_dtype": swept(TEXT),
    "limits": maybe(instance("tracer.limits.Limits")),
    "tolerance": maybe(instance("tracer.support.tolerance.Tolerance")),
    "settings": instance("tracer.api.compare.SideSettings"),
    "traces": several(either(PATH, instance("tracer.records.trace.Trace"))),
    "result": instance("tracer.records.result.Result"),
}  # fmt: skip
"""By name of the argument; a function passes the rules that differ to `check_arguments`."""


def check_arguments(arguments: Mapping[str, object], rules: Mapping[str, Rule] = RULES) -> None:
    """Raises UsageError for an argument that its rule does not allow: of `rules`, else `RULES`."""
    for name, value in arguments.items():
        rule = rules.get(name) or RULES[name]
        if not rule.holds(value):
            text = repr(value)
            if len(text) > _REPEATED or "\n" in text:
                kind = type(value)
                text = (
                    f"{text[:_REPEATED].splitlines()[0]}… ({kind.__module__}.{kind.__qualname__})"
                )
            allowed = f"{rule.allowed}, or None" if rule.takes_none else rule.allowed
            raise UsageError(f"{name} is {text}", f"Give {allowed}.")


def argument(default: Any = MISSING, *, rule: Rule | None = None, kw_only: Any = MISSING) -> Any:
    """Declares a field of a record of arguments; without a `rule`, that of its name in `RULES`."""
    return field(default=default, kw_only=kw_only, metadata={"rule": rule})


def option(
    help: str, default: Any = MISSING, *, group: str | None = None, rule: Rule | None = None,
    kw_only: Any = MISSING, factory: Any = MISSING, **line: Any,
) -> Any:  # fmt: skip
    """Declares a field that an option of a command sets, in the section `group` of its help.

    `factory` makes a default that can change. `line` is what `tracer.cli._options` needs to know
    besides: `flag` [default: the name], `reads` [default: that of the rule], `metavar`, `multiple`,
    `convert` from what the command line reads, `python`, another argument that has its meaning,
    `typed`, a default of the command alone, whether the help shows the default (`shown`), whether
    the seconds limit the command (`limits_command`), and whether the short help shows the option
    (`common`).
    """
    metadata = {"rule": rule, "help": help, "group": group, **line}
    if factory is not MISSING:
        return field(default_factory=factory, kw_only=kw_only, metadata=metadata)
    return field(default=default, kw_only=kw_only, metadata=metadata)


def flag_of(declared: Field[Any]) -> str:
    """Returns the option that a field declares, as on the command line."""
    return str(declared.metadata.get("flag", "--" + declared.name.replace("_", "-")))


def names_of_options(record: Any, path: str = "") -> dict[str, str]:
    """Returns the argument in Python that each option of the fields sets."""
    names = dict[str, str]()
    for each in fields(record):
        if "part" in each.metadata:
            names |= names_of_options(each.metadata["part"], f"{each.name}.")
        own = each.metadata.get("python", each.name)
        name = own if path == f"{own}." else f"{path}{own}"
        positive, _, negative = flag_of(each).partition("/")
        names |= dict.fromkeys(("--" + each.name.replace("_", "-"), *positive.split()), name)
        names |= {negative: f"{name}=False"} if negative else {}
    return names


_OPTION = re.compile(
    r"(?P<command>`?\b(?:tracer|python -m) [a-z].*?(?:`|[,;:.] |$))"
    r"|(?<![\w-])(?P<flag>--[a-z][a-z-]*)"
    r"(?:(?P<pairs>(?: (?:(?P=flag) )?(?:[\w:.-]+=[\w…]+|'[^']+=[\w…]+'))+)"
    r"| (?P<value>\d(?:[\d.,]*\d)?\b|[a-z.:]*[A-Z]{2,}(?:[\w.:]*\w)?))?",
    re.DOTALL,
)
"""A whole command, or an option with its value, in a message for the command line."""


def in_python(text: str, names: Mapping[str, str]) -> str:
    """Returns a message with arguments of Python for those options that `names` has.

    Whole commands stay as they are.
    """

    def spell(match: re.Match[str]) -> str:
        if match["command"] or match["flag"] not in names:
            return match[0]
        value = match["value"] or ""
        if match["pairs"]:
            pairs = re.findall(r"([\w:.-]+|(?<=')[^']+)=([\w…]+)", match["pairs"])
            value = f"{{{', '.join(f'{key!r}: {each}' for key, each in pairs)}}}"
        elif "," in value:
            value = f"({value})"
        return names[match["flag"]] + (value and f"={value}")

    return _OPTION.sub(spell, text)


def check_declared(record: Any) -> None:
    """Raises TypeError for a field that no rule checks or, if an option sets a number, reads.

    A wrong value would be an internal error, or a text.
    """
    for each in fields(record):
        rule, line = each.metadata.get("rule") or RULES.get(each.name), each.metadata
        is_number = not {"int", "float"}.isdisjoint(str(each.type).split(" | ")) and "help" in line
        is_read = bool(line.keys() & {"reads", "type"} or (rule and rule.reads))
        if (is_number and not is_read) or (rule is None and hasattr(record, "__post_init__")):
            raise TypeError(
                f"no rule says what {record.__name__}.{each.name} may be: give it a rule, as in "
                f"rule=integer(1), or '{each.name}' one in tracer.support.arguments.RULES"
            )


def part(options: type[Any], default: Any = MISSING, *, rule: Rule | None = None,
         build: Callable[..., Any] | None = None) -> Any:  # fmt: skip
    """Declares a field that all options of the record `options` set together, by `build`."""
    metadata = {"rule": rule, "part": options, "build": build or options}
    return field(default=default, metadata=metadata)


def check_fields(record: Any) -> None:
    """Raises UsageError for a field of a dataclass that its rule does not allow."""
    values = {each.name: getattr(record, each.name) for each in fields(record)}
    rules = {each.name: each.metadata.get("rule") for each in fields(record)}
    check_arguments(values, {name: rule for name, rule in rules.items() if rule is not None})
