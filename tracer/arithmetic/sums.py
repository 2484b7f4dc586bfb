"""Sums of products by their rule: the order, FMA or not, what a register begins with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tracer.arithmetic import trees
from tracer.arithmetic.rule import Rule
from tracer.interpreter.compiled_code import loaded
from tracer.support.types import Array

_PACKAGE = "tracer.arithmetic.kernels"
WAYS = {
    # (fused, from zero)
    (True, True): "fused multiply-add",
    (True, False): "fused multiply-add from the first product",
    (False, True): "multiply, then add",
    (False, False): "multiply, then add from the first product",
}


def sum_rules(add: trees.Sum, terms: int) -> Iterator[Rule]:
    """Yields the rules that a sum may have whose order of additions probes tell.

    `add` takes a vector of terms, float32. Its facts are those that `products` takes. Raises
    NotKnown for sums that have no order.
    """
    program = trees.find_program(add, terms)
    for (fused, from_zero), text in WAYS.items():
        facts = {"program": program, "fused": fused, "from_zero": from_zero}
        yield Rule(f"{text}, {trees.describe(program)}", facts)


def products(facts: Mapping[str, Any], a: Array, b: Array) -> Array:
    """Returns the products (M, N) of rows of `a` (M, K) and columns of `b` (K, N), float32."""
    program = facts["program"]
    out = np.empty((len(a), b.shape[1]), np.float32)
    loaded("sums", _PACKAGE).products(
        np.array(program, np.int64), trees.registers(program),
        (bool(facts["fused"]), bool(facts["from_zero"])),
        np.ascontiguousarray(a), np.ascontiguousarray(b), out,
    )  # fmt: skip
    return out
