"""Fits the weights of a layer to an accumulator, at the least error of its outputs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tracer.narrowing.layers import Layer
from tracer.narrowing.rounding import Limits, damped, rounded
from tracer.support.types import Array, FloatArray

_MOST_WEIGHT = 127
_COARSER = 2.0 ** (np.arange(18) / 2)
"""Steps of weights that are tried, as multiples of the finest that int8 allows."""
_MOST_NUMBERS = 1 << 23
"""Weights that are rounded at a time, with all steps."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The integers `low` to `high` times `step`, of `bits` bits, that inputs are rounded to."""

    bits: int
    step: float
    low: int
    high: int

    def integers(self, columns: FloatArray) -> FloatArray:
        """Returns real inputs as integers of the grid."""
        result: FloatArray = np.clip(np.rint(columns / self.step), self.low, self.high)
        return result


@dataclass(frozen=True, slots=True)
class Fit:
    """A layer whose sums fit: `integers` (M, K) times `scales` (M,), with inputs on `grid`.

    `bias` (M,) are integers in the unit of the sums, None for a layer without. `error` and `power`
    are the mean squares of what its outputs lose and are, on the columns of the fit.
    """

    grid: Grid
    integers: FloatArray = field(repr=False)
    scales: FloatArray = field(repr=False)
    bias: FloatArray | None = field(repr=False)
    error: float
    power: float

    @property
    def sqnr_db(self) -> float:
        """10 log10(power / error); infinite without an error."""
        if self.error <= 0:
            return math.inf
        return 10 * math.log10(max(self.power, 1e-300) / self.error)


@dataclass(frozen=True, slots=True)
class _Moments:
    """Means of what a group reads and returns, and mean products: about them if it has a bias."""

    mean: FloatArray
    wanted: FloatArray
    second: FloatArray
    cross: FloatArray
    power: FloatArray

    @classmethod
    def of(cls, inputs: FloatArray, outputs: FloatArray, centred: bool) -> _Moments:
        mean = inputs.mean(0) if centred else np.zeros(inputs.shape[1])
        wanted = outputs.mean(0) if centred else np.zeros(outputs.shape[1])
        x, y = inputs - mean, outputs - wanted
        return cls(mean, wanted, x.T @ x / len(x), y.T @ x / len(x), (y**2).mean(0))


def as_it_is(layer: Layer) -> Grid:
    """Returns the grid of the inputs of a layer."""
    return Grid((layer.high - layer.low).bit_length(), layer.step, layer.low, layer.high)


def fits_already(layer: Layer, bits: int) -> bool:
    """Whether no input makes a sum of the layer exceed `bits` bits, in any order."""
    bias = np.zeros(len(layer.integers))
    if layer.bias is not None:
        bias = np.rint(layer.bias / (layer.step * layer.scales))
    return _limits(as_it_is(layer), bits, bias).held_by(layer.integers)


def fitted(layer: Layer, columns: FloatArray, grid: Grid, bits: int) -> Fit:
    """Fits `layer` to sums of `bits` bits, with its inputs on `grid`.

    `columns` (count, groups, K) are real inputs. Each row has the step at which its outputs lose
    the least; the bias makes up for the mean of what they lose.
    """
    inputs, power = grid.integers(columns), 0.0
    parts = list[_Rows]()
    for group, rows in enumerate(np.split(np.arange(len(layer.integers)), layer.groups)):
        outputs = columns[:, group] @ layer.weights[rows].T
        if layer.bias is not None:
            outputs = outputs + layer.bias[rows]
        moments = _Moments.of(inputs[:, group], outputs, layer.bias is not None)
        power += float((outputs**2).mean(0).sum())
        parts += _rows(layer, rows, grid, bits, moments)
    integers, units, bias, errors = zip(*parts, strict=True)
    return Fit(
        grid,
        np.concatenate(integers),
        np.concatenate(units) / grid.step,
        None if layer.bias is None else np.concatenate(bias),
        float(np.concatenate(errors).sum()),
        power,
    )


_Rows = tuple[FloatArray, FloatArray, FloatArray, FloatArray]


def _rows(layer: Layer, rows: Array, grid: Grid, bits: int, moments: _Moments) -> Iterator[_Rows]:
    """Yields integers, units of sums, biases and errors of some rows after others."""
    second = damped(moments.second)
    toward = layer.weights[rows] * grid.step
    share = second[0, 0] - moments.second[0, 0]
    ideal = np.linalg.solve(second, (moments.cross + share * toward).T).T
    height = max(_MOST_NUMBERS // (layer.depth * len(_COARSER)), 1)
    for start in range(0, len(rows), height):
        part = slice(start, start + height)
        yield _best(ideal[part], part, second, grid, bits, moments)


def _best(
    ideal: FloatArray,
    part: slice,
    second: FloatArray,
    grid: Grid,
    bits: int,
    moments: _Moments,
) -> _Rows:
    """Rounds `ideal` outputs per input (rows, K) in all steps; returns the best of each row."""
    finest = np.maximum(np.abs(ideal).max(1), 1e-30) / _MOST_WEIGHT
    units = (finest[:, None] * _COARSER).ravel()
    weights = np.repeat(ideal, len(_COARSER), 0) / units[:, None]
    wanted = np.repeat(moments.wanted[part], len(_COARSER))
    expected = np.rint(wanted / units - weights @ moments.mean)
    limits = _limits(grid, bits, expected)
    integers = rounded(weights, second, limits)
    spare = _limits(grid, bits, np.zeros(len(units)))
    bias = _held(np.rint(wanted / units - integers @ moments.mean), integers, spare)
    real = integers * units[:, None]
    cross = np.repeat(moments.cross[part], len(_COARSER), 0)
    power = np.repeat(moments.power[part], len(_COARSER))
    offset = wanted - real @ moments.mean - bias * units
    errors = power - 2 * (real * cross).sum(1) + ((real @ moments.second) * real).sum(1)
    errors = (np.maximum(errors, 0) + offset**2).reshape(-1, len(_COARSER))
    best = np.arange(len(ideal)) * len(_COARSER) + errors.argmin(1)
    return integers[best], units[best], bias[best], errors.min(1)


def _limits(grid: Grid, bits: int, bias: FloatArray) -> Limits:
    """Returns the limits of sums with these biases, which may be added at any place."""
    most = float(1 << (bits - 1))
    above = np.maximum(most - 1 - np.maximum(bias, 0), 0)
    below = np.maximum(most + np.minimum(bias, 0), 0)
    return Limits(grid.low, grid.high, above, below, _MOST_WEIGHT)


def _held(bias: FloatArray, integers: FloatArray, limits: Limits) -> FloatArray:
    """Returns biases that leave the sums of `integers` within the limits."""
    top, bottom = limits.reached(integers)
    result: FloatArray = np.clip(bias, bottom - limits.below, limits.above - top)
    return result
