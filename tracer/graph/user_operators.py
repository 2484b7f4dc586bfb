"""Operators of a user's own: what computes them, what counts them, what shape they have.

A file of the user's makes an `Operators` for each domain. The operators belong to the model that
they are given for, and to no other.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tracer.errors import InputError, UsageError
from tracer.support import imports

_F = TypeVar("_F", bound=Callable[..., Any])
Key = tuple[str, str]
"""Domain and name of an operator."""

_FORM = (
    'The file makes `operators = tracer.Operators("my.domain")`, and decorates functions with '
    '`@operators.computes("Name")`.'
)


class Operators:
    """The operators of one domain, which decorators add.

        operators = tracer.Operators("my.domain")

        @operators.computes("Hypot", like=0)
        def hypot(a, b):
            return np.hypot(a, b)

        @operators.counts("Hypot")
        def hypot_work(op):
            return Count(adds=1, muls=2, other=1) * op.output().size

    A function that computes has the operator's inputs as positional parameters, and its attributes
    as keyword-only ones. It returns the output, or a tuple of several.

    >>> import tracer
    >>> tracer.Operators("my.domain").domain
    'my.domain'
    """

    def __init__(self, domain: str) -> None:
        """Raises UsageError for the domain of ONNX itself, whose operators are known."""
        if domain in ("", "ai.onnx"):
            raise UsageError("operators of your own need a domain", "Name one, as in 'my.domain'.")
        self.domain = domain
        self.functions: dict[str, Callable[..., Any]] = {}
        self.rules: dict[str, Callable[..., Any]] = {}
        self.shapes: dict[str, int] = {}

    def computes(self, op_type: str, *, like: int | None = None) -> Callable[[_F], _F]:
        """Adds the decorated function as what computes an operator.

        The first output has type and shape of the input at `like`, so that nodes behind it are
        counted. Raises UsageError for an operator that has a function already.
        """

        def add(function: _F) -> _F:
            _put(self.functions, op_type, function, "functions that compute")
            if like is not None:
                self.shapes[op_type] = like
            return function

        return add

    def counts(self, op_type: str) -> Callable[[_F], _F]:
        """Adds the decorated function as the counting rule of an operator.

        It takes an `Operation` of `tracer.analyzers.cost.count` and returns an
        `tracer.analyzers.cost.count.Count`.
        Raises UsageError for an operator that has a rule already.
        """

        def add(rule: _F) -> _F:
            _put(self.rules, op_type, rule, "counting rules")
            return rule

        return add


@dataclass(frozen=True, slots=True)
class UserOperators:
    """All operators that are given for a model; `fingerprint` tells those of files apart."""

    functions: Mapping[Key, Callable[..., Any]] = field(default_factory=dict)
    rules: Mapping[Key, Callable[..., Any]] = field(default_factory=dict)
    shapes: Mapping[Key, int] = field(default_factory=dict)
    fingerprint: str = ""

    @classmethod
    def of(cls, each: Iterable[Operators], fingerprint: str = "") -> "UserOperators":
        """Joins the operators of all domains. Raises UsageError for one that is there twice."""
        functions: dict[Key, Callable[..., Any]] = {}
        rules: dict[Key, Callable[..., Any]] = {}
        shapes: dict[Key, int] = {}
        for group in each:
            for joined, own in ((functions, group.functions), (rules, group.rules)):
                for op_type, function in own.items():
                    _put(joined, (group.domain, op_type), function, "functions")
            shapes.update({(group.domain, name): like for name, like in group.shapes.items()})
        return cls(functions, rules, shapes, fingerprint)


NONE = UserOperators()


def load(path: str | Path) -> UserOperators:
    """Returns the operators that a file makes. Runs the code of the file.

    Raises InputError where there is no such file, where its code fails, or makes none.
    """
    file = Path(path)
    module = imports.import_user_file(file, _FORM)
    made = {id(value): value for value in vars(module).values() if isinstance(value, Operators)}
    if not any(each.functions or each.rules for each in made.values()):
        raise InputError(f"{path} has no operators", _FORM)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return UserOperators.of(made.values(), digest)


def _put(into: dict[Any, Callable[..., Any]], key: Any, function: Any, what: str) -> None:
    if key in into:
        name = key if isinstance(key, str) else ".".join(key)
        raise UsageError(f"operator {name} has two {what}", "Remove one of them.")
    into[key] = function
