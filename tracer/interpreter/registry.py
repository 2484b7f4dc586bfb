"""Which function computes an operator at an opset."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from tracer.errors import UsageError
from tracer.graph.model import canonical_domain
from tracer.interpreter import ops

Function = Callable[..., Any]
_F = TypeVar("_F", bound=Function)


@dataclass(frozen=True, slots=True)
class Operator:
    """A function that computes `op_type` from version `since` of its domain on.

    Its positional parameters are the operator's inputs in order (`*rest` is a variadic one), its
    keyword-only parameters the attributes by their ONNX names; one called `ctx` receives the
    `tracer.interpreter.binding.Context`. An input left out is None, or an attribute of its name.
    An attribute that holds a graph is a `Body`, to be called with the graph's inputs. It returns
    the output, or a tuple of several, and must not write into its inputs.
    """

    op_type: str
    since: int
    function: Function
    domain: str = ""


class Registry:
    """Operators by name and version; those of `behind` are found where none of its own is."""

    def __init__(self, operators: Iterable[Operator] = (), behind: Registry | None = None) -> None:
        self._found: dict[tuple[str, str], dict[int, Operator]] = {}
        self._behind = behind
        for operator in operators:
            self.add(operator)

    def add(self, operator: Operator) -> None:
        """Register one operator. Raises UsageError where this version of it has one already."""
        versions = self._found.setdefault(_key(operator.domain, operator.op_type), {})
        if operator.since in versions:
            raise UsageError(
                f"operator {operator.op_type} of version {operator.since} is registered twice",
                "Give Operator a version of its own, or pass it to the Interpreter to override.",
            )
        versions[operator.since] = operator

    def find(self, domain: str, op_type: str, opset: int) -> Operator | None:
        """The operator with the largest version up to `opset`, or None."""
        versions = self._found.get(_key(domain, op_type), {})
        since = max((v for v in versions if v <= opset), default=None)
        if since is not None:
            return versions[since]
        return self._behind.find(domain, op_type, opset) if self._behind else None

    def __iter__(self) -> Iterator[Operator]:
        for versions in self._found.values():
            yield from versions.values()


_STANDARD = Registry()


def operator(*names: str, since: int = 1, domain: str = "") -> Callable[[_F], _F]:
    """Register the decorated function as our own operator `names`, from version `since` on."""

    def register(function: _F) -> _F:
        for name in names:
            _STANDARD.add(Operator(name, since, function, domain))
        return function

    return register


@cache
def standard() -> Registry:
    """Our own operators: every module of `tracer.interpreter.ops`."""
    for module in pkgutil.iter_modules(ops.__path__):
        importlib.import_module(f"{ops.__name__}.{module.name}")
    return _STANDARD


def _key(domain: str, op_type: str) -> tuple[str, str]:
    return canonical_domain(domain), op_type
