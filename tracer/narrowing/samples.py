"""What nodes read and should return on calibration data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tracer.interpreter.values import Value
from tracer.narrowing import partial_sum_extremes
from tracer.narrowing.layers import Layer, PlainSum
from tracer.narrowing.requirement import MARGIN, Registers
from tracer.narrowing.rounding import Correlations, product
from tracer.support.types import Array, FloatArray

_LEAST, _FOR_EACH_INPUT = 2048, 4
"""Columns of a layer: as many, or so many for each of its K inputs."""
_MOST_SAMPLES = 1 << 25
"""Numbers of all columns of a layer: 256 MiB."""
_MOST_OUTPUTS = 1 << 22
"""Outputs of a node without weights that are compared."""
_FEW, _MANY = 64, 256
"""Output channels on which changes of a layer with more than many of them are compared."""
_FEWEST, _DEEP = 16, 512
"""The same for layers of more than so many inputs: their factors take as long as all else."""


@dataclass(frozen=True, slots=True)
class LayerSamples:
    """Random outputs of a layer: `wanted` (count, M), for `wide` inputs (count, groups, K).

    `read` are the inputs in the narrowed model. All are real numbers.
    """

    layer: Layer
    wide: FloatArray = field(repr=False)
    read: FloatArray = field(repr=False)
    wanted: FloatArray = field(repr=False)
    shares: bool = False
    """Whether fits on all grids share the correlations of inputs on the layer's own grid."""
    base: list[tuple[Correlations, float]] = field(default_factory=list, init=False, repr=False)
    """These correlations, once they are known."""
    _least_units: dict[Registers, FloatArray] = field(default_factory=dict, init=False, repr=False)

    def some_outputs(self) -> LayerSamples:
        """Returns some of the output channels, evenly spaced; all where they are not many.

        There are fewer for a layer that is large, whose grids share correlations as well.
        """
        outputs, is_large = len(self.layer.integers), self.layer.depth > _DEEP
        if (outputs <= _MANY and not is_large) or self.layer.groups > 1:
            return self
        few = min(_FEWEST if is_large else _FEW, outputs)
        rows = np.linspace(0, outputs - 1, few).astype(np.int64)
        some = self.layer.of_outputs(rows)
        return LayerSamples(some, self.wide, self.read, self.wanted[:, rows], is_large)

    def in_order(self, order: Sequence[int]) -> LayerSamples:
        """Returns the samples with the terms of the layer in an order (K,)."""
        layer = replace(self.layer, integers=self.layer.integers[:, order])
        return replace(self, layer=layer, wide=self.wide[..., order], read=self.read[..., order])

    def least_units(self, registers: Registers) -> FloatArray:
        """Returns the least real numbers (M,) for an integer of a sum at which the samples fit.

        They are computed once, since measures try many grids.
        """
        if registers not in self._least_units:
            units = partial_sum_extremes.least_units(self.layer, self.wide, registers, MARGIN)
            self._least_units[registers] = units
        return self._least_units[registers]


@dataclass(frozen=True, slots=True)
class SumSamples:
    """Batches of a node without weights: `wanted` outputs, and inputs in the narrowed model.

    `compute` returns the output of the node for inputs of one batch.
    """

    node: PlainSum
    compute: Callable[[Sequence[Value]], Value] = field(repr=False)
    read: Sequence[Sequence[Value]] = field(repr=False)
    wanted: Sequence[Array] = field(repr=False)

    def outputs(self, inputs: Sequence[Sequence[Value]]) -> list[Array]:
        """Returns the outputs of the node for batches of inputs."""
        return [np.asarray(self.compute(each)) for each in inputs]


@dataclass(frozen=True, slots=True)
class Batch:
    """The inputs of a node in the wide and in the narrowed model, and its wide output."""

    wide: Sequence[Value]
    read: Sequence[Value]
    wanted: Array


def layer_samples(layer: Layer, batches: Sequence[Batch]) -> LayerSamples:
    """Returns random outputs of all batches; the choice depends on nothing but their number."""
    most = _MOST_SAMPLES // (layer.depth * layer.groups)
    columns = max(min(max(_LEAST, _FOR_EACH_INPUT * layer.depth), most), 1)
    count = -(-columns // len(batches))
    wide, read = (
        np.concatenate([
            layer.columns(inputs[0], count, np.random.default_rng(number))
            for number, inputs in enumerate(sides)
        ])
        for sides in ([each.wide for each in batches], [each.read for each in batches])
    )  # fmt: skip
    groups = np.split(layer.weights, layer.groups)
    wanted = np.concatenate([product(wide[:, n], rows.T) for n, rows in enumerate(groups)], axis=1)
    return LayerSamples(layer, wide, read, wanted if layer.bias is None else wanted + layer.bias)


def sum_samples(
    node: PlainSum, compute: Callable[[Sequence[Value]], Value], batches: Sequence[Batch]
) -> SumSamples:
    """Returns the first batches, as many as are compared."""
    size = max(np.asarray(batches[0].wanted).size, 1)
    few = batches[: max(_MOST_OUTPUTS // size, 1)]
    return SumSamples(node, compute, [each.read for each in few], [each.wanted for each in few])
