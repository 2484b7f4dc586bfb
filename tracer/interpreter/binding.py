"""Binds an operator's function to a node: inputs by position, attributes by name."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, Protocol

from tracer import limits
from tracer.errors import ModelError
from tracer.graph.model import Node
from tracer.graph.tensor_type import TensorType
from tracer.interpreter.registry import Function
from tracer.interpreter.values import Value


class Body(Protocol):
    """A graph attribute during a run: called with the graph's inputs, returns its outputs."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the graph's inputs."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the graph's outputs."""

    @property
    def types(self) -> tuple[TensorType | None, ...]:
        """Declared types of the outputs; None for an output that is not a tensor."""

    def __call__(self, *inputs: Value) -> list[Value]:
        """Runs the graph once."""


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
    )


def bind(
    function: Function, context: NodeContext, attributes: Mapping[str, Any], bodies: Sequence[str]
) -> Kernel:
    """Returns the kernel of a node. Raises ModelError if the node does not fit the function."""
    parameters = signature(function)
    _check(parameters, context.node, {*attributes, *bodies})
    fixed = {**attributes, "ctx": context} if parameters.context else dict(attributes)
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


def _check(expected: Signature, node: Node, attributes: set[str]) -> None:
    count = len(node.inputs)
    if count < expected.required or (count > len(expected.inputs) and not expected.variadic):
        raise ModelError(f"{count} inputs, but {_count_text(expected)} expected")
    unknown = sorted(attributes - expected.attributes - set(expected.inputs[count:]))
    if unknown:
        allowed = ", ".join(sorted(expected.attributes)) or "none"
        raise ModelError(
            f"attribute '{unknown[0]}' is not supported", f"Supported attributes: {allowed}."
        )
    missing = sorted(expected.needed - attributes)
    if missing:
        raise ModelError(f"attribute '{missing[0]}' is missing")


def _count_text(expected: Signature) -> str:
    if expected.variadic:
        return f"{expected.required} or more"
    most = len(expected.inputs)
    return str(most) if expected.required == most else f"{expected.required} to {most}"
