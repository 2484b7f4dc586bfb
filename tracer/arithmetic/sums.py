"""Sums of products by their rule: the order, FMA or not, what a register begins with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from tracer.arithmetic import trees
from tracer.arithmetic.rule import Facts, Rule
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


def products(facts: Facts, a: Array, b: Array, bias: Array | None = None) -> Array:
    """Returns the products (M, N) of rows of `a` (M, K) and columns of `b` (K, N).

    All are float32, or float64. Term K of the program is the element of `bias` (M, N).
    """
    beside = None if bias is None else bias[None]
    out: Array = np.empty((1, len(a), b.shape[1]), a.dtype)
    compute_window(facts, Operands(a[None], b[None], beside), out, (0, 1, 0, len(a), 0, len(b.T)))
    return out.reshape(out.shape[1:])


def compute_window(facts: Facts, operands: Operands, out: Array, window: Window) -> None:
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


_BLOCK_SIZES = (256, 128, 512, 1024, 64, 32, 2048, 4096)
_LANES = 8


def orders_of_products(terms: int, bias: bool, scaled: bool) -> Iterator[Rule]:
    """Yields the rules of products of matrices with K terms, the likeliest first.

    `scaled` products have a factor, "scale" of the facts, and always a bias, which may be -0.
    """
    sizes = [terms, *(size for size in _BLOCK_SIZES if size < terms)]
    in_blocks = (f"in blocks of {size}, then the blocks" for size in sizes[1:])
    texts = ["one after the other", *in_blocks]
    programs = [blocks(terms, size, bias, scaled) for size in sizes]
    likely = list(zip(programs, texts, strict=True))
    for program, text in likely:
        yield next(rules_of_order(program, text))
    if not scaled:
        fours = four_by_four(terms, bias), "in blocks of 4, then the blocks"
        halves = [(lanes(terms, bias, tree), f"in {_LANES} lanes, {how}") for tree, how in _TREES]
        for program, text in (fours, *halves, *likely):
            yield from rules_of_order(program, text)


def in_order(terms: Sequence[int]) -> trees.Program:
    """Returns the program that adds terms one after the other."""
    return [4 * term + (trees.ADD if place else trees.BEGIN) for place, term in enumerate(terms)]


def blocks(terms: int, size: int, bias: bool = False, scaled: bool = False) -> trees.Program:
    """Returns the order of blocks that are added one after the other, the bias after the first."""
    parts = [in_order(range(low, min(low + size, terms))) for low in range(0, terms, size)]
    if scaled:
        return [4 * terms + trees.BEGIN, *chain(*([*part, trees.SCALE] for part in parts))]
    rest = chain(*([*part, trees.JOIN] for part in parts[1:]))
    return [*parts[0], *[4 * terms + trees.ADD] * bias, *rest]


def four_by_four(terms: int, bias: bool = False) -> trees.Program:
    """Returns the order of blocks of 4, 2 and 1 terms, the bias after the first."""
    ends = list(range(4, terms + 1, 4))
    ends += [terms // 2 * 2] * (terms % 4 >= 2) + [terms] * (terms % 2)
    parts = [in_order(range(low, high)) for low, high in zip([0, *ends], ends, strict=False)]
    rest = chain(*([*part, trees.JOIN] for part in parts[1:]))
    return [*parts[0], *[4 * terms + trees.ADD] * bias, *rest]


_IN_TURN = ((((0, 1), 2), 3), (((4, 5), 6), 7))
PAIRS = (((0, 1), (2, 3)), ((4, 5), (6, 7)))
"""How 8 lanes are added: neighbours, then sums of neighbours."""
_TREES = (
    (_IN_TURN, "halves of which are added in turn"),
    (PAIRS, "pairs of which are added"),
    ((((0, 2), (4, 6)), ((1, 3), (5, 7))), "even and odd, which are added"),
)
_Tree = int | tuple["_Tree", "_Tree"]


def lanes(terms: int, bias: bool = False, tree: _Tree = _IN_TURN) -> trees.Program:
    """Returns the order of 8 lanes that a tree joins, the bias last."""

    def build(node: _Tree) -> trees.Program:
        if isinstance(node, int):
            return in_order(range(node, terms, _LANES))
        left, right = build(node[0]), build(node[1])
        return [*left, *right, trees.JOIN] if left and right else left or right

    return [*build(tree), *[4 * terms + trees.ADD] * bias]
