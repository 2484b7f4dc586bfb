"""Means and mean products of what a layer reads and returns: all that fitting it needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracer.narrowing.fixed_order import product
from tracer.support.types import FloatArray


@dataclass(frozen=True, slots=True)
class Moments:
    """Means of inputs (K,) and outputs (M,), and mean products: about the means if `centred`."""

    mean: FloatArray
    wanted: FloatArray
    second: FloatArray
    cross: FloatArray
    power: FloatArray

    @classmethod
    def of(cls, inputs: FloatArray, outputs: FloatArray, centred: bool) -> Moments:
        """Returns the moments of inputs (count, K) and outputs (count, M)."""
        count, mean, wanted = len(inputs), np.zeros(inputs.shape[1]), np.zeros(outputs.shape[1])
        if centred:
            mean, wanted = inputs.mean(0), outputs.mean(0)
        y = outputs - wanted
        second = product(inputs.T, inputs) / count - mean[:, None] * mean
        cross = product(y.T, inputs) / count - y.mean(0)[:, None] * mean
        return cls(mean, wanted, second, cross, (y**2).mean(0))

    def without(self, means: FloatArray) -> Moments:
        """Returns the moments of outputs that lack `means` (M,) times the sum of the inputs."""
        with_sum = self.cross.sum(1)
        return Moments(
            self.mean,
            self.wanted - means * self.mean.sum(),
            self.second,
            self.cross - means[:, None] * self.second.sum(0),
            self.power - 2 * means * with_sum + means**2 * self.second.sum(),
        )

    def of_rows(self, part: slice, times: int) -> Moments:
        """Returns the moments of some outputs, each repeated."""
        wanted, cross, power = (
            np.repeat(each[part], times, 0) for each in (self.wanted, self.cross, self.power)
        )
        return Moments(self.mean, wanted, self.second, cross, power)

    def error(self, integers: FloatArray, units: FloatArray, bias: FloatArray) -> FloatArray:
        """Returns the mean squares (M,) of what a bias (M,) and weights lose.

        The weights are integers (M, K) times units (M,).
        """
        offset = self.wanted - self.of_mean(integers) * units - bias
        real = integers * units[:, None]
        square = (product(integers, self.second) * integers).sum(1) * units**2
        spread = self.power - 2 * (real * self.cross).sum(1) + square
        result: FloatArray = np.maximum(spread, 0) + offset**2
        return result

    def of_mean(self, weights: FloatArray) -> FloatArray:
        """Returns the sums (M,) of the means of the inputs times weights (M, K)."""
        result: FloatArray = (weights * self.mean).sum(1)
        return result
