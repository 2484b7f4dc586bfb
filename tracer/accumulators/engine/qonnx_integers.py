"""The integers that QONNX's operators round to, where their parameters are stored.

Quant, BipolarQuant, Trunc and MultiThreshold return integers times a scale. The operators never
decrease, so the ends of their input give the ends of their output.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracer.errors import ModelError
from tracer.graph import operators
from tracer.graph.model import Node
from tracer.interpreter import values
from tracer.interpreter.ops.qonnx import quant_integers, trunc_integers
from tracer.support.types import Array

Stored = Callable[[int], "Array | None"]
"""Returns the constant input of a node at an index; None if it is not constant, or left out."""


@dataclass(frozen=True, slots=True)
class RoundedIntegers:
    """Integers from `low` to `high`, minus their zero point, times `step`.

    `step` has the shape of the node's scale. `zero` is the zero point, None if it is not one
    number. `least` and `most` are the ends times the step.
    """

    low: int
    high: int
    step: Array
    zero: int | None
    least: float
    most: float


def rounds_to_integers(node: Node) -> bool:
    """Whether a node is one of QONNX's that return integers times a scale."""
    return node.domain == operators.QONNX_DOMAIN and node.op_type in operators.INTEGER_QUANTIZERS


def rounded(node: Node, low: float, high: float, stored: Stored) -> RoundedIntegers | None:
    """Returns the integers that a node makes of numbers from `low` to `high`.

    None where parameters are not stored or not positive, where the zero point is no integer, or
    where nothing clips numbers without ends.
    """
    parameters = [stored(index) for index in range(1, len(node.inputs))]
    given = [each for each in parameters if each is not None]
    attributes = {a.name: values.from_attribute(a) for a in node.proto.attribute}
    if len(given) < len(parameters) or not given:
        return None
    try:
        with np.errstate(all="ignore"):
            return _ENDS[node.op_type](low, high, given, attributes)
    except (ModelError, ValueError, IndexError, TypeError):  # a run tells at its own node
        return None


def stored_integers(node: Node, x: Array, stored: Stored) -> Array | None:
    """Returns the integers, int64, that Quant makes of stored numbers, minus its zero point."""
    given = [stored(index) for index in range(1, len(node.inputs))]
    parameters = [each for each in given if each is not None]
    if node.op_type not in ("Quant", "IntQuant") or len(parameters) < len(given):
        return None
    attributes = {a.name: values.from_attribute(a) for a in node.proto.attribute}
    try:
        integers = quant_integers(x, *parameters, **attributes)
    except (ModelError, ValueError, TypeError):  # a run tells at its own node
        return None
    return integers.astype(np.int64) if np.array_equal(integers, np.rint(integers)) else None


def _of_quant(
    low: float, high: float, parameters: list[Array], attributes: dict[str, Any]
) -> RoundedIntegers | None:
    scale, zero, _ = parameters
    integers = quant_integers(_ends(low, high, parameters), *parameters, **attributes)
    return _checked(integers, scale, zero)


def _of_bipolar(
    low: float, high: float, parameters: list[Array], attributes: dict[str, Any]
) -> RoundedIntegers | None:
    signs = np.where(_ends(low, high, parameters) >= 0, np.float32(1), np.float32(-1))
    return _checked(signs, parameters[0], np.zeros(1))


def _of_trunc(
    low: float, high: float, parameters: list[Array], attributes: dict[str, Any]
) -> RoundedIntegers | None:
    return _checked(*trunc_integers(_ends(low, high, parameters), *parameters, **attributes))


def _of_thresholds(
    low: float, high: float, parameters: list[Array], attributes: dict[str, Any]
) -> RoundedIntegers | None:
    """Counts of thresholds times a scale, plus a bias that is a multiple of half the scale."""
    (thresholds,) = parameters
    scale, bias = (np.float32(attributes.get(f"out_{name}", value))
                   for name, value in (("scale", 1), ("bias", 0)))  # fmt: skip
    halves = 2 * bias / scale
    step = scale if halves % 2 == 0 else scale / 2
    counts = [np.sum(thresholds <= end, axis=-1) for end in (low, high)]
    integers = (scale * np.array([counts[0].min(), counts[1].max()]) + bias) / step
    return _checked(integers.astype(np.float32), np.asarray(step), np.zeros(1))


def _ends(low: float, high: float, parameters: list[Array]) -> Array:
    """Both ends, for each number that a parameter has: (2, …)."""
    shape = np.broadcast_shapes(*(each.shape for each in parameters))
    ends = np.array([low, high], np.float32).reshape(2, *(1 for _ in shape))
    return np.broadcast_to(ends, (2, *shape))


def _checked(integers: Array, step: Array, zero: Array) -> RoundedIntegers | None:
    """Returns the integers; None where they are none, or a step is not above 0."""
    is_whole = np.isfinite(integers).all() and np.array_equal(integers, np.rint(integers))
    if not is_whole or not (step > 0).all() or not np.isfinite(step).all() or not step.size:
        return None
    is_single = bool(zero.size) and zero.min() == zero.max()
    ends = integers * step.astype(np.float32)
    return RoundedIntegers(
        int(integers.min()), int(integers.max()), step.astype(np.float32),
        int(zero.flat[0]) if is_single else None, float(ends.min()), float(ends.max()),
    )  # fmt: skip


_ENDS: dict[str, Callable[..., RoundedIntegers | None]] = {
    "Quant": _of_quant,
    "IntQuant": _of_quant,
    "BipolarQuant": _of_bipolar,
    "Trunc": _of_trunc,
    "MultiThreshold": _of_thresholds,
}
