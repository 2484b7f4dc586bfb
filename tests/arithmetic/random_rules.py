"""Accumulators drawn from the whole grammar, as black boxes that tests reveal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tracer.accumulators import hardware
from tracer.accumulators.engine import dots
from tracer.accumulators.engine.tile_sums import checked
from tracer.accumulators.spec import Register
from tracer.accumulators.spec.accumulator import Accumulator, ByOperands, Rounding
from tracer.accumulators.spec.block_fma import BlockFma
from tracer.accumulators.spec.float_accumulator import (
    FloatAccumulator,
    FloatFormat,
    FloatRounding,
    float_format,
)
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
from tracer.arithmetic.float_probes import emulated
from tracer.errors import UsageError

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


def float_rule(random: Random) -> tuple[FloatAccumulator | BlockFma, str]:
    """Returns a float accumulator or a block multiply-add, and what it multiplies."""
    if random.random() < 0.35:
        return _block_rule(random)
    form = _float_format(random)
    kind, chunk = random.random(), int(random.integers(1, 33)) if random.random() < 0.3 else None
    rounding = str(random.choice(["rne", "rne", "rz", "floor", "sr"]))
    subnormals = str(random.choice(["kept", "kept", "flushed", "none"]))
    try:
        form = replace(form, subnormals=subnormals)  # type: ignore[arg-type]
        product = replace(_float_format(random), subnormals=subnormals) if kind > 0.75 else None  # type: ignore[arg-type]
    except UsageError:
        return float_rule(random)
    seed = int(random.integers(0, 200)) if rounding == "sr" else 0
    accumulator = FloatAccumulator(
        form, FloatRounding(rounding, seed), bool(random.random() < 0.25),  # type: ignore[arg-type]
        kind < 0.3, product, chunk,
    )  # fmt: skip
    return accumulator, "fp32"


def _float_format(random: Random) -> FloatFormat:
    names = ("fp32", "bf16", "fp16", "fp16", "tf32", "fp8-e4m3", "fp8-e5m2")
    if random.random() < 0.5:
        return float_format(str(random.choice(names)))
    return FloatFormat(int(random.integers(4, 9)), int(random.integers(2, 15)))


def _block_rule(random: Random) -> tuple[BlockFma, str]:
    presets = [
        own
        for preset in hardware.presets().values()
        if isinstance(preset.accumulator, ByOperands)
        for own in preset.accumulator.accumulators.values()
        if isinstance(own, BlockFma) and own.scaling == "none"
    ]
    if random.random() < 0.6:
        block = presets[random.integers(len(presets))]
    else:
        block = BlockFma(
            int(random.choice([2, 4, 8, 16, 32])), int(random.integers(12, 30)),
            float_format(str(random.choice(["fp32", "fp16"]))),
            FloatRounding(str(random.choice(["rz", "rne"]))),  # type: ignore[arg-type]
            float_format(str(random.choice(["fp16", "bf16"]))),
        )  # fmt: skip
    return block, str(block.operands)


def float_box(rule: FloatAccumulator | BlockFma) -> Callable[[Any, Any], Any]:
    """Returns a function of two vectors; of rows too, where the number of the row draws nothing."""

    def box(a: np.ndarray, b: np.ndarray) -> Any:
        if a.ndim == 2 and "sr" in str(rule):
            raise TypeError("two vectors")
        sums = emulated(rule, np.atleast_2d(a).astype(float), np.atleast_2d(b).astype(float))
        return sums if a.ndim == 2 else float(sums[0])

    return box
