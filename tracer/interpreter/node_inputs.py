"""What a check of a node's inputs looks at: values during a run, mostly types alone before it."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, TypeVar

import numpy as np

from tracer.graph import element_types
from tracer.graph.element_types import Signature
from tracer.interpreter.binding import Body, Kernel, signature
from tracer.interpreter.registry import Function, Operator
from tracer.interpreter.values import Value
from tracer.support.types import Array

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Shaped:
    """An input of which only element type and shape are known."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


Input: TypeAlias = Array | Shaped
"""An input of a node, as checks of operators take it."""


def value_of(given: Input | None) -> Array | None:
    """Returns the value of an input; None if it is not known, or the input is left out."""
    return given if isinstance(given, np.ndarray) else None


def check(
    operator: Operator, inputs: Sequence[Input | None], attributes: Mapping[str, Any]
) -> None:
    """Raises ModelError, without the node, if inputs do not fit each other or the attributes.

    The check of an operator takes those inputs and attributes of its function that it names.
    """
    if operator.check is None:
        return
    names = signature(operator.function).inputs
    given = {**dict(zip(names, inputs, strict=False)), **attributes}
    operator.check(**{name: given[name] for name in _names(operator.check) if name in given})


def checked(kernel: Kernel, operator: Operator, attributes: Mapping[str, Any]) -> Kernel:
    """Returns `kernel`, whatever computes the node, which first asks the operator's check."""
    if operator.check is None:
        return kernel

    def fitting(inputs: Sequence[Value], graphs: Mapping[str, Body]) -> Sequence[Value]:
        check(operator, inputs, attributes)
        return kernel(inputs, graphs)

    return fitting


def typed(compute: Callable[..., _T], of: Signature) -> Callable[..., _T]:
    """Returns `compute`, a kernel or what plans one, which first checks the types of its inputs."""
    fitting = set[tuple[Any, ...]]()

    def checked_types(inputs: Sequence[Value], *graphs: Mapping[str, Body]) -> _T:
        kinds = tuple([value.dtype if type(value) is np.ndarray else element_types.kind_of(value)
                       for value in inputs])  # fmt: skip
        if kinds not in fitting:
            element_types.check_values(of, kinds)
            fitting.add(kinds)
        return compute(inputs, *graphs)

    return checked_types


@cache
def _names(function: Function) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)
