"""ConvTranspose: a convolution of the input, spread out with zeros, with the kernel turned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tracer import limits
from tracer.accumulators.engine.node_operands import NodeOperands
from tracer.accumulators.engine.node_output import Steps
from tracer.accumulators.engine.sum_runner import SumRunner
from tracer.accumulators.nodes import Summing, Sums, lowering
from tracer.accumulators.nodes.conv import summed
from tracer.interpreter.numeric.windows import Window
from tracer.interpreter.ops.conv_transpose import geometry
from tracer.interpreter.values import Value
from tracer.support.types import Array


@lowering("ConvTranspose")
def conv_transpose(site: NodeOperands) -> Summing:
    """Terms are met by input channel, then kernel position; the zeros between add nothing."""
    x, w = site.inputs(0), site.weights(1)
    group = site.attributes.get("group", 1)
    axis = 1 if group == 1 else None  # with groups a scale would be shared by their channels
    step = x.steps(None) * w.steps(axis)

    def compute(inputs: Sequence[Value], meter: SumRunner) -> Sums:
        shift = site.shift(2, step, inputs)
        weights, numbers = w.integers(inputs[1]), x.integers(inputs[0])
        spread, slid = _spread(numbers.values, inputs[1].shape[2:], site.attributes)
        left = replace(weights, values=_turned(weights.values, group))
        right = replace(numbers, values=spread)
        made = summed(meter, right, left, shift.integers, slid, group)
        return Sums(made, Steps(step, shift.rest, inputs[0].dtype))

    return compute


def _turned(w: Array, group: int) -> Array:
    """Weights (C, M / group, *kernel) as those of a convolution: (M, C / group, *kernel)."""
    deep, maps = len(w) // group, w.shape[1]
    parts = w.reshape(group, deep, maps, *w.shape[2:]).swapaxes(1, 2)
    flipped = np.flip(parts, axis=tuple(range(3, parts.ndim)))
    return np.ascontiguousarray(flipped).reshape(group * maps, deep, *w.shape[2:])


def _spread(x: Array, kernel: Sequence[int], options: Mapping[str, Any]) -> tuple[Array, Window]:
    """The input with zeros between its elements, and the windows of each output over it."""
    rank = len(kernel)
    steps = options.get("strides") or [1] * rank
    wide = options.get("dilations") or [1] * rank
    _, before, size = geometry(
        x.shape[2:], kernel, steps, wide, options.get("pads"), options.get("output_padding"),
        options.get("output_shape"), options.get("auto_pad", "NOTSET"),
    )  # fmt: skip
    shape = (*x.shape[:2], *((n - 1) * s + 1 for n, s in zip(x.shape[2:], steps, strict=True)))
    limits.allow(shape, x.dtype)
    spread = np.zeros(shape, x.dtype)
    spread[:, :, *(slice(None, None, step) for step in steps)] = x
    reach = [(k - 1) * d for k, d in zip(kernel, wide, strict=True)]
    pads = tuple(r - b for r, b in zip(reach, before, strict=True))
    ends = (s + b - n for s, b, n in zip(size, before, shape[2:], strict=True))
    # Zeros stand between the elements, too: `after` says that there are some.
    after = tuple(end or r for end, r in zip(ends, reach, strict=True))
    return spread, Window(tuple(kernel), (1,) * rank, tuple(wide), pads, after, tuple(size))
