"""Operators: how functions are declared and found, bound to a node, given checked inputs, kept."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np

from tracer import limits
from tracer.errors import ModelError, UsageError
from tracer.graph import element_types, user_operators
from tracer.graph.model import Node, canonical_domain
from tracer.graph.operators import MICROSOFT as MICROSOFT
from tracer.graph.tensor_type import TensorType
from tracer.interpreter import ops, values
from tracer.interpreter.values import Value, nbytes
from tracer.support.types import Array

_GROWTH = 4
"""int8 becomes float32. What grows more is computed in each run: memory would grow as well."""
_SMALL = 1 << 20
"""Bytes that are kept whatever they are computed from."""
_MOST = 1 << 29
"""Bytes that one model keeps: the floats of large integer weights take four times their memory."""
Ints = Sequence[int] | None
Floats = Sequence[float] | None
"""Attributes of several numbers; None where they are left out."""
Function = Callable[..., Any]
_Function = TypeVar("_Function", bound=Function)
_Result = TypeVar("_Result")


class Shaped(np.ndarray[Any, np.dtype[Any]]):
    """An input of which only element type and shape are known: an array that takes no memory."""


def shaped(dtype: np.dtype[Any], shape: Sequence[int]) -> Array:
    """Returns an input without values, see `value_of`; it can be reshaped and cut as any array."""
    return np.broadcast_to(np.zeros((), dtype).view(Shaped), shape, subok=True)


class Arguments(SimpleNamespace):
    """The inputs and attributes of a node by the names of its operator's parameters.

    Inputs are None where the node leaves them out; attributes have their defaults.
    """


@dataclass(frozen=True, slots=True)
class Operator:
    """A function that computes `op_type` from version `since` of its domain on.

    Positional parameters are the operator's inputs in order; `*rest` takes variadic inputs.
    Keyword-only parameters are the attributes by their ONNX names. A parameter `ctx` receives the
    `tracer.interpreter.operators.NodeContext`. An omitted input is None, or an attribute of its
    name. A graph attribute is a `Body`, to be called with the graph's inputs. The function
    returns the output, or a tuple of several, and must not modify its inputs.

    It needs `copies` times the bytes of its first input besides, which limits are asked for before.
    `check` raises ModelError for inputs that do not fit; it gets what is known of them: values
    during a run, mostly types alone before it.
    """

    op_type: str
    since: int
    function: Function
    domain: str = ""
    copies: int = 0
    check: Callable[[Arguments], None] | None = None


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
    operators: Iterable[Operator] | user_operators.Operators | str | Path,
    of_model: user_operators.UserOperators,
) -> Registry:
    """Returns the operators that a caller gives, and a model brings, in a registry of their own.

    Raises the errors of `user_operators.load` for a file, UsageError for an operator twice.
    """
    if isinstance(operators, str | Path):
        operators = _registered(user_operators.load(operators))
    elif isinstance(operators, user_operators.Operators):
        operators = _registered(user_operators.UserOperators.of([operators]))
    return Registry((*operators, *_registered(of_model)))


def _registered(own: user_operators.UserOperators) -> list[Operator]:
    return [Operator(op_type, 1, function, domain)
            for (domain, op_type), function in own.functions.items()]  # fmt: skip


_STANDARD = Registry()


def operator(
    *names: str,
    since: int = 1,
    domain: str = "",
    copies: int = 0,
    check: Callable[[Arguments], None] | None = None,
) -> Callable[[_Function], _Function]:
    """Registers the decorated function as our operator `names`; see `Operator` for the rest."""

    def register(function: _Function) -> _Function:
        for name in names:
            _STANDARD.add(Operator(name, since, function, domain, copies, check))
        return function

    return register


def parameters_of(base: Function, without: Sequence[str] = ()) -> Callable[[_Function], _Function]:
    """Lets `*inputs` and `**attributes` of the decorated function stand for those of `base`.

    The function passes them on to `base`; those that it names itself are its own, and those that
    it is `without` it does not have.
    """

    def extend(function: _Function) -> _Function:
        own = inspect.signature(function).parameters
        stands_for = {p.kind for p in own.values()}
        more = [
            p
            for p in inspect.signature(base).parameters.values()
            if p.name not in (*own, *without)
            and (p.VAR_KEYWORD if p.kind is p.KEYWORD_ONLY else p.VAR_POSITIONAL) in stands_for
        ]
        named = [p for p in own.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        parameters = sorted([*named, *more], key=lambda p: p.kind)
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return function

    return extend


@cache
def standard() -> Registry:
    """Returns our operators: those of every module of `tracer.interpreter.ops`."""
    for module in pkgutil.iter_modules(ops.__path__):
        importlib.import_module(f"{ops.__name__}.{module.name}")
    return _STANDARD


def _key(domain: str, op_type: str) -> tuple[str, str]:
    return canonical_domain(domain), op_type


@dataclass(frozen=True, slots=True)
class Body:
    """A graph attribute during a run: called with the graph's inputs, returns its outputs.

    `inputs` and `outputs` are their names, `types` the declared types of the outputs: None for an
    output that is not a tensor.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    types: tuple[TensorType | None, ...]
    run: Callable[..., list[Value]] = field(repr=False)

    def __call__(self, *inputs: Value) -> list[Value]:
        """Runs the graph once."""
        return self.run(*inputs)


@dataclass(frozen=True)
class NodeContext:
    """The node that an operator computes, and its opset."""

    node: Node
    opset: int

    @cached_property
    def outputs_named(self) -> tuple[bool, ...]:
        """Whether each output has a name, and so may be read."""
        return tuple(map(bool, self.node.outputs))


Kernel = Callable[[Sequence[Value], Mapping[str, Body]], Sequence[Value]]
"""Computes a node's outputs from its inputs and its bodies by attribute name."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of an operator's function."""

    inputs: tuple[str, ...]
    required: int
    variadic: bool
    attributes: frozenset[str]
    needed: frozenset[str]
    context: bool
    defaults: Mapping[str, Any]
    """What a node that leaves them out has for inputs and attributes."""


@cache
def signature(function: Function) -> Signature:
    """Reads the parameters of an operator's function."""
    parameters = inspect.signature(function).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    keyword = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    return Signature(
        inputs=tuple(p.name for p in positional),
        required=sum(p.default is p.empty for p in positional),
        variadic=any(p.kind is p.VAR_POSITIONAL for p in parameters),
        attributes=frozenset(p.name for p in keyword if p.name != "ctx"),
        needed=frozenset(p.name for p in keyword if p.name != "ctx" and p.default is p.empty),
        context=any(p.name == "ctx" for p in keyword),
        defaults={
            p.name: None if p.default is p.empty else p.default
            for p in parameters
            if p.kind is not p.KEYWORD_ONLY or p.default is not p.empty
        },
    )


def bind(
    function: Function, context: NodeContext, attributes: Mapping[str, Any], bodies: Sequence[str]
) -> Kernel:
    """Returns the kernel of a node. Raises ModelError if the node does not fit the function."""
    expected, count = signature(function), len(context.node.inputs)
    least, most = expected.required, len(expected.inputs)
    if count < least or (count > most and not expected.variadic):
        counts = str(most) if least == most else f"{least} to {most}"
        if expected.variadic:
            counts = f"{least} or more"
        raise ModelError(f"{count} inputs, but {counts} expected")
    names = {*attributes, *bodies}
    unknown = sorted(names - expected.attributes - set(expected.inputs[count:]))
    if unknown:
        allowed = ", ".join(sorted(expected.attributes)) or "none"
        raise ModelError(
            f"attribute '{unknown[0]}' is not supported", f"Supported attributes: {allowed}."
        )
    missing = sorted(expected.needed - names)
    if missing:
        raise ModelError(f"attribute '{missing[0]}' is missing")
    fixed = {**attributes, "ctx": context} if expected.context else dict(attributes)
    compute = partial(function, **fixed) if fixed else function

    def kernel(inputs: Sequence[Value], graphs: Mapping[str, Body]) -> Sequence[Value]:
        result = compute(*inputs, **graphs) if graphs else compute(*inputs)
        return result if isinstance(result, tuple) else (result,)

    return kernel


def with_room(kernel: Kernel, copies: int) -> Kernel:
    """Returns `kernel`, which first asks for room for `copies` of its first input."""
    if not copies:
        return kernel

    def roomy(inputs: Sequence[Value], graphs: Mapping[str, Body]) -> Sequence[Value]:
        limits.in_force().room(inputs[0].nbytes * copies)
        return kernel(inputs, graphs)

    return roomy


def value_of(given: Array | None) -> Array | None:
    """Returns the value of an input; None if it is not known, or the input is left out."""
    return None if isinstance(given, Shaped) else given


def check(
    operator: Operator, inputs: Sequence[Array | None], attributes: Mapping[str, Any]
) -> None:
    """Raises ModelError, without the node, if inputs do not fit each other or the attributes."""
    if operator.check is None:
        return
    parameters = signature(operator.function)
    given = dict(zip(parameters.inputs, inputs, strict=False))
    operator.check(Arguments(**{**parameters.defaults, **given, **attributes}))


def checked(kernel: Kernel, operator: Operator, attributes: Mapping[str, Any]) -> Kernel:
    """Returns `kernel`, whatever computes the node, which first asks the operator's check."""
    if operator.check is None:
        return kernel

    def fitting(inputs: Sequence[Value], graphs: Mapping[str, Body]) -> Sequence[Value]:
        check(operator, inputs, attributes)
        return kernel(inputs, graphs)

    return fitting


def typed(compute: Callable[..., _Result], of: element_types.Signature) -> Callable[..., _Result]:
    """Returns `compute`, a kernel or what plans one, which first checks the types of its inputs."""
    fitting = set[tuple[Any, ...]]()

    def checked_types(inputs: Sequence[Value], *graphs: Mapping[str, Body]) -> _Result:
        kinds = tuple([value.dtype if type(value) is np.ndarray else element_types.kind_of(value)
                       for value in inputs])  # fmt: skip
        if kinds not in fitting:
            element_types.check_values(of, kinds)
            fitting.add(kinds)
        return compute(inputs, *graphs)

    return checked_types


@dataclass(slots=True)
class MemoryBudget:
    """The bytes that kernels of one model may still keep."""

    nbytes: int = _MOST


def once(kernel: Kernel, room: MemoryBudget) -> Kernel:
    """Returns a kernel that keeps its outputs, read-only, as long as it gets the same arrays.

    It takes the bytes from `room`, and computes outputs that do not fit in each run.
    """
    kept: list[tuple[Sequence[Value], Sequence[Value]]] = []

    def kernel_once(inputs: Sequence[Value], bodies: Mapping[str, Body]) -> Sequence[Value]:
        for before, outputs in kept:  # an observer may have replaced an input
            if all(a is b for a, b in zip(before, inputs, strict=True)):
                return outputs
        outputs = kernel(inputs, bodies)
        size = sum(map(nbytes, outputs))
        if (
            not kept
            and size <= min(room.nbytes, _SMALL + _GROWTH * sum(map(nbytes, inputs)))
            and all(isinstance(value, np.ndarray) for value in outputs)
        ):
            room.nbytes -= size
            for array in outputs:
                array.flags.writeable = False
            kept.append((inputs, outputs))
        return outputs

    return kernel_once


def evaluated(
    node: Node, opset: int, inputs: Sequence[Value], folder: Path | None = None
) -> Sequence[Value]:
    """Returns the outputs of a node without bodies outside of a run; none if we lack its operator.

    `folder` has the external data of attributes. Raises what the operator raises.
    """
    found = standard().find(node.domain, node.op_type, opset)
    if found is None:
        return ()
    attributes = values.attributes_of(node.proto, folder)
    bound = bind(found.function, NodeContext(node, opset), attributes, ())
    kernel = checked(bound, found, attributes)
    with np.errstate(all="ignore"):
        return kernel(inputs, {})
