"""How a black box adds products of integers: its registers, their overflow, order and rounding.

Probes narrow the rule down: single products tell how products are rounded and limited; sums of the
largest ones, in every stride, tell the narrowest register, what it does beyond its range, and which
terms share it. The accumulators that are left are tried on random vectors, the simplest first.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import get_args

import numpy as np

from tracer.accumulators.spec import NARROWEST, WIDEST, Register, RoundingName
from tracer.accumulators.spec.accumulator import Accumulator, Rounding, needed, rounded
from tracer.accumulators.spec.orders import Sequential
from tracer.arithmetic import integer_search
from tracer.arithmetic.black_box import BlackBox, Finding
from tracer.arithmetic.integer_search import (
    MODES,
    Choice,
    Family,
    Search,
    last_register,
    levels_of,
    registers_of,
)
from tracer.arithmetic.kernel import NotKnown
from tracer.support.types import Array

_ROUNDINGS = tuple(name for name in get_args(RoundingName) if name != "stochastic")
_MOST_SHIFT = 32
_SEEDS = 1 << 12
"""Seeds of stochastic rounding that are tried."""
_FEW_UNITS = 16
"""Units, of both signs, within which products that are rounded at random fit no fixed rounding."""
_MOST_ROUNDINGS = 8
"""Roundings of products that are tried, of those that explain the products equally."""
_USUAL = (32, 64)
"""Widths that a sum without overflow is said to have."""


@dataclass(frozen=True)
class ProductRule:
    """How a product enters the sum, and the greatest products (up, down) that enter unlimited.

    `bits` is the width of the narrowest register that a single product meets; None if none is met.
    If the last register wraps, `last`, sums are told modulo its range alone. `is_unsigned` if a
    register holds no negative product.
    """

    shift: int
    rounding: Rounding
    up: int
    down: int
    bits: int | None
    last: Register | None = None
    is_unsigned: bool = False

    def wrapped(self, sums: Array) -> Array:
        """Returns what the last register makes of exact sums, if it wraps."""
        return sums if self.last is None else _wrapped(sums, self.last)

    def rounded(self, products: Array) -> Array:
        """Returns what products (..., K) add to the sum, without a limit, in units of 2^shift."""
        return rounded(products, self.shift, self.rounding) if self.shift else products

    def apply(self, products: Array) -> Array:
        """Returns what products (..., K) add to the sum, without a limit."""
        return self.rounded(products) << self.shift

    @property
    def like(self) -> Accumulator:
        """An accumulator that rounds products so."""
        return Accumulator(WIDEST, product_shift=self.shift, product_rounding=self.rounding)


def _wrapped(sums: Array, register: Register) -> Array:
    low, high = register.range
    return (sums - low & high - low) + low


@dataclass(frozen=True)
class Limits:
    """The registers that sums leave, the narrowest first, and the terms that share the first.

    `outer` is the last register if it is known. If it is not one that wraps, it is the narrowest,
    and the terms that are `shared` add up before it, in any register. They are None, for any, if
    the least product that is not rounded to 0 leaves the first register alone.
    """

    registers: tuple[Register, ...]
    shared: frozenset[int] | None
    outer: tuple[Register, ...] = ()

    @property
    def narrow(self) -> tuple[Register, ...]:
        """The narrowest registers, which differ in what they do beyond their range."""
        most = self.registers[0].range[1]
        return tuple(each for each in self.registers if each.range[1] == most)

    @property
    def is_before_the_last(self) -> bool:
        """Whether the terms that are shared are those of the last level of tiles."""
        return bool(self.outer) and self.outer[0].overflow != "wrap"


def reveal(box: BlackBox, random: np.random.Generator) -> Finding:
    """Returns the accumulator that adds as the black box does. Raises NotKnown if none does."""
    rules = find_product_rules(box)
    limits = find_limits(box, rules[0])
    is_exact = limits is None
    if limits and len(limits.shared or ()) == box.terms:  # every sum ends in the narrowest register
        narrow = limits.narrow
        if narrow[0].overflow == "wrap":
            rules = find_product_rules(box, narrow[0])
            before = find_limits(box, rules[0]) or limits
            limits = replace(before, outer=narrow)
        elif narrow[0].range[1] < box.largest_product:  # else no term alone leaves it
            shared = _shared_before(box, rules[0], narrow[0])
            limits = replace(limits, shared=shared, outer=narrow)
            width = _width_of_parts(box, rules[0], shared)
            if width is not None:
                rules = [replace(rule, bits=width + rule.shift) for rule in rules]
    reason = ""
    for rule in rules[:_MOST_ROUNDINGS]:
        search = _search(box, random, rule, limits)
        accumulator = search.find(_families(search, rule, limits))
        if accumulator is not None:
            return Finding.exact(accumulator) if is_exact else Finding.of(accumulator, box.terms)
        reason = reason or search.reason
    raise NotKnown(reason)


def _search(
    box: BlackBox, random: np.random.Generator, rule: ProductRule, limits: Limits | None
) -> Search:
    """Returns the search on vectors whose sums are about as wide as the registers of probes."""
    most = box.largest_product.bit_length()
    widest = most + box.terms.bit_length()
    least = rule.shift + 2  # bits of products of few units
    bits = [min(max(each.bits, least), widest) for each in limits.registers] if limits else []
    bits += [] if rule.bits is None else [rule.bits]
    low = min(bits, default=2) - np.log2(box.terms) - 2
    scale = max(min(low, most), 1), max(bits, default=most) + 1.5, most
    return Search(box, random, scale, rule.rounded, rule.like)


def find_product_rules(box: BlackBox, last: Register | None = None) -> list[ProductRule]:
    """Returns the ways in which products may be rounded, as single products tell.

    They are at one term after the other: what rounds at random is as good as fixed at a single one.
    `last` is the last register, if it wraps.
    """
    values = _ladder(box)
    rows = np.zeros((len(values), box.terms), np.int64)
    places = np.arange(len(values))
    rows[places, places % box.terms] = values
    outputs, actual = box.of_products(rows)
    values, order = np.unique(actual.sum(1), return_index=True)
    outputs = outputs[order]
    rules = [(0, Rounding())]
    rules += [(shift, Rounding(name)) for shift in range(1, _MOST_SHIFT + 1) for name in _ROUNDINGS]
    found = [_product_rule(values, outputs, *rule, last) for rule in rules]
    shifts = range(1, _MOST_SHIFT + 1)
    drawn = [_product_rule(values, outputs, shift, None, last) for shift in shifts]
    longest = max(each.up + each.down for each in found)
    at_random = max(drawn, key=lambda rule: rule.up + rule.down)
    if 2 * longest < min(at_random.up + at_random.down, 2 * _FEW_UNITS << at_random.shift):
        return [replace(at_random, rounding=_find_seed(box, at_random))]
    limits = outputs.min(), outputs.max()  # where the narrowest register may saturate
    terms = [(rule, np.clip(rule.apply(values), *limits)) for rule in found if outputs.any()]
    saturating = [rule for rule, each in terms if np.array_equal(each, outputs)]
    return saturating or [each for each in found if each.up + each.down == longest]


def _ladder(box: BlackBox) -> Array:
    """Returns products around powers of two, of both signs, in ascending order."""
    largest = box.largest_product
    near = [*range(1, 40)]
    for power in range(5, largest.bit_length() + 1):
        near += [(n << power - 1) + each for n in (2, 3) for each in (-1, 0, 1)]
        near.append(5 << power - 1)
    magnitudes = {each for each in near if each < largest} | {largest}
    return np.array(sorted(magnitudes | {-each for each in magnitudes}), np.int64)


def _product_rule(
    values: Array, outputs: Array, shift: int, rounding: Rounding | None, last: Register | None
) -> ProductRule:
    """Returns how far, from 0 up and down, a rule explains the outputs; None draws at random."""
    column = values[:, None]
    floor = (values >> shift) << shift
    rule = ProductRule(shift, rounding or Rounding("stochastic"), 0, 0, None, last)
    if rounding is None:
        above = rule.wrapped(floor + (1 << shift))
        is_right = (outputs == rule.wrapped(floor)) | ((outputs == above) & (floor != values))
    else:
        is_right = outputs == rule.wrapped(rule.apply(column)[:, 0])
    ends = []
    for sign in (1, -1):
        side = np.flatnonzero(values * sign > 0)[::sign]
        wrong = np.flatnonzero(~is_right[side])
        reach = int(wrong[0]) if len(wrong) else len(side)
        ends.append((int(values[side[reach - 1]]) if reach else 0, reach == len(side)))
    (up, is_free), (down, is_free_down) = ends
    negative = values < 0
    is_unsigned = bool((outputs[negative] >= 0).all() and not is_right[negative].all())
    if is_unsigned:
        down, is_free_down = 0, True
    elif outputs.any() and not outputs[negative].any() and int(values[0]) >> shift >= -1:
        down = 0  # what may round all of them to 0 says nothing of an unsigned register
    bits = None
    if not (is_free and is_free_down):
        beyond = up if not is_free else -down - 1
        bits = max(int(needed(np.array([beyond]))[0]), NARROWEST)
    return replace(rule, up=up, down=-down, bits=bits, is_unsigned=is_unsigned)


def _find_seed(box: BlackBox, rule: ProductRule) -> Rounding:
    """Returns the stochastic rounding that explains single products. Raises NotKnown."""
    products = np.zeros((min(box.terms, 48), box.terms), np.int64)
    most = max(rule.up >> rule.shift, 1) << rule.shift  # what rounds up to it stays in its register
    np.fill_diagonal(products, np.arange(1, min(most, 4 << rule.shift)))
    outputs, actual = box.of_products(products)
    for seed in range(_SEEDS):
        rounding = Rounding("stochastic", seed)
        terms = replace(rule, rounding=rounding).apply(actual)
        if np.array_equal(rule.wrapped(terms.sum(1)), outputs):
            return rounding
    raise NotKnown(
        f"products lose {rule.shift} low bits at random, by none of the seeds below {_SEEDS}"
    )


def find_limits(box: BlackBox, rule: ProductRule) -> Limits | None:
    """Returns the registers that sums of the largest products leave; None if they leave none.

    The register of most levels that has term 0 has the first terms of some stride; and the fewest
    of all terms that overflow share one.
    """
    every = np.arange(box.terms)
    strides = range(1, max(box.terms // 2, 1) + 1)
    by_stride = [np.argsort(every % stride != 0, kind="stable") for stride in strides]
    found: dict[Register, tuple[int, int, Array]] = {}
    by_sign = []
    terms = np.array([rule.up, -rule.down])
    if rule.last is not None:  # multiples of its range are 0 in it, as what a narrower one drops
        terms -= np.sign(terms) << rule.shift
    if rule.bits is not None and not rule.apply(terms).any():  # one unit is too much
        terms = np.array([1, -1]) << rule.shift
    for term in filter(None, terms.tolist()):
        orders = [*by_stride, _fewest_first(box, rule, term)]
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
    below = _registers_below(box, rule) if rule.is_unsigned else []
    if not found:
        return Limits(tuple(below), frozenset(every.tolist())) if below else None
    registers = sorted(found, key=lambda each: (each.range[1], MODES.index(each.overflow)))
    registers += [each for each in below if each.overflow == "wrap" and each not in registers]
    term, count, members = found[registers[0]]
    return Limits(tuple(registers), _shared(box, rule, term, members) if count > 1 else None)


def _registers_below(box: BlackBox, rule: ProductRule) -> list[Register]:
    """Returns the unsigned registers that sums leave at 0 alone.

    One that wraps holds the sums of any number of products that are -1, or of their remainders.
    """
    products = np.tril(np.full((box.terms, box.terms), -1 << rule.shift))
    most = int(box.of_products(products)[0].max())
    if most > 0:
        return [Register(most.bit_length(), "wrap", True)]
    return [each for each in registers_of([_usual_width(box) - 1], True) if each.unsigned]


def _sums_of(
    box: BlackBox, rule: ProductRule, term: int, rows: Sequence[Array]
) -> tuple[Array, Array]:
    """Returns sums of the same product at the terms of each row, and what they are in no range."""
    products = np.zeros((len(rows), box.terms), np.int64)
    for product, row in zip(products, rows, strict=True):
        product[row] = term
    outputs, actual = box.of_products(products)
    return outputs, rule.wrapped(rule.apply(actual).sum(1))


def _fewest_first(box: BlackBox, rule: ProductRule, term: int) -> Array:
    """Returns all terms, first the fewest that overflow: without any one of them none do."""
    every = np.arange(box.terms)
    fewest = every
    for place in reversed(every.tolist()):
        outputs, exact = _sums_of(box, rule, term, [fewest[fewest != place]])
        if outputs[0] != exact[0]:
            fewest = fewest[fewest != place]
    return np.concatenate([fewest, np.setdiff1d(every, fewest)])


def _least_counts(
    box: BlackBox, rule: ProductRule, term: int, orders: Sequence[Array]
) -> tuple[Array, Array]:
    """Returns for each order the sum of the least number of equal terms that overflow, and it.

    The number is that of the terms and one more where none overflow.
    """
    fits, fails = np.zeros(len(orders), int), np.full(len(orders), box.terms + 1)
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
    for register in registers_of(range(NARROWEST, WIDEST), rule.is_unsigned):
        low, high = register.range
        if low <= total <= high or not low <= total * (count - 1) // count <= high:
            continue
        limited = {"wrap": int(_wrapped(np.array(total), register)), "zero": 0}
        ending = limited.get(register.overflow, low if total < 0 else high)
        if output == rule.wrapped(np.array(ending)):
            yield register


def _shared(box: BlackBox, rule: ProductRule, term: int, members: Array) -> frozenset[int]:
    """Returns the terms that overflow the register of `members` in the place of the last one."""
    others = [term for term in range(box.terms) if term not in members[:-1]]
    outputs, exact = _sums_of(box, rule, term, [np.array([*members[:-1], each]) for each in others])
    overflowing = np.array(others)[outputs != exact].tolist()
    return frozenset(overflowing) | frozenset(members[:-1].tolist())


def _shared_before(box: BlackBox, rule: ProductRule, last: Register) -> frozenset[int]:
    """Returns the terms that reduce term 0 before their sum is added to the last register.

    Term 0 alone is one too many for it.
    """
    products = np.zeros((box.terms - 1, box.terms), np.int64)
    products[:, 0] = last.range[1] + 1
    products[:, 1:] = np.eye(box.terms - 1, dtype=np.int64) * (-3 << max(last.bits - 3, rule.shift))
    outputs, actual = box.of_products(products)
    others = np.flatnonzero(outputs == rule.apply(actual).sum(1)) + 1
    return frozenset([0, *others.tolist()])


def _sum_bits(box: BlackBox) -> int:
    """Returns the width of a register that no sum of two sums leaves."""
    return int(needed(np.array([2 * box.terms * box.largest_product]))[0])


def _usual_width(box: BlackBox) -> int:
    """Returns a usual width of a register that no sum of two sums leaves."""
    return next((bits for bits in _USUAL if bits >= _sum_bits(box)), WIDEST)


def _families(search: Search, rule: ProductRule, limits: Limits | None) -> Iterator[Family]:
    """Yields the accumulators that may explain all probes, the simplest first.

    Of three levels some registers are as wide as any sum at first: those that come closest then
    have any two of their registers.
    """
    box = search.box
    most, wide = _sum_bits(box), _usual_width(box)
    widths: list[int | None] = [None]
    if rule.bits is not None:
        widths.append(max(rule.bits - rule.shift - rule.is_unsigned, NARROWEST))
    if limits is None:  # products alone may overflow, as the accumulator would
        yield Family(Sequential(), registers_of([wide])[: None if rule.bits else 1], widths)
        return
    widths = list(dict.fromkeys([*widths, *_hidden_widths(box, rule, limits)]))
    least = limits.registers[0].bits
    every = registers_of(range(least, most + 1), rule.is_unsigned)
    every = list(dict.fromkeys([*limits.registers, Register(wide), *every]))
    all_widths = [None, *range(NARROWEST, most + 1)] if len(widths) > 1 else widths
    some = [*limits.registers, Register(wide)]
    named = [*integer_search.named_orders(box.terms)]
    pairs = [*integer_search.pair_orders(box.terms)]
    yield from (Family(order, limits.outer or every, widths) for order in named)
    yield from _of_tiles(box.terms, 1, limits, every, widths)
    yield from (Family(order, limits.outer or every, widths) for order in pairs)
    yield from (Family(order, limits.outer or some, all_widths) for order in named + pairs)
    yield from _of_tiles(box.terms, 2, limits, every, widths)
    yield from _of_tiles(box.terms, 1, limits, every, all_widths)
    few = [max(every, key=lambda register: register.bits), *limits.registers]
    if limits.is_before_the_last:
        for depth in (2, 3):
            yield from _of_tiles(box.terms, depth, limits, few, widths, is_coarse=True)
    else:
        yield from _of_tiles(box.terms, 3, limits, every, widths)
    for near in list(search.closest):
        own = levels_of(near.order)
        for free in combinations(range(len(own)), min(len(own), 2)):
            choices = tuple(
                [None, *every] if k in free else [e.register] for k, e in enumerate(own)
            )
            last = [last_register(near)]
            yield Family(near.order, last, [near.product_bits], choices)
    either: list[Choice] = [None, *limits.registers]
    for order in integer_search.tile_orders(box.terms, 2):
        yield Family(order, limits.outer or limits.registers, widths[:1], (either, either))


def _of_tiles(
    count: int, depth: int, limits: Limits, every: Sequence[Register], widths: Sequence[int | None],
    is_coarse: bool = False,
) -> Iterator[Family]:  # fmt: skip
    """Yields the accumulators with so many levels of tiles, that agree with the limits.

    What is above a known register, and before the last one, mostly is in the last one; unless the
    registers are few (`is_coarse`), others are left out.
    """
    is_inside = limits.is_before_the_last
    inner: Sequence[Choice] = every if is_inside else limits.narrow
    most = limits.narrow[0].bits + count.bit_length()  # of sums of what the narrow register holds
    above = [each for each in every if each.bits <= most or each in limits.registers or is_coarse]
    widest = max(every, key=lambda register: register.bits)
    below = every if depth < 3 or is_inside else limits.registers
    higher: Sequence[Choice] = [None] if is_inside and not is_coarse else [None, *above]
    for place in range(depth):
        levels: list[Sequence[Choice]] = [[None, *below]] * place + [inner]
        levels += [higher] * (depth - place - 1)
        for order in integer_search.tile_orders(count, depth, place, limits.shared):
            yield Family(order, limits.outer or [widest, *above], widths, tuple(levels))


def _hidden_widths(box: BlackBox, rule: ProductRule, limits: Limits) -> Iterator[int]:
    """Yields widths of a product that a narrower register limits, or that becomes 0 beyond it.

    A product that becomes 0 leaves the sum as it is; a sum that does loses the terms before. A
    product that a register limits changes once more, beyond the width of a product. An unsigned
    product that is negative takes nothing from another one, or wraps.
    """
    largest = box.largest_product
    bits = np.arange(NARROWEST + rule.shift, largest.bit_length() + 1)
    small = 1 << rule.shift
    if rule.is_unsigned and rule.bits is None:
        rows = np.eye(box.terms, dtype=np.int64) * -small
        rows[1:, 0] = 2 * small
        alone, *others = box.of_products(rows)[0].tolist()
        if alone > 0 or all(each == 2 * small for each in others):
            yield (alone or largest).bit_length() - rule.shift
    if any(each.overflow == "zero" for each in (*limits.registers, *limits.outer)):
        rows = np.full((len(bits), box.terms - 1, box.terms), small, np.int64)
        ends = np.arange(1, box.terms)  # one of them ends a sum of several terms
        rows[:, ends - 1, ends] = (1 << bits)[:, None] - small
        outputs = box.of_products(rows.reshape(-1, box.terms))[0].reshape(len(bits), -1)
        is_dropped = (outputs == (box.terms - 1) * small).all(1)
        yield from (bits[is_dropped][:1] - rule.shift).tolist()
    if not limits.is_before_the_last and (width := _width_of_parts(box, rule, limits.shared or ())):
        yield width  # before the last register, `rule.bits` has it
    if rule.bits is not None:
        bits = bits[(bits > rule.up.bit_length() + 1) & (bits < largest.bit_length())]
        rows = np.zeros((2 * len(bits), box.terms), np.int64)
        rows[::2, 0], rows[1::2, 0] = (1 << bits) - small, 1 << bits
        outputs = box.of_products(rows)[0].reshape(-1, 2)
        narrow = limits.narrow[0]
        expected = _wrapped(rows[:, 0].reshape(-1, 2), narrow)[:, 1]
        changes = outputs[:, 1] != (expected if narrow.overflow == "wrap" else outputs[:, 0])
        yield from (bits[changes][:1] + 1 - rule.shift).tolist()


def _width_of_parts(box: BlackBox, rule: ProductRule, shared: Collection[int]) -> int | None:
    """Returns the width of products whose terms add up before they meet their narrowest register.

    Two of the terms that are `shared` cancel below it, nearly; None if they do at any width, or
    never.
    """
    powers = range(NARROWEST + rule.shift, box.largest_product.bit_length())
    first, *others = sorted(shared) or [0]
    products = np.zeros((len(powers), len(others), box.terms), np.int64)
    products[:, :, first] = (1 << np.array(powers))[:, None]
    products[:, range(len(others)), others] = (1 << rule.shift) - products[:, :, first]
    outputs, actual = box.of_products(products.reshape(-1, box.terms))
    is_exact = (outputs == rule.apply(actual).sum(1)) & (outputs != 0)
    cancels = is_exact.reshape(len(powers), -1).any(1)
    ends = np.flatnonzero(cancels[:-1] & ~cancels[1:])
    return powers[int(ends[-1]) + 1] + 1 - rule.shift if len(ends) else None
