"""Normalisations of channels, and the mean of several tensors: steps that are each rounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from tracer.arithmetic.kernel import Kernel
from tracer.arithmetic.replays.interpreter import of_floats
from tracer.arithmetic.rule import Rule
from tracer.interpreter.compiled_code import loaded
from tracer.support.types import Array

_F = np.float32


@dataclass(frozen=True)
class _Steps:
    """An operator whose one output is a function of its inputs and the node's attributes."""

    text: str
    function: Callable[..., Array]

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        yield Rule(self.text)

    def replay(
        self, kernel: Kernel, facts: Mapping[str, Any], inputs: Mapping[str, Array]
    ) -> list[Array]:
        return [self.function(*kernel.values(inputs), kernel.attributes)]


def _by_channel(values: Array, x: Array) -> Array:
    return values.reshape(-1, *[1] * (x.ndim - 2))


def _batch(
    x: Array, scale: Array, bias: Array, mean: Array, variance: Array, a: Mapping[str, Any]
) -> Array:
    factor = scale * (_F(1) / np.sqrt(variance + _F(a.get("epsilon", 1e-5))))
    return np.asarray(x * _by_channel(factor, x) + _by_channel(bias - mean * factor, x))


def _instance(x: Array, scale: Array, bias: Array, a: Mapping[str, Any]) -> Array:
    """Means are summed in lanes from an aligned number on, squares in lanes from the first on."""
    rows = np.ascontiguousarray(x).reshape(x.shape[0] * x.shape[1], -1)
    kernels = loaded("row_sums", "tracer.arithmetic.kernels")
    totals = np.empty((2, len(rows)), _F)
    kernels.in_lanes(rows, True, totals[0])
    mean = totals[0] / _F(rows.shape[1])
    kernels.in_lanes(np.square(rows - mean[:, None]), False, totals[1])
    deviation = np.sqrt(totals[1] / _F(rows.shape[1]) + _F(a.get("epsilon", 1e-5)))
    factor = (_F(1) / deviation).reshape(len(x), -1) * scale
    shift = bias - mean.reshape(len(x), -1) * factor
    out: Array = rows * factor.reshape(-1, 1) + shift.reshape(-1, 1)
    return out.reshape(x.shape)


def _mean(*values: Any) -> Array:
    *terms, _ = values
    return np.asarray(reduce(np.add, terms) * (_F(1) / _F(len(terms))))


REPLAYS = of_floats(
    {
        "BatchNormalization": _Steps("a factor and a shift by channel, multiply, then add", _batch),
        "InstanceNormalization": _Steps("sums in 8 lanes, then a factor and a shift", _instance),
        "Mean": _Steps("one after the other, then a product with the reciprocal", _mean),
    }
)
