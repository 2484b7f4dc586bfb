"""Normalisations of channels, and the mean of several tensors: steps that are each rounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any

import numpy as np

from tracer.arithmetic.functions import c_library, packets
from tracer.arithmetic.kernel import Inputs, Kernel
from tracer.arithmetic.replays.elementwise import Elementwise, indices_of, runs_of
from tracer.arithmetic.replays.interpreter import of_floats
from tracer.arithmetic.rule import Facts, NotKnown, Rule
from tracer.interpreter.compiled_code import loaded
from tracer.support.types import Array

_F = np.float32


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


class _LocalResponse:
    """LRN: the window of squares moves by an addition and a subtraction; then a power."""

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        if float(kernel.attributes.get("beta", 0.75)).is_integer():
            raise NotKnown("integral powers are not known")
        places = self._left_over(kernel)
        text = f"a power in vectors, {sum(places[1::2])} left over by the C library"
        yield Rule(text, {"rest": places})

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        (x,) = kernel.values(inputs)
        scale, exponent = self._scale(kernel, x)
        power = packets.power(scale, exponent)
        places = indices_of(facts["rest"])
        power.flat[places] = c_library.power(scale.flat[places], exponent)
        return [np.asarray(x * power)]

    def _scale(self, kernel: Kernel, x: Array) -> tuple[Array, Any]:
        """Returns what is raised to a power, and the exponent."""
        a = kernel.attributes
        size, channels = a["size"], x.shape[1]
        factor = _F(a.get("alpha", 1e-4)) / _F(size)
        squares = np.zeros((len(x), channels + size - 1, *x.shape[2:]), _F)
        first = (size - 1) // 2
        squares[:, first : first + channels] = x * x
        scale = np.full(x.shape, _F(a.get("bias", 1)))
        for offset in range(size):
            scale[:, 0] += factor * squares[:, offset]
        for channel in range(1, channels):
            head = scale[:, channel - 1] + factor * squares[:, channel + size - 1]
            scale[:, channel] = head + -factor * squares[:, channel - 1]
        return scale, -_F(a.get("beta", 0.75))

    def _left_over(self, kernel: Kernel) -> list[int]:
        """Returns where the C library computes the power: begin and length of each run.

        One value in all places tells it of the channels whose results by both ways differ.
        """
        ((name, (_, shape)),) = kernel.inputs.items()
        drawn = np.random.default_rng(0).uniform(0.5, 20, (4096, 1, 1, 1)).astype(_F)
        values = np.broadcast_to(drawn, (4096, shape[1], 1, 1))
        scale, exponent = self._scale(kernel, values)
        vector, single = packets.power(scale, exponent), c_library.power(scale, exponent)
        tells = (values * vector != values * single)[:, :, 0, 0]
        if not tells.any(axis=0).all():
            raise NotKnown("vectors and the C library have the same results")
        places = np.zeros(shape, bool)
        seen = np.zeros(shape[1], bool)
        while not seen.all():
            best = int(np.argmax((tells & ~seen).sum(axis=1)))
            out = kernel.run({name: np.full(shape, drawn[best].item(), _F)})[0]
            differs = tells[best][None, :, None, None]
            places |= differs & (out == (values * single)[best])
            seen |= tells[best]
        return runs_of(places.ravel())


REPLAYS = of_floats(
    {
        "BatchNormalization": Elementwise(
            "a factor and a shift by channel, multiply, then add", _batch
        ),
        "InstanceNormalization": Elementwise(
            "sums in 8 lanes, then a factor and a shift", _instance
        ),
        "LRN": _LocalResponse(),
        "Mean": Elementwise("one after the other, then a product with the reciprocal", _mean),
    }
)
