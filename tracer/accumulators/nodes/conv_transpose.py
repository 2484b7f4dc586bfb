"""ConvTranspose: a convolution of the input, with zeros in between, with the flipped kernel."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tracer import limits
from tracer.accumulators.engine.node_operands import NodeOperands, NoIntegerForm
from tracer.accumulators.engine.node_output import Dequantize
from tracer.accumulators.engine.sum_runner import SumRunner
from tracer.accumulators.nodes import ComputeSums, NodeSums, computed, lowering
from tracer.accumulators.nodes.conv import convolution_sums
from tracer.interpreter.numeric.windows import Window
from tracer.interpreter.operators import MICROSOFT
from tracer.interpreter.ops.conv import geometry
from tracer.interpreter.values import Value
from tracer.support.types import Array

_PADS = 2
"""The input of ConvTransposeWithDynamicPads that has the pads."""


@lowering("ConvTranspose")
def conv_transpose(operands: NodeOperands) -> ComputeSums:
    """Terms are added by input channel, then kernel position, from the last one to the first.

    That is the order of the elements of the input, row by row. The zeros in between add nothing.
    """
    return _transposed(operands, operands.attributes, 2)


@lowering("ConvTransposeWithDynamicPads", domain=MICROSOFT)
def conv_transpose_with_dynamic_pads(operands: NodeOperands) -> ComputeSums:
    """As ConvTranspose, with pads that are an input, before the bias."""
    if not operands.has_input(_PADS):
        return _transposed(operands, operands.attributes, 3)
    pads = operands.scales.value(operands.node.inputs[_PADS], operands.node.scope)
    if pads is None:
        raise NoIntegerForm("its pads are computed, so that it has no bounds before a run")
    return _transposed(operands, {**operands.attributes, "pads": pads.reshape(-1).tolist()}, 3)


def _transposed(operands: NodeOperands, options: Mapping[str, Any], bias_index: int) -> ComputeSums:
    x, w = operands.activations(0), operands.weights(1)
    groups = options.get("group", 1)
    axis = 1 if groups == 1 else None  # with groups a scale would be shared by their channels
    step = x.steps(None) * w.steps(axis)

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        bias = operands.bias(bias_index, step, inputs)
        weights, x_integers = w.integers(inputs[1]), x.integers(inputs[0])
        images, windows = spread(x_integers.values, inputs[1].shape[2:], options)
        left = replace(weights, numbers=flipped(weights.numbers, groups))
        right = replace(x_integers, numbers=images, shift=0)
        strides = options.get("strides") or [1] * len(windows.kernel)
        taps = meeting(windows, images.shape[2:], strides)
        sums = convolution_sums(runner, right, left, bias.integers, windows, groups, None, taps)
        assert sums is not None
        return computed(sums, Dequantize(step, bias.rest, inputs[0].dtype))

    return compute


def flipped(w: Array, groups: int) -> Array:
    """Weights (C, M / groups, *kernel) as those of a convolution: (M, C / groups, *kernel)."""
    channels, maps = len(w) // groups, w.shape[1]
    parts = w.reshape(groups, channels, maps, *w.shape[2:]).swapaxes(1, 2)
    turned = np.flip(parts, axis=tuple(range(3, parts.ndim)))
    return np.ascontiguousarray(turned).reshape(groups * maps, channels, *w.shape[2:])


def meeting(
    windows: Window, size: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    """The sets of kernel positions that meet elements of the input together.

    `size` is that of the input with zeros in between. A set within another one is left out.
    """
    axes = [
        _meeting_of_axis(*each)
        for each in zip(
            windows.out, windows.before, windows.kernel, windows.dilations, size, strides,
            strict=True,
        )
    ]  # fmt: skip
    return tuple(
        tuple(np.ravel_multi_index(np.ix_(*sets), windows.kernel).reshape(-1).tolist())
        for sets in itertools.product(*axes)
    )


def _meeting_of_axis(
    out: int, before: int, kernel: int, dilation: int, size: int, stride: int
) -> list[tuple[int, ...]]:
    """As `meeting`, along one axis: an element is at every multiple of the stride."""
    at = np.arange(out)[:, None] - before + np.arange(kernel) * dilation
    met = (at % stride == 0) & (at >= 0) & (at < size)
    sets = {frozenset(np.flatnonzero(row).tolist()) for row in met}
    return [tuple(sorted(each)) for each in sets if not any(each < other for other in sets)]


def spread(x: Array, kernel: Sequence[int], options: Mapping[str, Any]) -> tuple[Array, Window]:
    """The input with zeros between its elements, and the windows of each output over it."""
    rank = len(kernel)
    strides = options.get("strides") or [1] * rank
    dilations = options.get("dilations") or [1] * rank
    _, before, size = geometry(
        x.shape[2:], kernel, strides, dilations, options.get("pads"),
        options.get("output_padding"), options.get("output_shape"),
        options.get("auto_pad", "NOTSET"),
    )  # fmt: skip
    shape = (*x.shape[:2], *((n - 1) * s + 1 for n, s in zip(x.shape[2:], strides, strict=True)))
    limits.allow(shape, x.dtype)
    out = np.zeros(shape, x.dtype)
    out[:, :, *(slice(None, None, stride) for stride in strides)] = x
    reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    pads = tuple(r - b for r, b in zip(reach, before, strict=True))
    ends = (s + b - n for s, b, n in zip(size, before, shape[2:], strict=True))
    # There are zeros between the elements, too: a positive `after` says that inputs may be 0.
    after = tuple(end or r for end, r in zip(ends, reach, strict=True))
    return out, Window(tuple(kernel), (1,) * rank, tuple(dilations), pads, after, tuple(size))
