"""From an operator's function and a node to a kernel: inputs by position, attributes by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from tracer.errors import ModelError
from tracer.graph.model import Node
from tracer.graph.tensor_type import TensorType
from tracer.interpreter.registry import Function
from tracer.interpreter.values import Value


class Body(Protocol):
    """A graph attribute during a run: call it with the graph's inputs, get its outputs."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the graph's inputs."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the graph's outputs."""

    @property
    def types(self) -> tuple[TensorType | None, ...]:
        """Declared types of the outputs; None for what is not a tensor."""

    def __call__(self, *inputs: Value) -> list[Value]:
        """Run the graph once."""


@dataclass(frozen=True, slots=True)
class Context:
    """What an operator may know of the node it computes."""

    node: Node
    opset: int

    @property
    def wanted(self) -> tuple[bool, ...]:
        """Whether each output is read by its name."""
        return tuple(map(bool, self.node.outputs))


Kernel = Callable[[Sequence[Value], Mapping[str, Body]], Sequence[Value]]
"""Computes a node: its input values and its bodies by attribute name to its output values."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of an operator's function."""

    inputs: tuple[str, ...]
    required: int
    variadic: bool
    attributes: frozenset[str]
    needed: frozenset[str]
    context: bool


@cache
def signature(function: Function) -> Signature:
    """Read how the function wants to be called."""
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
    )


def bind(
    function: Function,
    context: Context,
    attributes: Mapping[str, Any],
    bodies: Sequence[str],
) -> Kernel:
    """The kernel of a node. Raises ModelError where the node does not fit the function."""
    wants = signature(function)
    _check(wants, context.node, {*attributes, *bodies})
    fixed = {**attributes, "ctx": context} if wants.context else dict(attributes)

    def kernel(inputs: Sequence[Value], graphs: Mapping[str, Body]) -> Sequence[Value]:
        result = function(*inputs, **fixed, **graphs)
        return result if isinstance(result, tuple) else (result,)

    return kernel


def _check(wants: Signature, node: Node, given: set[str]) -> None:
    many = len(node.inputs)
    if many < wants.required or (many > len(wants.inputs) and not wants.variadic):
        raise ModelError(f"{many} inputs given, {_count(wants)} wanted")
    unknown = sorted(given - wants.attributes - set(wants.inputs[many:]))
    if unknown:
        allowed = ", ".join(sorted(wants.attributes)) or "none"
        raise ModelError(
            f"attribute '{unknown[0]}' is not supported", f"Supported attributes: {allowed}."
        )
    missing = sorted(wants.needed - given)
    if missing:
        raise ModelError(f"attribute '{missing[0]}' is missing")


def _count(wants: Signature) -> str:
    if wants.variadic:
        return f"{wants.required} or more"
    most = len(wants.inputs)
    return str(most) if wants.required == most else f"{wants.required} to {most}"
