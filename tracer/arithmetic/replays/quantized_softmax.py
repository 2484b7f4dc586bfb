"""Softmax of bytes: exponentials from a table of float32, a sum in order, results rounded."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tracer.arithmetic.kernel import Kernel
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


REPLAYS = {"com.microsoft:QLinearSoftmax": _QuantizedSoftmax()}
