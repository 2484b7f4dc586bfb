"""What an accumulator computes, written from docs/accumulators.md and docs/hardware.md alone.

An order is read from its spelling as a tree of sums, whose leaves are products; all sums of a node
are added up along the tree, one term after the other, in 64-bit integers. Nothing of tracer is
used, so that the oracle of random nodes has nothing in common with what it checks.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

AXES = ("ic", "kz", "ky", "kx")
OUTPUTS = ("n", "g", "oc", "oz", "oy", "ox")
_LEVEL = re.compile(
    r"(all|\d+)(?:x(\d+))?(?::(u?)(\d+)(?::([a-z]+))?)?"
    r"(?::>>(\d+)(?::([a-z-]+)(?:\((\d+)\))?)?)?(?::(e\d+m\d+f?n?)(:saturate)?)?"
)
_WHOLE = 62
"""Bits that no sum of the drawn nodes leaves."""


def ends(bits: Any, overflow: str, convention: str = "twos-complement") -> tuple[Any, Any]:
    """The lowest and the highest number of registers of `bits`, a number or (M, 1)."""
    bits = np.minimum(np.asarray(bits, np.int64) + (convention != "twos-complement"), _WHOLE)
    high = (np.int64(1) << (bits - 1)) - 1
    low = 0 * high if convention == "unsigned" else -high - (overflow != "symmetric")
    return low, high


def limited(values: Any, low: Any, high: Any, overflow: str) -> Any:
    """The values, int64, as a register keeps them."""
    outside = (values < low) | (values > high)
    match overflow:
        case "wrap":
            kept = (values - low) % np.where(outside, high - low + 1, 1) + low
        case "zero":
            kept = 0 * values
        case _:
            kept = np.minimum(np.maximum(values, low), high)
    return np.where(outside, kept, values)


def rounded(values: Any, bits: int, rule: str, place: int) -> Any:
    """Integers without low bits; `place` is what draws depend on beside the number."""
    size, half = np.int64(1) << bits, np.int64(1) << (bits - 1)
    name, _, seed = rule.rstrip(")").partition("(")
    match name:
        case "floor":
            return values // size
        case "truncate":
            return np.sign(values) * (np.abs(values) // size)
        case "half-up":
            return (values + half) // size
        case "half-away":
            return np.sign(values) * ((np.abs(values) + half) // size)
        case "half-even":
            up = (values + half) // size
            return up - ((values % size == half) & (up % 2 == 1))
    assert name == "stochastic"
    return values // size + (_draws(values, bits, int(seed or 0), place) < values % size)


def _draws(values: Any, bits: int, seed: int, place: int) -> Any:
    """The first bits of the finaliser of splitmix64."""
    salt = ((place + 1) * 0x9E3779B97F4A7C15 + seed * 0xD1342543DE82EF95) % (1 << 64)
    mixed = values.astype(np.uint64) + np.uint64(salt)
    for right, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(right))) * np.uint64(factor)
    return ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(64 - bits)).astype(np.int64)


@dataclass(frozen=True)
class Level:
    """Sums of `size` numbers, `stride` apart, in a register, and what they lose as they leave it.

    The register is (bits, overflow, convention), or `floats`, a format and whether it saturates;
    without any it is the accumulator.
    """

    size: int | None
    stride: int = 1
    register: tuple[int, str, str] | None = None
    shift: tuple[int, str] | None = None
    floats: tuple[str, bool] | None = None

    @property
    def is_own(self) -> bool:
        return bool(self.register or self.floats)

    @classmethod
    def read(cls, text: str) -> Level:
        match = _LEVEL.fullmatch(text)
        assert match is not None, text
        size, stride, sign, bits, overflow, shift, rule, seed, form, saturates = match.groups()
        kind = "unsigned" if sign else "twos-complement"
        register = (int(bits), overflow or "saturate", kind) if bits else None
        if shift and register is None:
            register = (64, "saturate", "twos-complement")
        rule = f"stochastic({seed or 0})" if rule == "stochastic" else rule or "floor"
        return cls(
            None if size == "all" else int(size), int(stride or 1), register,
            (int(shift), rule) if shift else None, (form, bool(saturates)) if form else None,
        )  # fmt: skip


@dataclass(frozen=True)
class Sum:
    """Its `terms`, products by their numbers or sums, are added from 0 in the register of `own`.

    After each `spill.size` terms, and the last, the sum is written to the register of `spill`.
    """

    terms: list[Any]
    own: Level = Level(None)
    spill: Level | None = None


def outermost(order: str, shape: tuple[int, int, int, int]) -> Sum:
    """The sum of all products in an order; `shape` is channels and the window of a kernel."""
    name, _, inside = order.partition("(")
    words = _words(inside.removesuffix(")")) if inside else []
    count, window = math.prod(shape), math.prod(shape[1:])
    if name == "positionwise":
        has_size = bool(words) and words[0].isdigit()
        inner = words[has_size:]
        loops = ["ic", *AXES[1:], f"ic:{words[0]}"] if has_size else [*AXES[1:], "ic"]
        return _nest([*loops, *inner], shape)
    if name == "nest":
        return _nest(words, shape)
    if name == "channelwise" and window > 1:
        return Sum([Sum(list(range(k, k + window))) for k in range(0, count, window)])
    return _arranged("sequential" if name == "channelwise" else order, list(range(count)))


def _arranged(order: str, terms: list[Any]) -> Sum:
    """The sum of terms in an order that knows no window."""
    name, _, inside = order.partition("(")
    words = _words(inside.removesuffix(")")) if inside else []
    match name:
        case "chunked":
            return Sum(_grouped(terms, Level(int(words[0]))))
        case "lanes":
            return Sum(_lanes(terms, int(words[0])))
        case "tree":
            while len(terms) > 2:
                terms = _grouped(terms, Level(2))
            return Sum(terms)
        case "maddubs":
            pairs = _grouped(terms, Level.read("2:16"))
            return Sum(_lanes(pairs, int(words[0]) if words else 16))
        case "tiles":
            spill = words.pop()[6:] if words[-1].startswith("spill=") else None
            for word in words:
                terms = _grouped(terms, Level.read(word))
            return Sum(terms, spill=None if spill is None else Level.read(spill))
    assert name in ("sequential", "sorted"), name
    return Sum(terms)


def _words(text: str) -> list[str]:
    """Splits at commas outside parentheses."""
    words, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            words.append("")
        else:
            words[-1] += letter
    return words


def _lanes(terms: list[Any], count: int) -> list[Any]:
    return [Sum(terms[lane::count]) for lane in range(min(count, len(terms)))]


def _grouped(terms: list[Any], level: Level) -> list[Any]:
    """Sums of `size` terms that are `stride` apart, block by block."""
    size, stride = level.size or len(terms), level.stride
    blocks = [terms[at : at + size * stride] for at in range(0, len(terms), size * stride)]
    lanes = [block[lane::stride] for block in blocks for lane in range(min(stride, len(block)))]
    return [Sum(lane, level) for lane in lanes]


@dataclass(frozen=True)
class _Loop:
    axis: int
    size: int
    step: int
    level: Level
    is_parallel: bool


def _nest(words: list[str], shape: tuple[int, int, int, int]) -> Sum:
    """Loops, the outermost first, and perhaps the order of the innermost sums at their end."""
    inner = "sequential"
    if words[-1].partition("(")[0].partition(":")[0] not in AXES + OUTPUTS:
        *words, inner = words
    texts = [word.partition(":") for word in words]
    own = [(name, rest) for name, _, rest in texts if name in AXES]
    levels = [Level.read(rest.removesuffix("parallel").rstrip(":") or "all") for _, rest in own]
    steps, loops = dict.fromkeys(AXES, 1), list[_Loop]()
    for (name, rest), level in reversed(list(zip(own, levels, strict=True))):
        axis = AXES.index(name)
        of_axis = [each for (n, _), each in zip(own, levels, strict=True) if n == name]
        size = level.size or -(-shape[axis] // math.prod(each.size or 1 for each in of_axis))
        loops.insert(0, _Loop(axis, size, steps[name], level, rest.endswith("parallel")))
        steps[name] *= size

    def terms(depth: int, at: tuple[int, ...]) -> list[Any]:
        """What the loops from `depth` on add to the sum around them."""
        if depth == len(loops):
            return [int(np.ravel_multi_index(at, shape))]
        loop = loops[depth]
        if loop.level.is_own or (loop.is_parallel and depth):
            return [Sum(iterations(depth, at), loop.level)]
        return iterations(depth, at)

    def iterations(depth: int, at: tuple[int, ...]) -> list[Any]:
        loop, found = loops[depth], []
        stop = min(at[loop.axis] + loop.size * loop.step, shape[loop.axis])
        for place in range(at[loop.axis], stop, loop.step):
            here = (*at[: loop.axis], place, *at[loop.axis + 1 :])
            inside = terms(depth + 1, here)
            apart = loop.is_parallel and depth + 1 < len(loops) and not is_closed(depth + 1)
            found += [Sum(inside)] if apart else inside
        return found

    def is_closed(depth: int) -> bool:
        return loops[depth].level.is_own or loops[depth].is_parallel

    return _with_inner(Sum(terms(0, (0, 0, 0, 0))), inner)


def _with_inner(tree: Sum, inner: str) -> Sum:
    """The nest with another order of its innermost sums: of shorter ones, that of the longest.

    An adder tree takes what is cut off as it takes the rest.
    """

    def longest(tree: Sum) -> int:
        of_terms = [longest(each) for each in tree.terms if isinstance(each, Sum)]
        return max(of_terms, default=len(tree.terms))

    count = longest(tree)

    def changed(tree: Sum) -> Sum:
        if isinstance(tree.terms[0], Sum):
            return Sum([changed(each) for each in tree.terms], tree.own)
        whole = _arranged(inner, [*tree.terms, *[None] * (count - len(tree.terms))])
        return Sum(_present(whole.terms), tree.own, whole.spill)

    return changed(tree)


def _present(terms: list[Any]) -> list[Any]:
    """The terms without those that are None, and without sums of nothing."""
    kept = [Sum(_present(each.terms), each.own) if isinstance(each, Sum) else each
            for each in terms]  # fmt: skip
    return [each for each in kept if (each.terms if isinstance(each, Sum) else each is not None)]


@dataclass(frozen=True)
class Register:
    """The accumulator, by the words of a policy; `bits` is a number or (M, 1)."""

    bits: Any
    overflow: str = "saturate"
    order: str = "sequential"
    product_bits: int | None = None
    bias: str = "first"
    convention: str = "twos-complement"
    product_shift: int = 0
    product_rounding: str = "half-even"


@dataclass
class Result:
    """Sums (M, P) in the unit of the products, the steps that left a register, and their extremes.

    Extremes, `final` and `own_events` are those of a sum that the accumulator does not limit.
    """

    values: Any
    events: Any
    final: Any
    low: Any
    high: Any
    own_events: Any


def sums(
    left: Any, right: Any, bias: Any, shape: tuple[int, int, int, int], register: Register
) -> Result:
    """The sums of `left` (M, K) times `right` (K, P) after, or before, `bias` (M)."""
    tree = outermost(register.order, shape)
    products = _products(left, right, register)
    bias = np.broadcast_to(bias[:, None], products[0].shape)
    if register.order == "sorted":
        start = bias if register.bias == "first" else 0 * bias
        products = _by_sign(products, start)
    narrow, free = (_Run(products, register, is_limited) for is_limited in (True, False))
    values, final = narrow.total(tree, bias), free.total(tree, bias)
    return Result(values << narrow.unit, narrow.events, final, free.low, free.high,
                  free.events)  # fmt: skip


def _products(left: Any, right: Any, register: Register) -> list[Any]:
    found = []
    for k in range(len(right)):
        product = left[:, k, None] * right[k]
        if register.product_shift:
            product = rounded(product, register.product_shift, register.product_rounding, k)
        if register.product_bits is not None:
            range_ = ends(register.product_bits, register.overflow, register.convention)
            product = limited(product, *range_, register.overflow)
        found.append(product << register.product_shift)
    return found


def _by_sign(products: list[Any], start: Any) -> list[Any]:
    """The next product of the other sign than the sum so far; at 0 the next that is not below 0."""
    flat, arranged = np.stack(products).reshape(len(products), -1), []
    for column, total in zip(flat.T.tolist(), start.ravel().tolist(), strict=True):
        up, down = ([each for each in reversed(column) if (each < 0) == is_down]
                    for is_down in (False, True))  # fmt: skip
        row = []
        while up or down:
            row.append((up if up and (total <= 0 or not down) else down).pop())
            total += row[-1]
        arranged.append(row)
    return list(np.array(arranged, np.int64).T.reshape(len(products), *start.shape))


@dataclass
class _Run:
    """One walk over a tree, with or without the range of the accumulator."""

    products: list[Any]
    register: Register
    is_limited: bool
    taken: int = 0
    events: Any = field(init=False)

    def __post_init__(self) -> None:
        self.events, self.low, self.high = (np.zeros_like(self.products[0]) for _ in range(3))
        self.range = ends(self.register.bits, self.register.overflow, self.register.convention)

    def total(self, tree: Sum, bias: Any) -> Any:
        passed = _shifts(tree)
        self.unit = sum(bits for bits, _ in passed)
        start = rounded(bias, self.unit, passed[-1][1], 0) if passed else bias
        if self.register.bias == "first":
            return self.added(tree, start)
        return self.put(self.added(tree, None) + start, None)

    def added(self, tree: Sum, start: Any | None) -> Any:
        """A sum as it leaves its register."""
        total = np.zeros_like(self.events)
        if start is not None:
            total = self.put(total + start, tree.own.register)
        for step, term in enumerate(tree.terms, 1):
            if isinstance(term, Sum):
                number = self.added(term, None)
            else:
                number, self.taken = self.products[term], self.taken + 1
            total = self.put(total + number, tree.own.register)
            if tree.spill and (
                step == len(tree.terms) or (tree.spill.size and step % tree.spill.size == 0)
            ):
                total = self.spilled(total, tree.spill)
        return self.shifted(total, tree.own)

    def spilled(self, total: Any, spill: Level) -> Any:
        """What is read back from memory."""
        memory = self.put(self.shifted(total, spill), spill.register)
        return self.put(memory << (spill.shift[0] if spill.shift else 0), None)

    def shifted(self, total: Any, level: Level) -> Any:
        return total if level.shift is None else rounded(total, *level.shift, self.taken)

    def put(self, value: Any, register: tuple[int, str, str] | None) -> Any:
        if register is not None:
            overflow, range_ = register[1], ends(*register)
        elif self.is_limited:
            overflow, range_ = self.register.overflow, self.range
        else:
            np.minimum(self.low, value, out=self.low)
            np.maximum(self.high, value, out=self.high)
            return value
        kept = limited(value, *range_, overflow)
        self.events += kept != value
        return kept


def _shifts(tree: Sum) -> list[tuple[int, str]]:
    """The shifts from a product to the outermost register, which all products pass."""
    inner = tree.terms[0]
    below = _shifts(inner) if isinstance(inner, Sum) else []
    return below if tree.own.shift is None else [*below, tree.own.shift]
