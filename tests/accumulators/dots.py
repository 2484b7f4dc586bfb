"""Random dot products, accumulators and orders, and blocks of sums by the kernels alone."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from tracer.accumulators.engine.dots import emulated, observed
from tracer.accumulators.engine.tile_sums import checked
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Terms, named

ORDERS = ("sequential", "channelwise", "chunked(3)", "tree", "lanes(2)", "sorted", "maddubs(2)",
          "tiles(3:8)", "tiles(2:9:symmetric,2:8)", "tiles(2x2:8,3)", "positionwise",
          "positionwise(2,chunked(3))", "positionwise(tiles(2:8))", "tiles(3:9:>>2)",
          "tiles(2:9:>>1:half-even,3:8:>>3:half-up)", "positionwise(tiles(1:>>4:half-away,2))",
          "tiles(spill=3:8)", "tiles(2:9:>>1:truncate,spill=2:7:symmetric:>>2:half-up)",
          "tiles(spill=all:7:>>3)")  # fmt: skip
ROUNDINGS = ("half-even", "half-away", "half-up", "floor", "truncate", "stochastic(7)")


@dataclass(frozen=True)
class Dots:
    """`left` (M, K) times `right` (K, P) plus `bias` (M), and how it is summed."""

    left: np.ndarray
    right: np.ndarray
    bias: np.ndarray | None
    terms: Terms
    accumulator: Accumulator


def observe(left, right, bias, terms, accumulator):
    return observed(checked(left, right, bias, terms), terms, accumulator)


def emulate(left, right, bias, terms, accumulator):
    return emulated(checked(left, right, bias, terms), terms, accumulator)


@st.composite
def accumulators(draw):
    return Accumulator(
        draw(st.integers(2, 20)),
        draw(st.sampled_from(["saturate", "symmetric", "wrap", "zero"])),
        named(draw(st.sampled_from(ORDERS))),
        draw(st.none() | st.integers(2, 12)),
        draw(st.sampled_from(["first", "last"])),
        draw(st.sampled_from(["twos-complement", "magnitude"])),
        product_shift=draw(st.just(0) | st.integers(0, 9)),
        product_rounding=draw(st.sampled_from(ROUNDINGS)),
    )


@st.composite
def dots(draw):
    terms = Terms(draw(st.integers(1, 6)), (draw(st.integers(1, 4)),))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 9))
    low, high = sorted((draw(st.integers(-200, 200)), draw(st.integers(-200, 200))))
    size = draw(st.sampled_from([1, 7, 128]))
    return Dots(
        rng.integers(-size, size, (rows, terms.count)),
        rng.integers(low, high + 1, (terms.count, columns)),
        draw(st.none() | st.just(rng.integers(-500, 500, rows))),
        terms,
        draw(accumulators()),
    )
