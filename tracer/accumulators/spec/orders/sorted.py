"""Alternates signs: adds a negative term to a positive sum and the reverse, while both remain.

The idea of sorted partial sums (PQS, arXiv 2504.09064) without the rounds of sorting. While terms
of both signs remain, no sum exceeds the largest term; afterwards sums are monotone.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tracer.accumulators.spec.orders import Order, Stage, Terms, one_group
from tracer.support.types import Array


@dataclass(frozen=True, slots=True)
class Sorted(Order):
    """Adds a term of the sign opposite to the exact sum so far; at 0 a positive one."""

    reorders: ClassVar[bool] = True

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """Returns one stage of all terms."""
        return (one_group(terms.count),)

    def arrange(self, products: Array, start: Array) -> Array:
        """Returns the products in the order they are added."""
        depth = products.shape[-1]
        positives = np.argsort(products < 0, axis=-1, kind="stable")
        split = (products >= 0).sum(-1)
        queue = np.take_along_axis(products, positives, -1)
        out = np.empty_like(products)
        total = start.astype(np.int64, copy=True)
        up, down = np.zeros_like(split), split.copy()
        for k in range(depth):
            take_up = (up < split) & ((total <= 0) | (down == depth))
            index = np.where(take_up, up, down)
            term = np.take_along_axis(queue, index[..., None], -1)[..., 0]
            out[..., k] = term
            total += term
            up += take_up
            down += ~take_up
        return out

    def envelope(self, low: Array, high: Array, start: Array) -> tuple[Array, Array]:
        """Returns bounds from the start, the largest term of each sign, and the final sum.

        A negative term is added to a sum of at least 1, a positive term to a sum of at most 0.
        """
        least, greatest = Order.envelope(self, low, high, start)
        balanced_low = np.minimum(start, np.minimum(1 + low.min(-1), start + low.sum(-1)))
        balanced_high = np.maximum(start, np.maximum(high.max(-1), start + high.sum(-1)))
        return np.maximum(least, balanced_low), np.minimum(greatest, balanced_high)
