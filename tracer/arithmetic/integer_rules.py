"""How a black box adds products of integers: its registers, their overflow, order and rounding.

Probes narrow the rule down: single products tell how products are rounded and limited; sums of the
largest ones, in every stride, tell the narrowest register, what it does beyond its range, and which
terms share it. The accumulators that are left are tried on random vectors, the simplest first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import get_args

import numpy as np

from tracer.accumulators.engine import dots
from tracer.accumulators.engine.tile_sums import checked, program
from tracer.accumulators.kernels import loaded
from tracer.accumulators.spec import NARROWEST, WIDEST, Overflow, Register, RoundingName
from tracer.accumulators.spec.accumulator import Accumulator, Rounding, needed, rounded
from tracer.accumulators.spec.orders import Order, Sequential, Terms
from tracer.arithmetic import candidates
from tracer.arithmetic.black_box import BlackBox
from tracer.arithmetic.finding import Finding
from tracer.arithmetic.rule import LEAST_RESULTS, NotKnown
from tracer.support.types import Array

_MODES: tuple[Overflow, ...] = ("saturate", "symmetric", "wrap", "zero")
_ROUNDINGS = tuple(name for name in get_args(RoundingName) if name != "stochastic")
_MOST_SHIFT = 32
_SEEDS = 1 << 12
"""Seeds of stochastic rounding that are tried."""
_FEW, _FIRST, _CHUNK = 12, 64, 1000
"""Random vectors that candidates meet first and then; vectors of a step of the verification."""
_MOST_CANDIDATES = 60_000
"""Some ten seconds."""
_WIDE = 40
"""Widths that no probe shows are tried below it."""
_USUAL = (32, 64)
"""Widths that a sum without overflow is said to have."""


@dataclass(frozen=True)
class ProductRule:
    """How a product enters the sum, and the greatest products (up, down) that enter unlimited.

    `bits` is the width of the narrowest register that a single product meets; None if none is met.
    """

    shift: int
    rounding: Rounding
    up: int
    down: int
    bits: int | None

    def apply(self, products: Array) -> Array:
        """Returns what products (..., K) add to the sum, without a limit."""
        if not self.shift:
            return products
        return rounded(products, self.shift, self.rounding) << self.shift


@dataclass(frozen=True)
class Limits:
    """The registers that sums leave, the narrowest first, and the terms that share the first."""

    registers: tuple[Register, ...]
    shared: frozenset[int]


def reveal(box: BlackBox, random: np.random.Generator) -> Finding:
    """Returns the accumulator that adds as the black box does. Raises NotKnown if none does."""
    rules = find_product_rules(box)
    limits = find_limits(box, rules[0])
    search = _Search.of(box, random, rules[0], limits)
    for rule in rules:
        for accumulator in islice(
            _accumulators(box, rule, limits, search.outputs), _MOST_CANDIDATES
        ):
            if search.fits(accumulator) and search.verifies(accumulator):
                if limits is None:
                    return Finding.exact(accumulator)
                return Finding.of(accumulator, box.terms)
    raise NotKnown(search.reason)


def find_product_rules(box: BlackBox) -> list[ProductRule]:
    """Returns the ways in which products may be rounded, as single products at term 0 tell."""
    values = _ladder(box)
    rows = np.zeros((len(values), box.terms), np.int64)
    rows[:, 0] = values
    outputs, actual = box.of_products(rows)
    values, order = np.unique(actual[:, 0], return_index=True)
    outputs = outputs[order]
    rules = [(0, Rounding())]
    rules += [(shift, Rounding(name)) for shift in range(1, _MOST_SHIFT + 1) for name in _ROUNDINGS]
    found = [_product_rule(values, outputs, *rule) for rule in rules]
    drawn = [_product_rule(values, outputs, shift, None) for shift in range(1, _MOST_SHIFT + 1)]
    longest = max(each.up + each.down for each in found)
    at_random = max(drawn, key=lambda rule: rule.up + rule.down)
    if at_random.up + at_random.down > 2 * longest:
        return [replace(at_random, rounding=_find_seed(box, at_random))]
    return [each for each in found if each.up + each.down == longest]


def _ladder(box: BlackBox) -> Array:
    """Returns products around powers of two, of both signs, in ascending order."""
    largest = box.operands.left.largest * box.operands.right.largest
    near = [*range(1, 40)]
    for power in range(5, largest.bit_length() + 1):
        near += [(1 << power) + each for each in (-1, 0, 1)] + [3 << power - 1, 5 << power - 1]
    magnitudes = {each for each in near if each < largest} | {largest}
    return np.array(sorted(magnitudes | {-each for each in magnitudes}), np.int64)


def _product_rule(
    values: Array, outputs: Array, shift: int, rounding: Rounding | None
) -> ProductRule:
    """Returns how far, from 0 up and down, a rule explains the outputs; None draws at random."""
    column = values[:, None]
    floor = (values >> shift) << shift
    if rounding is None:
        is_right = (outputs == floor) | ((outputs == floor + (1 << shift)) & (floor != values))
    else:
        predicted = rounded(column, shift, rounding)[:, 0] << shift if shift else values
        is_right = outputs == predicted
    ends = []
    for sign in (1, -1):
        side = np.flatnonzero(values * sign > 0)[::sign]
        wrong = np.flatnonzero(~is_right[side])
        last = int(wrong[0]) if len(wrong) else len(side)
        ends.append((int(values[side[last - 1]]) if last else 0, last == len(side)))
    (up, is_free), (down, is_free_down) = ends
    bits = None
    if not (is_free and is_free_down):
        beyond = up if not is_free else -down - 1
        bits = max(int(needed(np.array([beyond]))[0]), NARROWEST)
    return ProductRule(shift, rounding or Rounding("stochastic"), up, -down, bits)


def _find_seed(box: BlackBox, rule: ProductRule) -> Rounding:
    """Returns the stochastic rounding that explains single products. Raises NotKnown."""
    products = np.zeros((min(box.terms, 48), box.terms), np.int64)
    values = np.resize(np.arange(1, min(rule.up, 1 << rule.shift + 2)), len(products))
    np.fill_diagonal(products, values)
    outputs, actual = box.of_products(products)
    for seed in range(_SEEDS):
        rounding = Rounding("stochastic", seed)
        terms = rounded(actual, rule.shift, rounding) << rule.shift
        if np.array_equal(terms.sum(1), outputs):
            return rounding
    raise NotKnown(
        f"products lose {rule.shift} low bits at random, by none of the seeds below {_SEEDS}"
    )


def find_limits(box: BlackBox, rule: ProductRule) -> Limits | None:
    """Returns the registers that sums of the largest products leave; None if they leave none.

    The register of any level that has term 0 has the first terms of some stride.
    """
    orders = [_strided(box.terms, stride) for stride in range(1, max(box.terms // 2, 1) + 1)]
    found: dict[Register, tuple[int, int, Array]] = {}
    by_sign = []
    for term in filter(None, (rule.up, -rule.down)):
        outputs, counts = _least_counts(box, rule, term, orders)
        seen: dict[Register, tuple[int, int, Array]] = {}
        for order, count, output in zip(orders, counts, outputs, strict=True):
            for register in _registers(rule, term, count, output) if count <= box.terms else ():
                if register not in seen or count < seen[register][1]:
                    seen[register] = term, count, order[:count]
        by_sign.append(seen)
        found |= seen
    for register in list(found):  # the lowest number tells saturate from symmetric
        told = [seen for seen in by_sign if any(each.bits == register.bits for each in seen)]
        if any(register not in seen for seen in told) and any(
            each.bits == register.bits and all(each in seen for seen in told) for each in found
        ):
            del found[register]
    if not found:
        return None
    registers = sorted(found, key=lambda each: (each.bits, _MODES.index(each.overflow)))
    term, _, members = found[registers[0]]
    return Limits(tuple(registers), _shared(box, rule, term, members))


def _strided(count: int, stride: int) -> Array:
    """Returns all terms; those that are a multiple of the stride come first."""
    terms = np.arange(count)
    return terms[np.argsort(terms % stride != 0, kind="stable")]


def _sums_of(
    box: BlackBox, rule: ProductRule, term: int, rows: Sequence[Array]
) -> tuple[Array, Array]:
    """Returns sums of the same product at the terms of each row, and what they are in no range."""
    products = np.zeros((len(rows), box.terms), np.int64)
    for product, row in zip(products, rows, strict=True):
        product[row] = term
    outputs, actual = box.of_products(products)
    return outputs, rule.apply(actual).sum(1)


def _least_counts(
    box: BlackBox, rule: ProductRule, term: int, orders: Sequence[Array]
) -> tuple[Array, Array]:
    """Returns for each order the sum of the least number of equal terms that overflow, and it.

    The number is that of the terms and one more where none overflow.
    """
    fits, fails = np.ones(len(orders), int), np.full(len(orders), box.terms + 1)
    sums, step = np.zeros(len(orders), np.int64), 2
    while (open_ := np.flatnonzero(fails - fits > 1)).size:
        bisected = (fits + fails) // 2
        counts = np.where(fails <= box.terms, bisected, np.minimum(fits * step, box.terms))
        counts = np.maximum(counts, fits + 1)
        outputs, exact = _sums_of(box, rule, term, [orders[k][: counts[k]] for k in open_.tolist()])
        for k, output, is_right in zip(open_, outputs, outputs == exact, strict=True):
            if is_right:
                fits[k] = counts[k]
            else:
                fails[k], sums[k] = counts[k], output
    return sums, fails


def _registers(rule: ProductRule, term: int, count: int, output: int) -> Iterator[Register]:
    """Yields the registers that turn `count` equal terms, one too many, into `output`."""
    total = int(rule.apply(np.array([[term]]))[0, 0]) * int(count)
    for bits in range(NARROWEST, WIDEST + 1):
        for mode in _MODES:
            low, high = Register(bits, mode).range
            if low <= total <= high or not low <= total * (count - 1) // count <= high:
                continue
            limited = {"wrap": (total - low) % (1 << bits) + low, "zero": 0}
            if output == limited.get(mode, low if total < 0 else high):
                yield Register(bits, mode)


def _shared(box: BlackBox, rule: ProductRule, term: int, members: Array) -> frozenset[int]:
    """Returns the terms that overflow the register of `members` in the place of the last one."""
    others = [term for term in range(box.terms) if term not in members[:-1]]
    outputs, exact = _sums_of(box, rule, term, [np.array([*members[:-1], each]) for each in others])
    overflowing = np.array(others)[outputs != exact].tolist()
    return frozenset(overflowing) | frozenset(members[:-1].tolist())


def _accumulators(
    box: BlackBox, rule: ProductRule, limits: Limits | None, outputs: Array
) -> Iterator[Accumulator]:
    """Yields the accumulators that explain all probes, the simplest first."""
    largest = box.terms * box.operands.left.largest * box.operands.right.largest
    bound = int(needed(np.array([2 * largest]))[0])
    wide = next((bits for bits in _USUAL if bits >= bound), WIDEST)
    seen = limits.registers if limits else ()
    most = max(int(needed(np.array([outputs.min(), outputs.max()])).max()), NARROWEST)
    outer = [*seen, Register(wide), *(Register(most, mode) for mode in _MODES if most < bound)]
    if limits is None:  # products alone may overflow, as the accumulator would
        outer = [Register(wide, mode) for mode in (_MODES if rule.bits else _MODES[:1])]
    outer = list(dict.fromkeys(outer))
    widths: list[int | None] = [None]
    if rule.bits is not None:
        widths.append(max(rule.bits - rule.shift, NARROWEST))
    if any(each.overflow == "zero" for each in seen):
        widths += _widths_of_zeroed_products(box, rule)
    for order, register, bits in _choices(box.terms, limits, outer, widths):
        yield Accumulator(
            register.bits, register.overflow, order, product_bits=bits,
            product_shift=rule.shift, product_rounding=rule.rounding,
        )  # fmt: skip


def _widths_of_zeroed_products(box: BlackBox, rule: ProductRule) -> Iterator[int]:
    """Yields the width beyond which a product becomes 0, where it leaves the sum as it is.

    A sum that becomes 0 instead loses the terms before.
    """
    largest = box.operands.left.largest * box.operands.right.largest
    bits = np.arange(NARROWEST + rule.shift, largest.bit_length() + 1)
    small = 1 << rule.shift
    rows = np.full((2 * len(bits), box.terms), small, np.int64)
    rows[::2, 1] = rows[1::2, -1] = (1 << bits) - small
    outputs = box.of_products(rows)[0].reshape(-1, 2)
    is_dropped = (outputs == (box.terms - 1) * small).all(1)
    if is_dropped.any():
        yield int(bits[np.argmax(is_dropped)]) - rule.shift


def _choices(
    count: int, limits: Limits | None, outer: Sequence[Register], widths: Sequence[int | None]
) -> Iterator[tuple[Order, Register, int | None]]:
    """Yields orders, registers of the last sum, and widths of a product."""
    if limits is None:
        yield from _combinations(iter([Sequential()]), outer, widths)
        return
    least = limits.registers[0].bits
    narrow = [each for each in limits.registers if each.bits == least]
    shared = None if len(limits.shared) == count else limits.shared
    others = (None, *limits.registers)
    yield from _combinations(candidates.plain_orders(count), outer, widths)
    yield from _combinations(
        candidates.tile_orders(count, narrow, others, shared, 1), outer, widths
    )
    yield from _combinations(candidates.pair_orders(count), outer, widths)
    yield from _combinations(
        candidates.tile_orders(count, narrow, others, shared, 2), outer, widths
    )
    # registers that probes do not show, as wider ones meet their sums before or after
    near = [Register(bits, mode) for bits in range(least, least + 8) for mode in _MODES]
    yield from _combinations(
        candidates.tile_orders(count, near, (None,), shared, 1), outer, widths[:1]
    )
    any_width = [Register(bits, mode) for bits in range(least + 1, _WIDE) for mode in _MODES]
    for depth in (1, 2):
        orders = candidates.tile_orders(count, narrow, (None,), shared, depth)
        yield from _combinations(orders, any_width, widths[:1])
    for depth, further in ((2, (None, *near)), (3, others)):
        orders = candidates.tile_orders(count, narrow, further, shared, depth)
        yield from _combinations(orders, outer, widths[:1])


def _combinations(
    orders: Iterator[Order], registers: Sequence[Register], widths: Sequence[int | None]
) -> Iterator[tuple[Order, Register, int | None]]:
    """Yields every combination; an order is planned once."""
    return (
        (order, register, bits) for order in orders for bits in widths for register in registers
    )


def draw(
    box: BlackBox, random: np.random.Generator, count: int, scale: tuple[float, float]
) -> tuple[Array, Array]:
    """Returns random operands (count, terms), whose products have some of `scale` bits.

    Some vectors are sparse, and some are of one magnitude.
    """
    sides = box.operands.left, box.operands.right
    bits = [float(np.log2(side.largest)) for side in sides]
    total = np.clip(random.uniform(*scale, count), 0, sum(bits))
    least = np.maximum(total - bits[1], 0)
    share = least + random.random(count) * (np.minimum(total, bits[0]) - least)
    if box.is_plain_sum:
        share = np.minimum(total, bits[0])
    shape, out = (count, box.terms), []
    signs = _signs(random, shape)
    is_first_signed = sides[0].low < 0
    for place, (side, wide) in enumerate(zip(sides, (share, total - share), strict=True)):
        top = np.exp2(wide)[:, None]
        uniform = random.uniform(0, top + 1, shape)
        values = np.where(random.random((count, 1)) < 0.3, top, uniform).astype(np.int64)
        values *= np.where(random.random((count, 1)) < 0.2, random.random(shape) < 0.3, True)
        if (place == 0) == is_first_signed:
            values *= signs
        elif side.low < 0 and random.random() < 0.5:
            values *= random.choice([-1, 1], (count, 1))
        out.append(np.clip(values, side.low, side.high))
    if box.is_plain_sum:
        out[1] = np.ones(shape, np.int64)
    return out[0], out[1]


def _signs(random: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Returns signs: at random, in runs, with one change, by the lane of a term, or constant."""
    count, terms = shape
    places, one = np.arange(terms)[None], (count, 1)
    spans = 1 << random.integers(0, max(terms.bit_length() - 1, 1), one)
    lanes = random.integers(2, max(terms // 2, 2) + 1, one)
    by_lane = np.take_along_axis(
        random.choice([-1, 1], shape), places % np.minimum(lanes, terms), 1
    )
    patterns = (
        random.choice([-1, 1], shape), places // spans % 2 * 2 - 1,
        np.where(places < random.integers(1, terms + 1, one), 1, -1), by_lane, np.ones(shape, int),
    )  # fmt: skip
    kind = random.choice(len(patterns), one, p=[0.35, 0.2, 0.15, 0.2, 0.1])
    return np.asarray(np.choose(kind, patterns) * random.choice([-1, 1], one))


@dataclass
class _Search:
    """Random vectors that candidates meet, and what the black box makes of their products."""

    box: BlackBox
    random: np.random.Generator
    scale: tuple[float, float, float]
    reason: str = "no accumulator explains the probes"
    _most: float = 0.0
    _parts: list[tuple[Array, Array]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.products = np.empty((0, self.box.terms), np.int64)
        self.outputs = np.empty(0, np.int64)

    @classmethod
    def of(
        cls, box: BlackBox, random: np.random.Generator, rule: ProductRule, limits: Limits | None
    ) -> _Search:
        """Draws vectors whose sums are about as wide as the registers that probes found."""
        found = [each.bits for each in limits.registers] if limits else []
        found += [] if rule.bits is None else [rule.bits]
        most = box.operands.left.largest * box.operands.right.largest
        low = min(found, default=2) - np.log2(box.terms) - 2
        high = max(found, default=most.bit_length()) + 1.5
        search = cls(box, random, (max(low, 1), high, most.bit_length()))
        search.meet(*search.draw(4 * _FIRST))
        return search

    def draw(self, count: int) -> tuple[Array, Array]:
        """Returns operands: most of the scale of the registers, others of any scale."""
        low, high, most = self.scale
        parts = [draw(self.box, self.random, count - count // 4, (low, high))]
        parts.append(draw(self.box, self.random, count // 4, (low, most)))
        left, right = (np.concatenate(side) for side in zip(*parts, strict=True))
        order = self.random.permutation(count)
        return left[order], right[order]

    def meet(self, left: Array, right: Array) -> None:
        """Puts vectors before those that candidates meet."""
        products, outputs = left * right, self.box.sums(left, right)
        self.products = np.concatenate([products, self.products])
        self.outputs = np.concatenate([outputs, self.outputs])
        ends = [0, _FEW, _FIRST, len(self.outputs)]
        self._parts = [
            (self.products[low:high], self.outputs[low:high]) for low, high in pairwise(ends)
        ]

    def fits(self, accumulator: Accumulator) -> bool:
        """Whether an accumulator gives the sums of the vectors."""
        for products, outputs in self._parts:
            share = float(np.count_nonzero(_few_sums(products, accumulator) == outputs))
            if share < len(outputs):
                share /= max(len(outputs), 1)
                if share > self._most:
                    self._most = share
                    self.reason = f"{accumulator} explains {share:.0%} of some sums, the most"
                return False
        return True

    def verifies(self, accumulator: Accumulator) -> bool:
        """Whether it gives the sums of 10,000 more vectors; what differs joins the vectors."""
        for _ in range(LEAST_RESULTS // _CHUNK):
            left, right = self.draw(_CHUNK)
            sums = _emulated(left * right, accumulator)
            wrong = np.flatnonzero(sums != self.box.sums(left, right))[:_FEW]
            if wrong.size:
                self.meet(left[wrong], right[wrong])
                return False
        return True


def _emulated(products: Array, accumulator: Accumulator) -> Array:
    """Returns the sums (N) of products (N, K) in an accumulator."""
    terms = Terms(products.shape[1])
    matrices = checked(products, np.ones((terms.count, 1), np.int64), None, terms)
    return dots.emulated(matrices, terms, accumulator).values[:, 0]


def _few_sums(products: Array, accumulator: Accumulator) -> Array:
    """Returns the same sums, of few products, without the preparations that many are worth."""
    kernels = loaded("single_sums")
    plan = program(accumulator.order, Terms(products.shape[1]))
    assert plan is not None
    own, bits = Register(accumulator.bits, accumulator.overflow), accumulator.product_bits
    registers = [each or own for each in plan.registers]
    registers.append(Register(bits, own.overflow) if bits else own)
    rules = [(kernels.rule_of(each.overflow), *each.range) for each in registers]
    if not bits:
        rules[-1] = (kernels.EXACT, 0, 0)
    rounding = accumulator.product_rounding
    numbers = np.array([accumulator.product_shift, kernels.rounding_rule(rounding.name)], np.int64)
    shape = len(products), 1
    starts, outs = np.zeros(shape, np.int64), [np.empty(shape, np.int64) for _ in range(3)]
    kernels.run(
        np.ascontiguousarray(products[:, plan.sequence]),
        np.ones((1, products.shape[1]), np.int64), plan.groups.groups, np.array(rules, np.int64),
        (numbers, rounding.salts(plan.sequence)), (accumulator.order.reorders, False),
        (starts, starts), (*outs, np.empty((0, 0), np.int64)),
    )  # fmt: skip
    return outs[0][:, 0]
