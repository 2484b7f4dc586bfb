"""Accumulators drawn from the whole grammar, as black boxes that tests reveal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracer.accumulators.engine import dots
from tracer.accumulators.engine.tile_sums import checked
from tracer.accumulators.spec import Register
from tracer.accumulators.spec.accumulator import Accumulator, Rounding
from tracer.accumulators.spec.orders import (
    Chunked,
    Lanes,
    Level,
    Maddubs,
    Order,
    Sequential,
    Sorted,
    Terms,
    Tiles,
    Tree,
)

MODES = ("saturate", "symmetric", "wrap", "zero")
ROUNDINGS = ("half-even", "half-away", "floor", "truncate", "stochastic")
Random = np.random.Generator


def integer_rule(random: Random, terms: int) -> Accumulator:
    """Returns an accumulator of integers: any width, order, overflow and rounding."""
    shift = int(random.integers(1, 9)) if random.random() < 0.25 else 0
    name = str(random.choice(ROUNDINGS))
    return Accumulator(
        int(random.integers(6, 33)),
        str(random.choice(MODES)),  # type: ignore[arg-type]
        _order(random, terms),
        product_bits=int(random.integers(4, 25)) if random.random() < 0.25 else None,
        product_shift=shift,
        product_rounding=Rounding(name, int(random.integers(0, 100)) if name == "stochastic" else 0)  # type: ignore[arg-type]
        if shift
        else Rounding(),
    )


def _order(random: Random, terms: int) -> Order:
    size = int(random.integers(2, terms // 2 + 1))
    kind = random.integers(0, 8)
    plain = (Sequential(), Chunked(size), Lanes(size), Tree(), Sorted(), Maddubs(size))
    if kind < len(plain):
        return plain[kind]
    levels = []
    for _ in range(int(random.integers(1, 3))):
        register = Register(int(random.integers(4, 25)), str(random.choice(MODES)))  # type: ignore[arg-type]
        stride = int(random.choice([1, 1, 2, 4, 8]))
        reach = int(random.choice([2, 4, 8, 16, 3, 5]))
        levels.append(Level(reach, register if random.random() < 0.8 else None, stride))
    return Tiles(tuple(levels))


def integer_sums(accumulator: Accumulator, products: np.ndarray) -> np.ndarray:
    """Returns the sums (N) of products (N, K)."""
    terms = Terms(products.shape[1])
    ones = np.ones((terms.count, 1), np.int64)
    return dots.emulated(checked(products, ones, None, terms), terms, accumulator).values[:, 0]


def integer_box(accumulator: Accumulator) -> Callable[[Any, Any], Any]:
    """Returns a function of two vectors, or of rows of them."""

    def box(a: np.ndarray, b: np.ndarray) -> Any:
        products = np.atleast_2d(a.astype(np.int64) * b.astype(np.int64))
        sums = integer_sums(accumulator, products)
        return sums if a.ndim == 2 else int(sums[0])

    return box
