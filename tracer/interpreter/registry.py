"""Maps an operator and its opset to the function that computes it."""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from tracer.errors import UsageError
from tracer.graph import user_operators
from tracer.graph.model import canonical_domain
from tracer.graph.user_operators import Operators, UserOperators
from tracer.interpreter import ops

Function = Callable[..., Any]
_F = TypeVar("_F", bound=Function)


@dataclass(frozen=True, slots=True)
class Operator:
    """A function that computes `op_type` from version `since` of its domain on.

    Positional parameters are the operator's inputs in order; `*rest` takes variadic inputs.
    Keyword-only parameters are the attributes by their ONNX names. A parameter `ctx` receives the
    `tracer.interpreter.binding.NodeContext`. An omitted input is None, or an attribute of its
    name. A graph attribute is a `Body`, to be called with the graph's inputs. The function
    returns the output, or a tuple of several, and must not modify its inputs.

    It needs `copies` times the bytes of its first input besides, which limits are asked for before.
    `check` raises ModelError for inputs that do not fit; see `tracer.interpreter.node_inputs`.
    """

    op_type: str
    since: int
    function: Function
    domain: str = ""
    copies: int = 0
    check: Callable[..., None] | None = None


class Registry:
    """Operators by name and version."""

    def __init__(self, operators: Iterable[Operator] = ()) -> None:
        self._operators: dict[tuple[str, str], dict[int, Operator]] = {}
        for operator in operators:
            self.add(operator)

    def add(self, operator: Operator) -> None:
        """Registers an operator. Raises UsageError if this version is already registered."""
        versions = self._operators.setdefault(_key(operator.domain, operator.op_type), {})
        if operator.since in versions:
            raise UsageError(
                f"operator {operator.op_type} of version {operator.since} is registered twice",
                "Set another version, or pass the operator to the Interpreter to override.",
            )
        versions[operator.since] = operator

    def find(self, domain: str, op_type: str, opset: int) -> Operator | None:
        """Returns the operator with the largest version up to `opset`, or None."""
        versions = self._operators.get(_key(domain, op_type), {})
        since = max((version for version in versions if version <= opset), default=0)
        return versions.get(since)

    def __iter__(self) -> Iterator[Operator]:
        for versions in self._operators.values():
            yield from versions.values()


def registry_of(
    operators: Iterable[Operator] | Operators | str | Path, of_model: UserOperators
) -> Registry:
    """Returns the operators that a caller gives, and a model brings, in a registry of their own.

    Raises the errors of `user_operators.load` for a file, UsageError for an operator twice.
    """
    if isinstance(operators, str | Path):
        operators = _registered(user_operators.load(operators))
    elif isinstance(operators, Operators):
        operators = _registered(UserOperators.of([operators]))
    return Registry((*operators, *_registered(of_model)))


def _registered(own: UserOperators) -> list[Operator]:
    return [Operator(op_type, 1, function, domain)
            for (domain, op_type), function in own.functions.items()]  # fmt: skip


_STANDARD = Registry()


def operator(
    *names: str,
    since: int = 1,
    domain: str = "",
    copies: int = 0,
    check: Callable[..., None] | None = None,
) -> Callable[[_F], _F]:
    """Registers the decorated function as our operator `names`; see `Operator` for the rest."""

    def register(function: _F) -> _F:
        for name in names:
            _STANDARD.add(Operator(name, since, function, domain, copies, check))
        return function

    return register


@cache
def standard() -> Registry:
    """Returns our operators: those of every module of `tracer.interpreter.ops`."""
    for module in pkgutil.iter_modules(ops.__path__):
        importlib.import_module(f"{ops.__name__}.{module.name}")
    return _STANDARD


def _key(domain: str, op_type: str) -> tuple[str, str]:
    return canonical_domain(domain), op_type
