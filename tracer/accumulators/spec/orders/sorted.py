"""Signs balanced: a negative term after a positive sum and the other way round, while both last.

The idea is that of sorted partial sums (PQS, arXiv 2504.09064), not its rounds of sorting: while
terms of both signs remain no sum is larger than the largest term, and then sums are monotone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tracer.accumulators.spec.orders import Order, Stage, Terms, whole
from tracer.support.types import Array


@dataclass(frozen=True, slots=True)
class Sorted(Order):
    """Against the sign of the exact sum so far, each sign in the order given; at 0 a positive."""

    reorders: ClassVar[bool] = True

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """One sum."""
        return (whole(terms.count),)

    def arrange(self, products: Array, start: Array) -> Array:
        """The products in the order they are taken."""
        depth = products.shape[-1]
        positives = np.argsort(products < 0, axis=-1, kind="stable")
        split = (products >= 0).sum(-1)
        queue = np.take_along_axis(products, positives, -1)
        out = np.empty_like(products)
        total = start.astype(np.int64, copy=True)
        up, down = np.zeros_like(split), split.copy()
        for k in range(depth):
            take_up = (up < split) & ((total <= 0) | (down == depth))
            place = np.where(take_up, up, down)
            term = np.take_along_axis(queue, place[..., None], -1)[..., 0]
            out[..., k] = term
            total += term
            up += take_up
            down += ~take_up
        return out

    def envelope(self, low: Array, high: Array, start: Array) -> tuple[Array, Array]:
        """What the lemma above says: the start, the largest term of a sign, the final sum.

        A negative term is met by a sum of at least 1, a positive one by a sum of at most 0.
        """
        least, greatest = Order.envelope(self, low, high, start)
        balanced_low = np.minimum(start, np.minimum(1 + low.min(-1), start + low.sum(-1)))
        balanced_high = np.maximum(start, np.maximum(high.max(-1), start + high.sum(-1)))
        return np.maximum(least, balanced_low), np.minimum(greatest, balanced_high)
