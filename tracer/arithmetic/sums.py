"""Sums of products by their rule: the order, FMA or not, what a register begins with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tracer.arithmetic import trees
from tracer.arithmetic.rule import Rule
from tracer.interpreter.compiled_code import loaded
from tracer.interpreter.numeric import parallel
from tracer.support.types import Array

WAYS = {
    # (fused, from zero)
    (True, True): "fused multiply-add",
    (True, False): "fused multiply-add from the first product",
    (False, True): "multiply, then add",
    (False, False): "multiply, then add from the first product",
}
_BLOCK = 1 << 22
"""Products of a block that one thread computes: about a millisecond."""
_MANY = 8
"""Rows from which on threads share rows: narrow columns take a step of the program for little."""
_LEAST_COLUMNS = 256
Window = tuple[int, int, int, int, int, int]
"""Products, then rows, then columns: from, below."""


class Operands(NamedTuple):
    """Operands of G products: `a` (G, M, K), `b` (G, K, N), and term K (G, M, N) or None."""

    a: Array
    b: Array
    beside: Array | None = None


def sum_rules(add: trees.Sum, terms: int) -> Iterator[Rule]:
    """Yields the rules that a sum may have whose order of additions probes tell.

    `add` takes a vector of terms, float32. Its facts are those that `products` takes. Raises
    NotKnown for sums that have no order.
    """
    program = trees.find_program(add, terms)
    yield from rules_of_order(program, trees.describe(program))


def rules_of_order(program: trees.Program, text: str) -> Iterator[Rule]:
    """Yields the rules of sums with an order of additions, which `text` describes."""
    for (fused, from_zero), way in WAYS.items():
        facts = {"program": program, "fused": fused, "from_zero": from_zero}
        yield Rule(f"{way}, {text}", facts)


def products(facts: Mapping[str, Any], a: Array, b: Array, bias: Array | None = None) -> Array:
    """Returns the products (M, N) of rows of `a` (M, K) and columns of `b` (K, N).

    All are float32, or float64. Term K of the program is the element of `bias` (M, N).
    """
    beside = None if bias is None else bias[None]
    out: Array = np.empty((1, len(a), b.shape[1]), a.dtype)
    compute_window(facts, Operands(a[None], b[None], beside), out, (0, 1, 0, len(a), 0, len(b.T)))
    return out.reshape(out.shape[1:])


def compute_window(
    facts: Mapping[str, Any], operands: Operands, out: Array, window: Window
) -> None:
    """Computes a window of the products `out`, on as many threads as are allowed."""
    program, depth = _compact(tuple(facts["program"]))
    way = bool(facts["fused"]), bool(facts["from_zero"])
    scale = out.dtype.type(facts.get("scale", 1))
    nothing = np.zeros((0, 0, 0), out.dtype)
    given = tuple(np.ascontiguousarray(nothing if each is None else each) for each in operands)
    lengths = [window[2 * n + 1] - window[2 * n] for n in range(3)]
    axis = 0 if lengths[0] > lengths[1] else 1
    axis = axis if lengths[axis] >= _MANY else 2
    others = lengths[axis - 1] * lengths[axis - 2] * operands.b.shape[1]
    parts = parallel.pieces(
        lengths[axis], max(_LEAST_COLUMNS if axis == 2 else 1, _BLOCK // max(1, others))
    )

    def work(index: int) -> None:
        part, first = list(window), window[2 * axis]
        part[2 * axis : 2 * axis + 2] = first + parts[index].start, first + parts[index].stop
        kernels = loaded("sums", "tracer.arithmetic.kernels")
        kernels.products(program, depth, way, scale, given, out, tuple(part))

    parallel.run_blocks(len(parts), work)


@lru_cache(maxsize=64)
def _compact(program: tuple[int, ...]) -> tuple[Array, int]:
    return np.array(program, np.int64), trees.registers(program)
