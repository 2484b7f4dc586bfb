"""Softmax and averages of bytes.

A softmax takes exponentials from a table of float32, and adds them in order. An average of whole
images is their exact sum times one factor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tracer.arithmetic.kernel import Kernel
from tracer.arithmetic.replays import interpreter
from tracer.arithmetic.rule import Rule
from tracer.support.types import Array

_RESERVE = 5
"""How much less than the largest float32, as a logarithm, the sum may be."""
_PER_ROW = 13
"""The opset since which the axis alone is summed, and not all dimensions behind it."""


class _QuantizedSoftmax:
    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        yield Rule("exponentials from a table, added one after the other in float32")

    def replay(
        self, kernel: Kernel, facts: Mapping[str, Any], inputs: Mapping[str, Array]
    ) -> list[Array]:
        x, x_scale, _, y_scale, zero_point = kernel.values(inputs)
        assert x is not None and x_scale is not None and y_scale is not None
        since = kernel.attributes["opset"]
        axis = kernel.attributes.get("axis", -1 if since >= _PER_ROW else 1) % x.ndim
        moved = np.moveaxis(x, axis, -1) if since >= _PER_ROW else x
        rows = moved.reshape(math.prod(moved.shape[: -1 if since >= _PER_ROW else axis]), -1)
        table = _exponentials(float(x_scale.item()), rows.shape[1])
        # the largest of a row has the last place of the table, whose type it does not change
        places = 255 - (rows.max(1, keepdims=True).astype(np.int64) - rows)
        terms = table[places]
        total = np.add.accumulate(terms, axis=1)[:, -1:]
        factor = np.floor(np.float32(1) / np.float32(y_scale.item()))
        shift = 0 if zero_point is None else int(zero_point.item())
        results = np.rint(terms * factor / total).astype(np.int64) + shift
        limits = np.iinfo(x.dtype)
        out = np.clip(results, limits.min, limits.max).astype(x.dtype).reshape(moved.shape)
        return [np.moveaxis(out, -1, axis) if since >= _PER_ROW else out]


def _exponentials(scale: float, count: int) -> Array:
    """Returns exp of 0 to 255 steps below the largest number, raised to the end of float32.

    `count` terms are added. Source: onnxruntime, contrib_ops/cpu/quantization/qlinear_softmax.cc.
    """
    most = math.log(np.finfo(np.float32).max / np.float32(count)) - _RESERVE
    raised = (np.arange(256) - 255 + max(0.0, most) / scale) * scale
    exponentials: Array = np.exp(raised).astype(np.float32)
    return exponentials


class _QuantizedAverage:
    """Windows that are a part of the image are left to tracer's interpreter."""

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        images = _images(kernel, np.empty(kernel.shape(0) or (), np.uint8))
        if tuple(kernel.attributes["kernel_shape"]) == images.shape[2:]:
            yield Rule("exact sums, times one factor", {"whole": True})
        yield from interpreter.REPLAY.candidates(kernel)

    def replay(
        self, kernel: Kernel, facts: Mapping[str, Any], inputs: Mapping[str, Array]
    ) -> list[Array]:
        if not facts.get("whole"):
            return interpreter.REPLAY.replay(kernel, facts, inputs)
        x, x_scale, x_zero, y_scale, y_zero = kernel.values(inputs)
        assert x is not None and x_scale is not None and y_scale is not None
        images = _images(kernel, x)
        zeros = [0 if each is None else int(each.item()) for each in (x_zero, y_zero)]
        count = math.prod(images.shape[2:])
        sums = images.reshape(*images.shape[:2], -1).sum(2, dtype=np.int64) - zeros[0] * count
        factor = np.float32(x_scale.item() / (y_scale.item() * count))
        results = np.rint(sums.astype(np.float32) * factor).astype(np.int64) + zeros[1]
        limits = np.iinfo(x.dtype)
        out = np.clip(results, limits.min, limits.max).astype(x.dtype)
        ones = (1,) * (x.ndim - 2)
        is_last = kernel.attributes.get("channels_last")
        return [out.reshape(len(out), *ones, -1) if is_last else out.reshape(*out.shape, *ones)]


def _images(kernel: Kernel, x: Array) -> Array:
    """Returns images (N, C, ...), whose channels may be stored last."""
    return np.moveaxis(x, -1, 1) if kernel.attributes.get("channels_last") else x


REPLAYS = {
    "com.microsoft:QLinearSoftmax": _QuantizedSoftmax(),
    "com.microsoft:QLinearAveragePool": _QuantizedAverage(),
}
