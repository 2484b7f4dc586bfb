"""Fits the weights of a layer to registers, at the least error of its outputs."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

import numpy as np

from tracer.narrowing import rounding
from tracer.narrowing.layers import Grid, Layer
from tracer.narrowing.requirement import OUTER_BITS, Need, Registers
from tracer.narrowing.samples import LayerSamples, least_units
from tracer.support.types import Array, FloatArray


@dataclass(frozen=True, slots=True)
class Moments:
    """Means of inputs (K,) and outputs (M,), and mean products: about the means if `centred`.

    Without the products of the inputs, `second`, there are `samples` of integer inputs (count, K)
    and of outputs (count, M) about their means.
    """

    mean: FloatArray
    wanted: FloatArray
    second: FloatArray | None
    cross: FloatArray
    power: FloatArray
    samples: tuple[FloatArray, FloatArray] | None = None

    @classmethod
    def of(
        cls, inputs: FloatArray, outputs: FloatArray, centred: bool, has_second: bool = True
    ) -> "Moments":
        """Returns the moments of integer inputs (count, K) and outputs (count, M)."""
        count, mean, wanted = len(inputs), np.zeros(inputs.shape[1]), np.zeros(outputs.shape[1])
        if centred:
            mean, wanted = inputs.mean(0), outputs.mean(0)
        y = outputs - wanted
        cross = rounding.product(y.T, inputs) / count - y.mean(0)[:, None] * mean
        power = (y**2).mean(0)
        if not has_second:
            return cls(mean, wanted, None, cross, power, (inputs, y))
        second = rounding.gram(inputs) / count - mean[:, None] * mean
        return cls(mean, wanted, second, cross, power)

    def without(self, means: FloatArray) -> "Moments":
        """Returns the moments of outputs that lack `means` (M,) times the sum of the inputs."""
        assert self.second is not None
        with_sum = self.cross.sum(1)
        return Moments(
            self.mean,
            self.wanted - means * self.mean.sum(),
            self.second,
            self.cross - means[:, None] * self.second.sum(0),
            self.power - 2 * means * with_sum + means**2 * self.second.sum(),
        )

    def of_rows(self, part: slice, times: int) -> "Moments":
        """Returns the moments of some outputs, each repeated."""
        wanted, cross, power = (
            np.repeat(each[part], times, 0) for each in (self.wanted, self.cross, self.power)
        )
        samples = self.samples
        if samples is not None:
            samples = samples[0], np.repeat(samples[1][:, part], times, 1)
        return Moments(self.mean, wanted, self.second, cross, power, samples)

    def error(self, integers: FloatArray, units: FloatArray, bias: FloatArray) -> FloatArray:
        """Returns the mean squares (M,) of what a bias (M,) and weights lose.

        The weights are integers (M, K) times units (M,).
        """
        if self.samples is not None:
            inputs, outputs = self.samples
            lost = (
                outputs + self.wanted - rounding.integer_product(inputs, integers.T) * units - bias
            )
            return np.asarray((lost**2).mean(0))
        assert self.second is not None
        offset = self.wanted - self.of_mean(integers) * units - bias
        real = integers * units[:, None]
        square = (rounding.product(integers, self.second) * integers).sum(1) * units**2
        spread = self.power - 2 * (real * self.cross).sum(1) + square
        result: FloatArray = np.maximum(spread, 0) + offset**2
        return result

    def of_mean(self, weights: FloatArray) -> FloatArray:
        """Returns the sums (M,) of the means of the inputs times weights (M, K)."""
        result: FloatArray = (weights * self.mean).sum(1)
        return result


_STEPS = 18
"""Steps of weights that are tried."""
_BYTE = 127
"""The largest weight of 8 bits."""
_COARSEST = 256 * math.sqrt(2) / _BYTE
"""The coarsest step, as a multiple of the largest weight: few weights are not 0."""
_CLIPPED = 0.75
"""The finest step of weights with fewer than 8 bits, as a multiple of the one without clipping."""
_FAINTEST = 2.0**-16
"""The least weights of a row in powers of two, as a share of the layer's greatest."""
_MOST_NUMBERS = 1 << 23
"""Weights that are rounded at a time, with all steps."""
_MOST_BIAS = float(1 << (OUTER_BITS - 2))
"""The largest bias in the register behind tiles: half of its range."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A layer whose sums fit: `integers` (M, K) times `scales` (M,), with inputs on `grid`.

    `bias` (M,) are integers in the unit of the sums, None for a layer without. `means` (M,), if
    there are some, times the sum of the inputs are added afterwards; sums are in real units.
    `error` and `power` are the mean squares of what the outputs lose and are. `steps` are the
    first and the last of the tried units that are the best of a row.
    """

    grid: Grid
    integers: FloatArray = field(repr=False)
    scales: FloatArray = field(repr=False)
    bias: FloatArray | None = field(repr=False)
    means: FloatArray | None = field(repr=False)
    error: float
    power: float
    steps: tuple[int, int]


def sqnr_db(error: float, power: float) -> float:
    """Returns 10 log10(power / error); infinite without an error."""
    if error <= 0:
        return math.inf
    return 10 * math.log10(max(power, 1e-300) / error)


def fits_already(samples: LayerSamples, need: Need) -> bool:
    """Whether the sums of the layer fit as they are, in any order for any input."""
    layer, registers = samples.layer, need.registers(samples.layer.depth, samples.layer.kernel)
    if need.machine is not None:
        return bool(rows_that_fit(layer, registers).all())
    if not need.is_for_any_input:
        units = layer.scales * layer.grid.step
        return bool((least_units(layer, samples.read, registers) <= units).all())
    bias = np.zeros(len(layer.integers))
    if layer.bias is not None:
        bias = np.rint(layer.bias / (layer.grid.step * layer.scales))
    return _limits(layer, layer.grid, registers, bias).held_by(layer.integers)


def rows_that_fit(layer: Layer, registers: Registers) -> Array:
    """Returns which rows (M,) no input makes exceed the registers of a machine, as they are."""
    limits = _limits(layer, layer.grid, registers, np.zeros(len(layer.integers)))
    stored = layer.integers + (layer.zero if registers.need.reads_stored else 0)
    top, bottom = limits.extremes(stored[:, registers.order])
    return np.asarray(((top <= limits.above) & (bottom <= limits.below)).all(1))


def excess(layer: Layer, need: Need) -> float:
    """Returns how many times as large as a register holds a sum of the layer can be."""
    none = np.zeros(len(layer.integers))
    limits = _limits(layer, layer.grid, need.registers(layer.depth, layer.kernel), none)
    return float(np.maximum(*limits.extremes(layer.integers)).max()) / need.largest


def fit_layer(
    samples: LayerSamples,
    grid: Grid,
    registers: Registers,
    centred: bool = False,
    steps: slice = slice(None),
) -> Fit:
    """Fits a layer to registers, with its inputs on `grid`.

    Each row has the step at which its outputs lose the least; all rows share one where the stored
    weights have one scale. The bias makes up for the mean of what they lose. With `centred`, the
    rows lack their mean, which is a term of its own. `steps` are those of the units that are tried.

    For a machine, rows that fit it already stay as they are, bit for bit.
    """
    if registers.order is not None:
        order, kept = list(registers.order), np.zeros(len(samples.layer.integers), bool)
        if grid == samples.layer.grid and not samples.layer.zero:
            kept = rows_that_fit(samples.layer, registers)
        plain = replace(registers, order=None)
        fit = fit_layer(samples.in_order(order), grid, plain, centred, steps)
        integers = np.empty_like(fit.integers)
        integers[:, order] = fit.integers
        return _with_rows(samples, replace(fit, integers=integers), kept)
    layer, inputs = samples.layer, grid.integers(samples.read)
    least = np.zeros(len(layer.integers))
    if not registers.need.is_for_any_input:
        least = samples.least_units(registers)
    problem, groups = _Problem(layer, grid, registers, centred), list[_Group]()
    for number, rows in enumerate(np.split(np.arange(len(layer.integers)), layer.groups)):
        outputs, base = samples.wanted[:, rows], None
        if samples.shares and not centred:
            base = _base(samples)
        moments = Moments.of(inputs[:, number], outputs, layer.bias is not None, base is None)
        groups.append(problem.group(rows, moments, least[rows], base))
    units = [problem.units(each)[:, steps] for each in groups]
    if layer.has_one_scale:
        units = problem.one_unit(groups, units)
    parts = [part for pair in zip(groups, units, strict=True) for part in problem.best(*pair)]
    integers, unit, bias, errors, best = (np.concatenate(e) for e in zip(*parts, strict=True))
    return Fit(
        grid,
        integers,
        unit / grid.step,
        None if layer.bias is None else bias,
        np.concatenate([each.means for each in groups]) / grid.step if centred else None,
        float(errors.sum()),
        float((samples.wanted**2).mean(0).sum()),
        (int(best.min()), int(best.max())),
    )


def _with_rows(samples: LayerSamples, fit: Fit, kept: Array) -> Fit:
    """Returns a fit with some rows of the layer as they were, and what that loses."""
    layer = samples.layer
    if layer.has_one_scale or not layer.is_storable or not kept.any():
        return fit
    integers, scales, bias = fit.integers.copy(), fit.scales.copy(), fit.bias
    integers[kept], scales[kept] = layer.integers[kept], layer.scales[kept]
    if bias is not None and layer.bias is not None:
        own = np.rint(layer.bias / (layer.scales * layer.grid.step))
        bias = np.where(kept, own, bias)
    real = integers * scales[:, None]
    groups = zip(np.split(real, layer.groups), samples.read.swapaxes(0, 1), strict=True)
    outputs = np.concatenate([rounding.product(read, rows.T) for rows, read in groups], axis=1)
    if bias is not None:
        outputs += bias * scales * layer.grid.step
    error = float(((outputs - samples.wanted) ** 2).mean(0).sum())
    return replace(fit, integers=integers, scales=scales, bias=bias, error=error)


def _base(samples: LayerSamples) -> tuple[rounding.Correlations, float]:
    """Returns the correlations of inputs on the layer's own grid, and the share of the diagonal."""
    if not samples.base:
        inputs = samples.layer.grid.integers(samples.read[:, 0])
        is_centred = samples.layer.bias is not None
        second = Moments.of(inputs, samples.wanted[:, :1], is_centred).second
        assert second is not None
        samples.base.append((rounding.Correlations.of(second), rounding.share(second)))
    return samples.base[0]


_Rows = tuple[FloatArray, FloatArray, FloatArray, FloatArray, Array]
"""Integers, units, biases, errors and numbers of the steps of some rows."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Rows that read the same `inputs`: the real weights `ideal` (rows, K) lose the least.

    They lack their `means` (rows,). `least` (rows,) are the units of sums that the data need.
    """

    inputs: rounding.Correlations
    moments: Moments
    ideal: FloatArray = field(repr=False)
    means: FloatArray = field(repr=False)
    least: FloatArray = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Problem:
    """A layer to fit: units of sums are real numbers for each integer of a sum."""

    layer: Layer
    grid: Grid
    registers: Registers
    centred: bool

    def group(
        self,
        rows: Array,
        moments: Moments,
        least: FloatArray,
        base: tuple[rounding.Correlations, float] | None,
    ) -> _Group:
        """Returns rows that read the same inputs, which are correlated much as in the `base`."""
        toward, ratio = self.layer.weights[rows] * self.grid.step, 1.0
        if base is None:
            assert moments.second is not None
            inputs, added = rounding.Correlations.of(moments.second), rounding.share(moments.second)
        else:
            (inputs, added), ratio = base, (self.layer.grid.step / self.grid.step) ** 2
        ideal = inputs.solve(moments.cross / ratio + added * toward)
        means = np.zeros(len(ideal))
        if self.centred:
            means = ideal.mean(1)
            moments, ideal = moments.without(means), ideal - means[:, None]
        return _Group(inputs, moments, ideal, means, least)

    def units(self, group: _Group) -> FloatArray:
        """Returns the units (rows, steps) that are tried for each row."""
        finest = np.maximum(np.abs(group.ideal).max(1), 1e-30) / self.layer.most_weight
        if self.registers.need.exact:
            # rows of next to nothing vanish in the step of the output; their scales would too
            finest = np.maximum(finest, finest.max() * _FAINTEST)
            exponents = np.ceil(np.log2(finest))[:, None] + np.arange(-1, 2)
            return np.asarray(2.0**exponents)
        most = self.layer.most_weight
        least = 1.0 if most == _BYTE else _CLIPPED
        ratio = Decimal(_COARSEST * most / least) ** (1 / Decimal(_STEPS - 1))
        multiples = np.array([least * float(ratio**step) for step in range(_STEPS)])
        units = np.maximum(finest, group.least)[:, None] * multiples
        result: FloatArray = np.maximum(units, group.least[:, None])
        return result

    def one_unit(self, groups: Sequence[_Group], units: Sequence[FloatArray]) -> list[FloatArray]:
        """Returns the unit (rows, 1) of all groups at which all rows together lose the least."""
        tried = np.max([each.max(0) for each in units], axis=0)
        errors = np.zeros(len(tried))
        for group in groups:
            for *_, part in self._tried(group, np.tile(tried, (len(group.ideal), 1))):
                errors += part.sum(0)
        return [np.full((len(each.ideal), 1), tried[errors.argmin()]) for each in groups]

    def best(self, group: _Group, units: FloatArray) -> Iterator[_Rows]:
        """Yields the best of the units of each row, some rows after others."""
        for integers, unit, bias, errors in self._tried(group, units):
            steps = errors.argmin(1)
            best = np.arange(len(errors)), steps
            yield integers[best], unit[best], bias[best], errors[best], steps

    def _tried(
        self, group: _Group, units: FloatArray
    ) -> Iterator[tuple[FloatArray, FloatArray, FloatArray, FloatArray]]:
        """Yields integers (rows, steps, K), and the others (rows, steps), for all units."""
        steps = units.shape[1]
        height = max(_MOST_NUMBERS // (self.layer.depth * steps), 1)
        for start in range(0, len(units), height):
            part = slice(start, start + height)
            flat = units[part].ravel()  # of each row all its units in turn
            moments = group.moments.of_rows(part, steps)
            weights = np.repeat(group.ideal[part], steps, 0) / flat[:, None]
            expected = np.rint(moments.wanted / flat - moments.of_mean(weights))
            integers = rounding.round_within(weights, group.inputs, self._limits(expected))
            bias = np.rint(moments.wanted / flat - moments.of_mean(integers))
            bias = _clip_bias(bias, integers, self._limits(np.zeros(len(flat))), self.registers)
            errors = moments.error(integers, flat, bias * flat)
            integers = integers.reshape(-1, steps, self.layer.depth)
            yield integers, units[part], bias.reshape(-1, steps), errors.reshape(-1, steps)

    def _limits(self, bias: FloatArray) -> rounding.Limits:
        return _limits(self.layer, self.grid, self.registers, bias)


def _limits(layer: Layer, grid: Grid, registers: Registers, bias: FloatArray) -> rounding.Limits:
    """Returns the limits of sums with these biases, which may be added at any place."""
    shape = len(bias), len(registers.starts)
    low, high = grid.ends(registers.need)
    if not registers.need.is_for_any_input:
        endless = np.full(shape, np.inf)
        return rounding.Limits(low, high, endless, endless, layer.most_weight, registers.starts)
    above = np.full(shape, float(registers.need.largest))
    below = above + 1
    if registers.has_bias:
        above[:, 0] = np.maximum(above[:, 0] - np.maximum(bias, 0), 0)
        below[:, 0] = np.maximum(below[:, 0] + np.minimum(bias, 0), 0)
    return rounding.Limits(low, high, above, below, layer.most_weight, registers.starts)


def _clip_bias(
    bias: FloatArray, integers: FloatArray, limits: rounding.Limits, registers: Registers
) -> FloatArray:
    """Returns biases that leave the sums of `integers` within the limits."""
    if not registers.has_bias:
        return np.clip(bias, -_MOST_BIAS, _MOST_BIAS)
    top, bottom = limits.extremes(integers)
    low, high = bottom[:, 0] - limits.below[:, 0], limits.above[:, 0] - top[:, 0]
    most = float(registers.need.largest)
    result: FloatArray = np.clip(bias, np.maximum(low, -most - 1), np.minimum(high, most))
    return result
