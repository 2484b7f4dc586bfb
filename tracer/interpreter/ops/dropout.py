"""Dropout: the identity in inference, a random mask in training."""

from collections.abc import Sequence

import numpy as np

from tracer import limits
from tracer.interpreter.binding import NodeContext
from tracer.interpreter.ops.random import seed_of
from tracer.interpreter.registry import operator
from tracer.support.types import Array


@operator("Dropout", since=12)
def dropout(
    data: Array,
    ratio: Array | None = None,
    training_mode: Array | None = None,
    *,
    seed: int | None = None,
    ctx: NodeContext,
) -> tuple[Array, Array]:
    """Returns the input and a mask; in training random elements are 0 and the rest scaled up."""
    share = 0.5 if ratio is None else float(ratio.reshape(-1)[0])
    if training_mode is None or not training_mode.any() or share == 0:
        return data, np.ones(data.shape, np.bool_)
    limits.allow(data.shape, np.float64)
    # ONNX's own test cases use numpy's legacy generator, seeded by the attribute.
    draws = np.random.RandomState(seed_of(ctx) if seed is None else seed).uniform(size=data.shape)
    mask = np.greater_equal(draws, share)
    return (data * mask / np.array(1 - share, data.dtype)).astype(data.dtype), mask


@operator("Dropout", since=10)
def dropout_10(data: Array, *, ratio: float = 0.5) -> tuple[Array, Array]:
    """Dropout of opset 10: returns the input, and a mask of zeros as onnxruntime does."""
    return data, np.zeros(data.shape, np.bool_)


@operator("Dropout")
def dropout_1(
    data: Array,
    *,
    consumed_inputs: Sequence[int] | None = None,
    is_test: int = 0,
    ratio: float = 0.5,
) -> tuple[Array, Array]:
    """Dropout before opset 10: the mask, which nothing fills, has the type of the input."""
    return data, np.zeros(data.shape, data.dtype)
