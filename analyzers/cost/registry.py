"""The registry of counting rules; modules of `analyzers.cost.rules` register theirs on import.

A rule tells the work of an operator, and its bytes: each input and output once, or as the rule
says. Caches are not modelled: a tensor that one operator reads twice counts once.
"""

import importlib
import pkgutil
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from tracer.analyzers.cost.count import NOTHING, Count, UnknownWorkError
from tracer.analyzers.cost.operation import LARGEST, Operand, Operation

Bytes = int | None
Traffic = Callable[[Operation], tuple[Bytes, Bytes]]
"""Returns bytes read and bytes written by one execution; None is unknown."""

Work = Callable[[Operation], Count]
"""Returns the work of one execution. Raises UnknownWorkError with the reason if it is unknown."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The counting rule of an operator.

    `settings` are inputs that are never parameters: shapes, axes, bounds, scales of a number
    format, running statistics. `packed` returns the number of weights of an input that packs
    several in one element.
    """

    work: Work
    traffic: Traffic
    settings: frozenset[int]
    packed: Mapping[int, Callable[[Operation], int]]


def everything(op: Operation) -> tuple[Bytes, Bytes]:
    """Reads its inputs, writes its outputs."""
    return total(op.inputs()), total(op.outputs())


def nothing(op: Operation) -> tuple[Bytes, Bytes]:
    """Moves nothing: a view, or control flow whose body counts separately."""
    return 0, 0


def only_writes(op: Operation) -> tuple[Bytes, Bytes]:
    """Writes its output and reads no data."""
    return 0, total(op.outputs())


def selects(op: Operation) -> tuple[Bytes, Bytes]:
    """Reads the selected part of its first input, and the other inputs."""
    written = total(op.outputs())
    selectors = total(operand for operand in op.inputs() if operand.name != op.node.inputs[0])
    return known_sum((written, selectors)), written


def total(operands: Iterable[Operand]) -> Bytes:
    """Returns the bytes of all operands, or None if one is unknown."""
    return known_sum([operand.nbytes for operand in operands])


def known_sum(parts: Iterable[int | None]) -> int | None:
    """Returns the sum, or None if a part is unknown or the sum has more than 64 bits."""
    total = 0
    for part in parts:
        if part is None:
            return None
        total += part
    return total if total <= LARGEST else None


_RULES: dict[tuple[str, str], Rule] = {}


def counts(
    *op_types: str,
    domain: str = "",
    moves: Traffic = everything,
    settings: Collection[int] = (),
    packed: Mapping[int, Callable[[Operation], int]] | None = None,
) -> Callable[[Work], Work]:
    """Registers a function as the rule of these operators, for every version of them.

    Raises ValueError if an operator already has a rule.
    """

    def register(work: Work) -> Work:
        rule = Rule(work, moves, frozenset(settings), packed or {})
        for op_type in op_types:
            if (domain, op_type) in _RULES:
                raise ValueError(f"{domain or 'ai.onnx'}.{op_type} has two counting rules")
            _RULES[domain, op_type] = rule
        return work

    return register


def per_output(count: Count) -> Work:
    """Returns the rule of `count` operations for each element of the first output."""
    return lambda op: count * op.output().size


def per_input(count: Count) -> Work:
    """Returns the rule of `count` operations for each element of the first input."""
    return lambda op: count * op.input(0).size


def no_work(op: Operation) -> Count:
    """The rule of an operator that only moves, views or describes data."""
    return NOTHING


def find(domain: str, op_type: str) -> Rule | None:
    """Returns the rule of an operator, or None if there is none."""
    return _loaded().get((domain, op_type))


def rule_of(op: Operation) -> Rule | None:
    """Returns the rule of a node: the user's own, else the one of its operator; None without."""
    own = op.facts.own_rules.get((op.node.domain, op.op_type))
    if own is None:
        return find(op.node.domain, op.op_type)
    return Rule(_guarded(own), everything, frozenset(), {})


def _guarded(own: Callable[..., object]) -> Work:
    """Returns the user's function; what it raises, or returns in place of a Count, is a reason."""

    def work(op: Operation) -> Count:
        try:
            count = own(op)
        except UnknownWorkError:
            raise
        except Exception as error:  # whatever the user's code raises
            raise UnknownWorkError(f"its rule raised {type(error).__name__}: {error}") from error
        if not isinstance(count, Count):
            raise UnknownWorkError(f"its rule returned a {type(count).__name__}, not a Count")
        return count

    return work


def operators() -> tuple[tuple[str, str], ...]:
    """Returns the domain and name of every operator that has a rule."""
    return tuple(sorted(_loaded()))


@cache
def _loaded() -> dict[tuple[str, str], Rule]:
    rules = importlib.import_module("tracer.analyzers.cost.rules")
    for module in pkgutil.iter_modules(rules.__path__):
        importlib.import_module(f"{rules.__name__}.{module.name}")
    return _RULES
