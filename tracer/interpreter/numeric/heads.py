"""What the attention operators share: heads of a tensor, their products, masked shares."""

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.node_inputs import Input
from tracer.interpreter.numeric import products
from tracer.support.types import Array

Shape4 = tuple[int, int, int, int]
"""A shape of heads: batch, heads, tokens, size."""


def split_shape(x: Input, count: int | None) -> Shape4:
    """Returns the shape of (N, L, heads * size) as (N, heads, L, size). Raises ModelError."""
    if x.ndim != 3:
        raise ModelError(f"a tensor of shape {list(x.shape)} is not [batch, tokens, channels]")
    if not count or count < 0 or x.shape[2] % count:
        raise ModelError(f"{x.shape[2]} channels do not fall into {count} heads")
    return x.shape[0], count, x.shape[1], x.shape[2] // count


def split_heads(x: Array, count: int | None) -> Array:
    """Reshapes (N, L, heads * size) to (N, heads, L, size). Raises ModelError."""
    batch, heads, tokens, size = split_shape(x, count)
    return x.reshape(batch, tokens, heads, size).transpose(0, 2, 1, 3)


def check_groups(heads: int, groups: int) -> None:
    """Raises ModelError where the heads of keys and values do not divide those of queries."""
    if groups < 1 or heads % groups:
        raise ModelError(f"{heads} query heads are no multiple of {groups} of keys and values")


def joined_heads(x: Array) -> Array:
    """Reshapes (N, heads, L, size) to (N, L, heads * size)."""
    batch, heads, tokens, size = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, tokens, heads * size)


def grouped_product(a: Array, b: Array) -> Array:
    """Multiplies the matrices of heads; several heads of `a` may share one of `b`.

    `a` is (N, heads, M, K), `b` (N, groups, K, P). Raises ModelError where the groups do not divide
    the heads.
    """
    if a.shape[1] == b.shape[1]:
        return products.matmul(a, b)
    check_groups(a.shape[1], b.shape[1])
    shared = a.reshape(len(a), b.shape[1], a.shape[1] // b.shape[1], *a.shape[2:])
    product = products.matmul(shared, b[:, :, None])
    return product.reshape(*a.shape[:3], b.shape[-1])


def visible_shares(scores: Array, visible: Array | None, sink: Array | None = None) -> Array:
    """Returns the softmax of each row over what is visible; a row that sees nothing is 0.

    `sink` is a further score of each row, whose share goes to no one.
    """
    hidden = scores if visible is None else np.where(visible, scores, -np.inf)
    largest = hidden.max(axis=-1, keepdims=True, initial=-np.inf)
    if sink is not None:
        largest = np.maximum(largest, sink)
    parts = np.exp(hidden - np.where(np.isneginf(largest), 0, largest).astype(scores.dtype))
    total = parts.sum(axis=-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink - largest)
    return np.divide(parts, total, out=np.zeros_like(parts), where=total > 0)
