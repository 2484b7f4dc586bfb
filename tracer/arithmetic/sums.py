"""Sums of products by their rule: the order, FMA or not, what a register begins with.

A kernel adds the last columns, or the part of another thread, in another order: the order depends
on the place in the output. Where, is found by comparing bits: an order that fits one element is
computed for all, and those with equal bits in every sample have it.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple, Protocol

import numpy as np

from tracer.arithmetic import trees
from tracer.arithmetic.kernel import Facts, NotKnown, Rule, are_equal
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
_LEAST_ROWS, _LEAST_COLUMNS = 32, 256
"""Rows or columns of a block: the kernel computes so many at a time."""
_COLUMNS_AT_ONCE = 16
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
    axis = axis if lengths[axis] >= _MANY and lengths[2] < 2 * _LEAST_COLUMNS else 2
    others = lengths[axis - 1] * lengths[axis - 2] * operands.b.shape[1]
    least = 1, _LEAST_ROWS, _LEAST_COLUMNS
    parts = parallel.pieces(lengths[axis], max(least[axis], _BLOCK // max(1, others)))

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


_MOST_ORDERS = 16
_MOST_CELLS = 4096
_MOST_TOLD = 4


class Run(Protocol):
    """A run of a kernel, whose sums have their orders by place in a grid."""

    @property
    def output(self) -> Array:
        """The results, (…, rows, columns) of the grid."""
        ...

    def element(self, row: int, column: int) -> tuple[Operands, Array]:
        """Returns the operands and the results, (G, M, N), of an element of the grid."""
        ...

    def compute(self, facts: Facts) -> Array:
        """Returns what takes the place of `output`, with the facts of `replay_regions`."""
        ...


class Sample(NamedTuple):
    """Operands, and the output (G M, N) of a kernel of products.

    The output of several runs with one right operand is (runs, M, N), their rows one product's.
    """

    operands: Operands
    output: Array

    def element(self, row: int, column: int) -> tuple[Operands, Array]:
        """Returns the operands and the results of an element of the output."""
        a, b, beside = self.operands
        height = self.output.shape[-2] // len(a)
        group, line = divmod(row, height)
        at = slice(group, group + 1), slice(line, None, height), slice(column, column + 1)
        own = Operands(a[at[:2]], b[at[0], :, at[2]], None if beside is None else beside[at])
        return own, self.output[..., row, column].reshape(1, -1, 1)

    def compute(self, facts: Facts) -> Array:
        """Returns the products (G M, N), each cell of the output in its own order."""
        return replay_regions(facts, self.operands).reshape(self.output.shape)


def find_regions(
    runs: Sequence[Run],
    candidates: Callable[[int, int], Iterator[Rule]],
    names: Sequence[str] = ("rows", "columns"),
) -> Rule:
    """Returns the rule of sums, of which `replay_regions` takes the facts.

    `candidates` are rules that an element, by row and column, may have; `names` are what these are
    called. Raises NotKnown if none of them fits an element.
    """
    rules: list[Rule] = []
    fits: list[Array] = []
    missing: Array = np.ones(runs[0].output.shape[-2:], bool)
    while missing.any():
        places = np.flatnonzero(missing)
        row, column = divmod(int(places[len(places) // 2]), missing.shape[1])
        if len(rules) == _MOST_ORDERS:
            raise NotKnown(f"more than {_MOST_ORDERS} orders of additions in one output")
        elements = [run.element(row, column) for run in runs]
        for rule in candidates(row, column):
            facts = _facts_of_grid(np.zeros((1, 1), int), [rule])
            if all(are_equal(replay_regions(facts, x), y).all() for x, y in elements):
                rules.append(rule)
                break
        else:
            raise NotKnown(f"no order of additions fits row {row}, column {column}")
        facts = _facts_of_grid(np.zeros_like(missing, int), rules[-1:])
        fits.append(np.ones_like(missing))
        for run in runs:
            equal = are_equal(run.output, run.compute(facts))
            fits[-1] &= equal.reshape(-1, *missing.shape).all(0)
        missing &= ~fits[-1]
    labels = _labels(np.array(fits)) if fits else np.zeros(missing.shape, np.int64)
    used, places = np.unique(labels, return_inverse=True)
    labels, rules = places.reshape(labels.shape), [rules[place] for place in used]
    text = rules[0].text
    if len(rules) > 1:
        told = enumerate(rules[:_MOST_TOLD])
        text = "; ".join(f"{_place(labels == n, names)} {rule.text}" for n, rule in told)
    return Rule(text, _facts_of_grid(labels, rules))


def _labels(fits: Array) -> Array:
    """Returns which rule each element has (M, N), of those that fit it: `fits` is (rules, M, N).

    Orders that differ in one addition often agree by chance. A rule that fits a whole column is
    likelier than one that fits some elements of it; the same holds for rows. Of several, the
    likeliest is the one that fits most elements.
    """
    ranks = np.argsort(-fits.sum((1, 2)), kind="stable")
    ordered = fits[ranks]
    for axis in (1, 2):
        whole = np.expand_dims(ordered.all(axis), axis)
        if whole.any(0).all():
            labels: Array = np.broadcast_to(ranks[whole.argmax(0)], fits.shape[1:])
            return labels
    first: Array = ranks[ordered.argmax(0)]
    return first


def replay_regions(facts: Facts, operands: Operands, first: int = 0) -> Array:
    """Returns the products (G, M, N) of operands, each cell of the output in its own order.

    `sums` are the facts of each order, `cells` its number by row and column of cells, and `rows`
    and `columns` the ends of these; a single row or column is all of them. Several rows are those
    of all products, or of each. The operands may begin at the column `first` of the output.
    """
    a, b, beside = operands  # which are copied once, not for each cell
    given = Operands(np.ascontiguousarray(a), laid_out(b), beside)
    out = np.empty((len(a), a.shape[1], b.shape[2]), a.dtype)
    for line, *rows in _row_windows(facts["rows"], *a.shape[:2]):
        left = -first
        for end, place in zip(facts["columns"], facts["cells"][line], strict=True):
            is_single = len(facts["columns"]) == 1
            right = b.shape[2] if is_single else min(end - first, b.shape[2])
            if max(left, 0) < right:
                window = (*rows, max(left, 0), right)
                compute_window(facts["sums"][place], given, out, window)
            left = end - first
    return out


def laid_out(b: Array) -> Array:
    """Returns products' right operands (G, K, N) with their columns side by side in memory.

    Weights are often stored by column: numpy copies few of these at a time twice as fast.
    """
    if b.flags.c_contiguous:
        return b
    out = np.empty_like(b, order="C")
    parts = parallel.pieces(b.shape[2], _COLUMNS_AT_ONCE)

    def work(index: int) -> None:
        out[..., parts[index]] = b[..., parts[index]]

    parallel.run_blocks(len(parts), work)
    return out


def _row_windows(
    ends: Sequence[int], groups: int, height: int
) -> Iterator[tuple[int, int, int, int, int]]:
    """Yields the number of a row of cells, and products and rows that are in it: from, below."""
    for line, (top, bottom) in enumerate(zip([0, *ends], ends, strict=False)):
        if len(ends) == 1:
            yield line, 0, groups, 0, height
        elif ends[-1] == height:
            yield line, 0, groups, top, bottom
        else:
            for group in range(top // height, (bottom - 1) // height + 1):
                above = group * height
                yield line, group, group + 1, max(top - above, 0), min(bottom - above, height)


def _facts_of_grid(labels: Array, rules: Sequence[Rule]) -> dict[str, Any]:
    """Returns the facts of a grid of cells, in each of which all elements have one label."""
    ends = [
        [*(np.flatnonzero((np.diff(labels, axis=axis) != 0).any(axis=1 - axis)) + 1).tolist(), size]
        for axis, size in enumerate(labels.shape)
    ]
    if len(ends[0]) * len(ends[1]) > _MOST_CELLS:
        raise NotKnown("the order of additions varies without a pattern")
    cells = labels[np.ix_(*[np.array(each) - 1 for each in ends])].tolist()
    sums = [rule.facts for rule in rules]
    return {"rows": ends[0], "columns": ends[1], "cells": cells, "sums": sums}


def _place(has: Array, names: Sequence[str]) -> str:
    spans = []
    for axis, name in enumerate(names):
        places = np.flatnonzero(has.any(axis=1 - axis))
        if has.shape[axis] > 1:
            span = f"{places[0]}" if len(places) == 1 else f"{places[0]} to {places[-1]}"
            spans.append(f"{name} {span}")
    return " and ".join(spans)
