"""Means and mean products of what a layer reads and returns: all that fitting it needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
        mean = inputs.mean(0) if centred else np.zeros(inputs.shape[1])
        wanted = outputs.mean(0) if centred else np.zeros(outputs.shape[1])
        x, y = (np.asarray(each, np.float32) for each in (inputs - mean, outputs - wanted))
        second, cross = (np.asarray(each.T @ x, np.float64) / len(x) for each in (x, y))
        return cls(mean, wanted, second, cross, (y**2).mean(0, dtype=np.float64))

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

    def error(self, real: FloatArray, bias: FloatArray) -> FloatArray:
        """Returns the mean squares (M,) of what weights (M, K) and a bias (M,) lose."""
        offset = self.wanted - real @ self.mean - bias
        spread = self.power - 2 * (real * self.cross).sum(1) + ((real @ self.second) * real).sum(1)
        result: FloatArray = np.maximum(spread, 0) + offset**2
        return result
