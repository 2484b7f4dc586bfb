"""Accumulators drawn from the whole grammar, as black boxes that tests reveal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tracer.accumulators import hardware
from tracer.accumulators.floats import casting
from tracer.accumulators.spec import Register
from tracer.accumulators.spec.accumulator import Accumulator, ByOperands, Rounding
from tracer.accumulators.spec.block_fma import SINGLE, BlockFma
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
    Tiles,
    Tree,
)
from tracer.arithmetic.float_probes import emulated
from tracer.arithmetic.integer_search import sums_of
from tracer.errors import UsageError

MODES = ("saturate", "symmetric", "wrap", "zero")
ROUNDINGS = ("half-even", "half-away", "half-up", "floor", "truncate", "stochastic")
PLACES = (None, None, "first", "last", "after")
Random = np.random.Generator


def integer_rule(random: Random, terms: int) -> Accumulator:
    """Returns an accumulator of integers: any width, range, order, overflow and rounding."""
    shift = int(random.integers(1, 9)) if random.random() < 0.25 else 0
    name = str(random.choice(ROUNDINGS))
    return Accumulator(
        int(random.integers(6, 33)),
        str(random.choice(MODES)),  # type: ignore[arg-type]
        _order(random, terms),
        product_bits=int(random.integers(4, 25)) if random.random() < 0.25 else None,
        convention=str(random.choice(["twos-complement", "twos-complement", "magnitude"])),  # type: ignore[arg-type]
        product_shift=shift,
        product_rounding=Rounding(name, int(random.integers(0, 100)) if name == "stochastic" else 0)  # type: ignore[arg-type]
        if shift
        else Rounding(),
    )


def unsigned_rule(random: Random, terms: int) -> Accumulator:
    """Returns an accumulator of integers whose register is unsigned, without tiles."""
    rule = integer_rule(random, terms)
    order = Sequential() if isinstance(rule.order, Tiles) else rule.order
    mode = str(random.choice([each for each in MODES if each != "symmetric"]))
    return replace(rule, overflow=mode, convention="unsigned", order=order)  # type: ignore[arg-type]


def _order(random: Random, terms: int) -> Order:
    size = int(random.integers(2, terms // 2 + 1))
    kind = random.integers(0, 8)
    plain = (Sequential(), Chunked(size), Lanes(size), Tree(), Sorted(), Maddubs(size))
    if kind < len(plain):
        return plain[kind]
    levels = []
    for _ in range(int(random.integers(1, 4))):
        register = Register(int(random.integers(4, 25)), str(random.choice(MODES)))  # type: ignore[arg-type]
        stride = int(random.choice([1, 1, 2, 4, 8]))
        reach = int(random.choice([2, 4, 8, 16, 3, 5]))
        levels.append(Level(reach, register if random.random() < 0.8 else None, stride))
    return Tiles(tuple(levels))


def bias_place(random: Random, rule: Any) -> str | None:
    """Returns where a bias is added to sums of a rule; None has no bias."""
    place = PLACES[random.integers(len(PLACES))]
    is_first = "sr" in str(rule) or "chunk=" in str(rule)  # as these accumulators have it
    return "first" if place == "last" and is_first else place


def integer_sums(
    rule: Accumulator, left: Any, right: Any, bias: Any = None, place: str | None = None
) -> np.ndarray:
    """Returns the sums (N) of products of rows (N, K), and of biases (N)."""
    sides = [np.atleast_2d(each).astype(np.int64) for each in (left, right)]
    if place in ("first", "last"):
        return sums_of(replace(rule, bias=place), *sides, np.atleast_1d(bias).astype(np.int64))
    return sums_of(rule, *sides) + (0 if place is None else bias)


def integer_box(rule: Accumulator, place: str | None = None) -> Callable[..., Any]:
    """Returns a function of two vectors, or of rows of them, and of a bias if it has a `place`."""
    return _box(integer_sums, rule, place)


def _box(sums_of: Callable[..., Any], rule: Any, place: str | None) -> Callable[..., Any]:
    def box(a: Any, b: Any, bias: Any) -> Any:
        if a.ndim == 2 and "sr" in str(rule):
            raise TypeError("two vectors: the number of a row would draw")
        sums = sums_of(rule, a, b, bias, place)
        return sums if a.ndim == 2 else sums[0].item()

    return box if place else lambda a, b: box(a, b, None)


def float_rule(random: Random) -> tuple[FloatAccumulator | BlockFma, str]:
    """Returns a float accumulator or a block multiply-add, and what it multiplies."""
    if random.random() < 0.35:
        return _block_rule(random)
    form = _float_format(random)
    kind, chunk = random.random(), int(random.integers(1, 33)) if random.random() < 0.3 else None
    rounding = str(random.choice(["rne", "rne", "rz", "floor", "sr"]))
    subnormals = str(random.choice(["kept", "kept", "flushed", "none"]))
    has_order = rounding != "sr" and chunk is None and random.random() < 0.25
    try:
        form = replace(form, subnormals=subnormals)  # type: ignore[arg-type]
        product = replace(_float_format(random), subnormals=subnormals) if kind > 0.75 else None  # type: ignore[arg-type]
    except UsageError:
        return float_rule(random)
    seed = int(random.integers(0, 200)) if rounding == "sr" else 0
    accumulator = FloatAccumulator(
        form, FloatRounding(rounding, seed), bool(random.random() < 0.25),  # type: ignore[arg-type]
        kind < 0.3, product, chunk, _float_order(random) if has_order else Sequential(),
    )  # fmt: skip
    return accumulator, "fp32"


def _float_order(random: Random) -> Order:
    size = int(random.choice([2, 3, 4, 8]))
    levels = [Level(int(random.choice([2, 4, 8])), stride=int(random.choice([1, 1, 2, 4])))
              for _ in range(random.integers(1, 4))]  # fmt: skip
    return (Chunked(size), Lanes(size), Tree(), Tiles(tuple(levels)))[random.integers(4)]


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


def float_sums(
    rule: FloatAccumulator | BlockFma, left: Any, right: Any, bias: Any = None,
    place: str | None = None,
) -> np.ndarray:  # fmt: skip
    """Returns the sums (N) of products of rows (N, K), and of biases (N).

    The last word of another place than `first` or `last` is the format in which a bias is added to
    the last sum; without one it is fp32.
    """
    sides = (np.atleast_2d(each).astype(float) for each in (left, right))
    if place in ("first", "last"):
        own = replace(rule, bias=place) if isinstance(rule, FloatAccumulator) else rule
        return emulated(own, *sides, np.atleast_1d(bias).astype(float))
    sums = emulated(rule, *sides)
    if place is None or place.endswith("float64"):
        return sums if place is None else sums + bias
    form = SINGLE if place == "after" else float_format(place.split()[-1])
    return casting.cast(sums + bias, form)


def float_box(rule: FloatAccumulator | BlockFma, place: str | None = None) -> Callable[..., Any]:
    """Returns a function of two vectors, and of a bias if it has a `place`.

    It takes rows of vectors too, where the number of the row draws nothing.
    """
    return _box(float_sums, rule, place)
