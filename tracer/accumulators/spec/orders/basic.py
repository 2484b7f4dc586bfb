"""Orders of the accumulator alone: term after term, in parts, as a tree, or by sign."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tracer.accumulators.spec.orders import Order, Stage, Terms, check_size, one_group, rows_of
from tracer.accumulators.spec.register import Register
from tracer.support.types import Array


@dataclass(frozen=True, slots=True)
class Sequential(Order):
    """The terms in the order of the operator's definition: channel, kernel row, column."""

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """Returns one stage of all terms."""
        return (one_group(terms.count),)


@dataclass(frozen=True, slots=True)
class Channelwise(Order):
    """The window of each channel, then the channels; a matrix product is summed sequentially."""

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """Returns the windows and the channels."""
        if terms.window == 1:
            return (one_group(terms.count),)
        return Stage(rows_of(terms.count, terms.window)), one_group(terms.channels)


@dataclass(frozen=True, slots=True)
class Chunked(Order):
    """Sums of `size` consecutive terms each, then their sum."""

    size: int

    def __post_init__(self) -> None:
        check_size("a chunk", self.size)

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """Returns the chunks and their sum."""
        chunks = Stage(rows_of(terms.count, self.size))
        return chunks, one_group(len(chunks.groups))


@dataclass(frozen=True, slots=True)
class Lanes(Order):
    """Term k is added to lane k mod `size`, as in a vector register; then the lanes in order."""

    size: int

    def __post_init__(self) -> None:
        check_size("a number of lanes", self.size)

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """Returns the lanes and their sum."""
        lanes = Stage(rows_of(terms.count, self.size).T)
        return lanes, one_group(len(lanes.groups))


@dataclass(frozen=True, slots=True)
class Tree(Order):
    """Pairs, pairs of pairs and so on; an odd number at the end passes to the next level."""

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """Returns one stage for each level."""
        levels = []
        count = terms.count
        while count > 2:
            levels.append(Stage(rows_of(count, 2)))
            count = -(-count // 2)
        return (*levels, one_group(count))


_MADDUBS_PAIR = Register(16)


@dataclass(frozen=True, slots=True)
class Maddubs(Order):
    """Pairs in 16 bits, then `size` lanes of the accumulator: 16 in a register of 256 bits.

    Intel's instruction PMADDUBSW multiplies unsigned by signed bytes and adds neighbours with
    saturation to 16 bits (Software Developer's Manual, volume 2B); libraries for int8 products add
    the results lane by lane.
    """

    size: int = 16

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """Returns the pairs, the lanes and their sum."""
        pairs = Stage(rows_of(terms.count, 2), _MADDUBS_PAIR)
        return pairs, *Lanes(self.size).stages(Terms(len(pairs.groups)))


@dataclass(frozen=True, slots=True)
class Sorted(Order):
    """Adds a term of the sign opposite to the exact sum so far; at 0 a positive one.

    The idea of sorted partial sums (PQS, arXiv 2504.09064) without the rounds of sorting. While
    terms of both signs remain, no sum exceeds the largest term; afterwards sums are monotone.
    """

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
