"""Orders of additions that kernels are known to use, by the number of terms: tried before probes.

Their source is MLAS, the library of onnxruntime's products (sgemm.cpp, SgemmKernelM1Avx.asm); a
kernel's order is verified all the same. Term K stands for a bias.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from tracer.arithmetic.rule import Rule
from tracer.arithmetic.sums import rules_of_order
from tracer.arithmetic.trees import ADD, BEGIN, JOIN, SCALE, Program

_BLOCKS = (256, 128, 512, 1024, 64, 32, 2048, 4096)
_LANES = 8


def orders_of_products(terms: int, bias: bool, scaled: bool) -> Iterator[Rule]:
    """Yields the rules of products of matrices with K terms, the likeliest first.

    `scaled` products have a factor, "scale" of the facts, and always a bias, which may be -0.
    """
    sizes = [terms, *(size for size in _BLOCKS if size < terms)]
    in_order = [(blocks(terms, size, bias, scaled), _blocks_text(terms, size)) for size in sizes]
    for program, text in in_order:
        yield next(rules_of_order(program, text))
    if not scaled:
        fours = four_by_four(terms, bias), "in blocks of 4, then the blocks"
        halves = [(lanes(terms, bias, tree), f"in {_LANES} lanes, {how}") for tree, how in _TREES]
        for program, text in (fours, *halves, *in_order):
            yield from rules_of_order(program, text)


def run(terms: Sequence[int]) -> Program:
    """Returns the program that adds terms one after the other."""
    return [4 * term + (ADD if place else BEGIN) for place, term in enumerate(terms)]


def blocks(terms: int, size: int, bias: bool = False, scaled: bool = False) -> Program:
    """Returns the order of blocks that are added one after the other, the bias after the first."""
    parts = [run(range(low, min(low + size, terms))) for low in range(0, terms, size)]
    if scaled:
        return [4 * terms + BEGIN, *chain(*([*part, SCALE] for part in parts))]
    rest = chain(*([*part, JOIN] for part in parts[1:]))
    return [*parts[0], *[4 * terms + ADD] * bias, *rest]


def four_by_four(terms: int, bias: bool = False) -> Program:
    """Returns the order of blocks of 4, 2 and 1 terms, the bias after the first."""
    ends = list(range(4, terms + 1, 4))
    ends += [terms // 2 * 2] * (terms % 4 >= 2) + [terms] * (terms % 2)
    parts = [run(range(low, high)) for low, high in zip([0, *ends], ends, strict=False)]
    rest = chain(*([*part, JOIN] for part in parts[1:]))
    return [*parts[0], *[4 * terms + ADD] * bias, *rest]


_IN_TURN = ((((0, 1), 2), 3), (((4, 5), 6), 7))
PAIRS = (((0, 1), (2, 3)), ((4, 5), (6, 7)))
"""How 8 lanes are added: neighbours, then sums of neighbours."""
_TREES = (
    (_IN_TURN, "halves of which are added in turn"),
    (PAIRS, "pairs of which are added"),
    ((((0, 2), (4, 6)), ((1, 3), (5, 7))), "even and odd, which are added"),
)
_Tree = int | tuple["_Tree", "_Tree"]


def lanes(terms: int, bias: bool = False, tree: _Tree = _IN_TURN) -> Program:
    """Returns the order of 8 lanes that a tree joins, the bias last."""

    def build(node: _Tree) -> Program:
        if isinstance(node, int):
            return run(range(node, terms, _LANES))
        left, right = build(node[0]), build(node[1])
        return [*left, *right, JOIN] if left and right else left or right

    return [*build(tree), *[4 * terms + ADD] * bias]


def _blocks_text(terms: int, size: int) -> str:
    return "one after the other" if size == terms else f"in blocks of {size}, then the blocks"
