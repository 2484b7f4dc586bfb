"""Sums of products by their rule: the order, FMA or not, what a register begins with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tracer.arithmetic import trees
from tracer.arithmetic.rule import Rule
from tracer.interpreter.compiled_code import loaded
from tracer.interpreter.numeric import parallel
from tracer.support.types import Array

_PACKAGE = "tracer.arithmetic.kernels"
WAYS = {
    # (fused, from zero)
    (True, True): "fused multiply-add",
    (True, False): "fused multiply-add from the first product",
    (False, True): "multiply, then add",
    (False, False): "multiply, then add from the first product",
}
_BLOCK = 1 << 22
"""Products of a block that one thread computes: about a millisecond."""
_TALL = 8
"""Rows from which on threads share rows: narrow columns take a step of the program for little."""
_LEAST_COLUMNS = 256
Window = tuple[int, int, int, int]
"""Rows, then columns of a matrix: from, below."""


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
    out = np.empty((len(a), b.shape[1]), a.dtype)
    compute_window(facts, (a, b, bias), out, (0, len(a), 0, b.shape[1]))
    return out


def compute_window(
    facts: Mapping[str, Any],
    operands: tuple[Array, Array, Array | None],
    out: Array,
    window: Window,
) -> None:
    """Computes a window of the products `out`, on as many threads as are allowed."""
    program = np.array(facts["program"], np.int64)
    depth = trees.registers(program)
    way = bool(facts["fused"]), bool(facts["from_zero"])
    scale = out.dtype.type(facts.get("scale", 1))
    a, b, bias = (
        np.zeros((0, 0), out.dtype) if each is None else np.ascontiguousarray(each)
        for each in operands
    )
    top, bottom, left, right = window
    tall = bottom - top >= _TALL
    size = _BLOCK // max(1, len(b) * (right - left if tall else bottom - top))
    size = max(1 if tall else _LEAST_COLUMNS, size)
    parts = parallel.pieces(bottom - top if tall else right - left, size)

    def work(index: int) -> None:
        low, high = parts[index].start, parts[index].stop
        part = (
            (top + low, top + high, left, right) if tall else (top, bottom, left + low, left + high)
        )
        loaded("sums", _PACKAGE).products(program, depth, way, scale, (a, b, bias), out, part)

    parallel.run_blocks(len(parts), work)
