"""The search for the accumulator that explains sums of integers.

A `Family` is all accumulators of one order, with any choice of their registers: compiled code tries
all of them on random vectors. Families come in the order of their size, the simplest first.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from tracer.accumulators import spec
from tracer.accumulators.engine import dots
from tracer.accumulators.engine.tile_sums import Program, checked, program
from tracer.accumulators.kernels import loaded
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.arithmetic.black_box import BlackBox, draw
from tracer.arithmetic.kernel import LEAST_RESULTS
from tracer.interpreter import compiled_code
from tracer.support.types import Array

MODES: tuple[spec.Overflow, ...] = ("saturate", "symmetric", "wrap", "zero")
Choice = spec.Register | None
"""The register of a level; None is the accumulator."""
_FIRST, _FEW, _CHUNK = 256, 12, 1000
"""Random vectors that candidates meet; those kept of a failure; those of a step of verification."""
_MOST_TRIED = 5_000_000
"""Accumulators that meet a vector: about ten seconds."""
_NEAR = 4000
"""Vectors among which some tell an accumulator from others that are near it."""
_PART = 1 << 16
"""Accumulators that one call of the compiled search tries."""
_CLOSEST = 8
"""Accumulators that came closest, and are varied."""
_CORNERS = 2000
"""Vectors of few products that tell how wide a product may be."""
_BALANCED = 4000
"""Vectors in which a group of terms has a large sum, and those around it take it away."""
_LIKE = 24
"""Orders like that of an accumulator whose groups have such sums."""
_SHARE_OF_WIDE = 0.25
"""Share of the vectors whose bias may be wider than the registers that are known without it."""
_Groups = tuple[frozenset[int], ...]
"""The terms of each sum of a stage."""
Operands = tuple[Array, Array, Array]
"""Vectors (N, K) of both sides, and biases (N)."""
Given = tuple[Array, Array, Array]
"""Products (N, K) as they enter a sum, biases (N), and sums (N)."""


@dataclass(frozen=True)
class Family:
    """Accumulators of an order, whose levels, last sum and products have any of these registers.

    `levels` has the choices for each level of tiles, and nothing for other orders; `products` are
    widths of a product, None for no limit. A bias is added at a `place`.
    """

    order: spec.orders.Order
    outer: Sequence[spec.Register]
    products: Sequence[int | None] = (None,)
    levels: tuple[Sequence[Choice], ...] = ()
    place: spec.Bias = "first"

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many choices there are."""
        return len(self.products), *map(len, self.levels), len(self.outer)

    def member(self, number: Any) -> tuple[spec.orders.Order, spec.Register, int | None]:
        """Returns the order, the last register and the width of a product of an accumulator."""
        product, *levels, outer = np.unravel_index(number, self.sizes)
        order = self.order
        if isinstance(order, spec.orders.Tiles) and self.levels:
            chosen = zip(order.levels, self.levels, levels, strict=True)
            order = spec.orders.Tiles(
                tuple(replace(level, register=some[int(k)]) for level, some, k in chosen)
            )
        return order, self.outer[int(outer)], self.products[int(product)]

    def rules(self, plan: Program, numbers: Array) -> Array:
        """Returns the tables of accumulators by number, for the kernel."""
        product, *levels, outer = np.unravel_index(numbers, self.sizes)
        tables = np.empty((len(numbers), len(plan.registers) + 1, 3), np.int64)
        own = np.array([_rule(each) for each in self.outer])[outer]
        choices = self.levels or [(each,) for each in plan.registers]
        for place, some in enumerate(choices):
            rows = np.array([_rule(each) for each in some])
            rows = rows[levels[place]] if self.levels else rows
            tables[:, place] = np.where(rows[:, :1] == _OWN, own, rows)
        tables[:, len(choices) : -1] = own[:, None]
        exact = loaded("single_sums").EXACT, 0, 0
        limits = [
            [exact if bits is None else _rule(replace(each, bits=bits)) for each in self.outer]
            for bits in self.products
        ]
        tables[:, -1] = np.array(limits)[product, outer]
        return tables


_OWN = -1
"""Marks the register of the accumulator in a table."""


@lru_cache(maxsize=1024)
def _rule(register: Choice) -> tuple[int, int, int]:
    if register is None:
        return _OWN, 0, 0
    return loaded("single_sums").rule_of(register.overflow), *register.range


def registers_of(widths: Iterable[int], has_unsigned: bool = False) -> list[spec.Register]:
    """Returns the registers of these widths, those that are unsigned after the others."""
    signed = [spec.Register(bits, mode) for bits in widths for mode in MODES]
    modes = [mode for mode in MODES if not spec.effect_of(mode).is_symmetric] * has_unsigned
    return signed + [spec.Register(bits, mode, True) for bits in widths for mode in modes]


def _beside(register: spec.Register) -> list[spec.Register]:
    """Returns registers that are like another one, or a little wider or narrower."""
    most = min(register.bits + 2, spec.WIDEST - register.unsigned)
    return registers_of(range(max(register.bits - 1, spec.NARROWEST), most + 1), register.unsigned)


@dataclass
class Search:
    """Random vectors that accumulators meet, and what the black box makes of their products.

    `rounded` are the products (N, K) as they enter a sum, in units of 2^shift. `scale` are the bits
    of the products that are drawn: from, to, and the most. Each vector has a bias, unless `bias` is
    0: below 2^`bias` most of them, some below 2^`largest_bias`, which a register may not hold.
    """

    box: BlackBox
    random: np.random.Generator
    scale: tuple[float, float, float]
    rounded: Callable[[Array], Array]
    like: Accumulator
    bias: int = 0
    largest_bias: int = 0
    tried: int = 0
    closest: list[Accumulator] = field(default_factory=list)
    _shares: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        none: Array = np.empty(0, np.int64)
        self.met: Given = none.reshape(0, self.box.terms), none, none
        self.meet(*self.draw(_FIRST))

    def draw(self, count: int) -> Operands:
        """Returns operands: most of the scale of the registers, others of any scale; and biases."""
        low, high, most = self.scale
        parts = [draw(self.box, self.random, count - count // 4, (low, high))]
        parts.append(draw(self.box, self.random, count // 4, (low, most)))
        left, right = (np.concatenate(side) for side in zip(*parts, strict=True))
        order = self.random.permutation(count)
        return self._with_biases(left[order], right[order])

    def _with_biases(self, left: Array, right: Array) -> Operands:
        """Returns vectors with biases; some bring a part of a sum near a power of two."""
        (count, terms), bits, random = left.shape, self.bias, self.random
        if not bits:
            return left, right, np.zeros(count, np.int64)
        ends = random.integers(0, terms, count)
        parts = np.abs(np.cumsum(left * right, 1)[np.arange(count), ends])
        usual = np.minimum(random.integers(1, 2 * bits + 1, count), bits)
        wide = random.integers(1, max(self.largest_bias, bits) + 1, count)
        limits = 1 << np.where(random.random(count) < _SHARE_OF_WIDE, wide, usual)
        near = limits - parts + random.integers(-2, 3, count)
        bias = np.where(random.random(count) < 0.5, random.integers(limits), near)
        most = (1 << max(self.largest_bias, bits)) - 1
        return left, right, np.clip(bias * random.choice([-1, 1], count), -most, most)

    def run(self, left: Array, right: Array, bias: Array) -> Given:
        """Returns the products of vectors as they enter a sum, the biases, and the sums."""
        return self.rounded(left * right), bias, self.box.sums(left, right, bias)

    def meet(self, *operands: Array) -> None:
        """Puts vectors before those that accumulators meet."""
        pairs = zip(self.run(*operands), self.met, strict=True)
        products, bias, sums = (np.concatenate(pair) for pair in pairs)
        self.met = products, bias, sums

    def find(self, families: Iterator[Family]) -> Accumulator | None:
        """Returns the first accumulator that explains all vectors, and 10,000 more; None if none.

        A vector that an accumulator does not explain joins those that are met first.
        """
        for family in families:
            for part in range(0, math.prod(family.sizes), _PART):
                found = self._verified(family, part)
                if found is not None:
                    return found
            if self.tried > _MOST_TRIED:
                return None
        return None

    @property
    def reason(self) -> str:
        """Says why none is found."""
        reason = "no accumulator explains the probes"
        if self.closest:
            reason = f"{self.closest[0]} comes closest"
        ended = "; the search ended before all orders and registers were tried"
        return reason + ended * (self.tried > _MOST_TRIED)

    def _verified(self, family: Family, low: int) -> Accumulator | None:
        """Returns the first of a part of a family that is verified."""
        numbers = np.arange(low, min(low + _PART, math.prod(family.sizes)))
        self.tried += len(numbers)
        equal = self.count_equal(family, numbers, self.met)
        met = len(self.met[-1])
        self._note(family, numbers, equal)
        fits = numbers[equal == met]
        while len(fits):
            if self._verifies(family, fits[:1]):
                return self._accumulator(family, fits[0])
            fresh = len(self.met[-1]) - met
            products, bias, sums = (each[:fresh] for each in self.met)
            equal = self.count_equal(family, fits, (products, bias, sums))
            fits, met = fits[equal == fresh], len(self.met[-1])
        return None

    def _verifies(self, family: Family, number: Array) -> bool:
        """Whether it gives the sums of 10,000 more vectors; what differs joins the vectors."""
        accumulator, turns = self._accumulator(family, number[0]), LEAST_RESULTS // _CHUNK
        for turn in range(turns + 1):
            operands = self.draw(_CHUNK) if turn < turns else self._balanced(accumulator)
            equal = int(self.count_equal(family, number, self.run(*operands))[0])
            if equal < len(operands[-1]):
                self.meet(*(each[equal : equal + _FEW] for each in operands))
                return False
        return self._excels(accumulator)

    def _excels(self, accumulator: Accumulator) -> bool:
        """Whether the black box sides with an accumulator where others, nearly equal, differ.

        The others differ in one register, or in the width of a product.
        """
        order = accumulator.order
        levels = order.levels if isinstance(order, spec.orders.Tiles) else ()
        own = last_register(accumulator)
        choices = tuple((each.register, None, *_beside(each.register or own)) for each in levels)
        most = int(self.scale[-1]) + 1 - self.like.product_shift
        widths = (accumulator.product_bits, None, *range(spec.NARROWEST, most + 1))
        near = Family(order, (own, *_beside(own)), widths, choices, accumulator.bias)
        places = [
            [index if axis == each else 0 for axis in range(len(near.sizes))]
            for each, size in enumerate(near.sizes)
            for index in range(1, size)
        ]
        others = np.ravel_multi_index(np.transpose(places), near.sizes)
        bits = {register.bits for register in _registers(accumulator)}
        draws = [draw(self.box, self.random, _NEAR, (max(each - 6, 1), each + 1)) for each in bits]
        for operands in (self._corners(order, bits), *draws):
            left, right, bias = self._with_biases(*operands)
            sums = sums_of(accumulator, left, right, bias)
            equal = self.count_equal(near, others, (self.rounded(left * right), bias, sums))
            telling = np.unique(equal[equal < len(sums)])
            others = others[equal == len(sums)]
            found = tuple(each[telling] for each in (left, right, bias))
            if len(telling) and not np.array_equal(self.box.sums(*found), sums[telling]):
                self.meet(*found)
                return False
        return True

    def _corners(self, order: spec.orders.Order, bits: Collection[int]) -> tuple[Array, Array]:
        """Returns vectors of few products, near powers of two, that some register adds up.

        They tell the width of a product where the registers that follow hide it from most vectors.
        """
        random, box = self.random, self.box
        stages = _sums_of_stages(order, box.terms)
        groups = [each for sums in stages for each in sums if len(each) > 1]
        shift, most = self.like.product_shift, int(self.scale[-1])
        products = np.zeros((_CORNERS, box.terms), np.int64)
        for row in products:
            group = groups[random.integers(len(groups))]
            places = random.choice(group, min(len(group), int(random.integers(2, 4))), False)
            end = random.choice([*bits]) - 1 + random.choice([0, shift])  # of a sum, of a product
            drawn = random.integers(shift, max(most, shift) + 1, len(places))
            widths = np.where(random.random(len(places)) < 0.5, end, drawn)
            near = (1 << np.minimum(widths, most)) + (random.integers(-2, 3, len(places)) << shift)
            row[places] = near * random.choice([-1, 1], len(places))
        return box.factors_of(products)

    def _balanced(self, accumulator: Accumulator) -> Operands:
        """Returns vectors in which a group of terms adds up to much, and one around it to little.

        They tell the register of the group where those that follow are narrow: hardly any random
        vector leaves the one and comes back into the others. Half the groups are those of orders
        like that of the accumulator, which others are seldom told from.
        """
        random, terms, largest = self.random, self.box.terms, self.box.largest_product
        order = accumulator.order
        like: list[spec.orders.Order] = [order]
        if isinstance(order, spec.orders.Maddubs):
            like = [*pair_orders(terms)]
        elif not isinstance(order, spec.orders.Tiles):
            like = [*named_orders(terms)]
        like = [like[k] for k in random.permutation(len(like))[:_LIKE]]
        alone = [[each] for each in range(terms)]
        stages = [[alone, *_sums_of_stages(each, terms)] for each in (order, *like)]
        limits = [each.range[1] for each in _registers(accumulator)]
        products, rows = np.zeros((_BALANCED, terms), np.int64), np.arange(_BALANCED)
        ends = np.zeros((2, _BALANCED), np.intp)
        for number, row in enumerate(products):
            place = random.integers(len(like)) + 1 if number % 2 else 0
            own, others, near = _parted(stages[place], limits, random)
            ends[:, number] = others[0], others[min(1, len(others) - 1)]
            if random.random() < 0.5:  # parts nearly fill their registers, as do all around them
                against = others
                size = most = min(largest, int(near * random.uniform(0.75, 1)))
            else:  # some of the others take away all
                against = others[2:] if others[2:].size else others
                against = against[: random.integers(len(against)) + 1]
                most = min(largest, largest * len(against) // len(own))
                size, most = int(most ** random.uniform(0, 1)), largest
            row[own] = size * random.choice([-1, 1])
            row[against] = -np.sign(row[own[0]]) * min(size * len(own) // len(against), most)
        few = random.integers(-2, 3, _BALANCED) << self.like.product_shift
        sums = np.clip(products.sum(1) + few, -limits[-1], limits[-1])
        for term in (*ends, ends[1]):  # takes the rest, as not every integer is a product
            left, right = self.box.factors_of(products)
            products = left * right
            products[rows, term] += sums - products.sum(1)
        return *self.box.factors_of(products), np.zeros(_BALANCED, np.int64)

    def count_equal(self, family: Family, numbers: Array, given: Given) -> Array:
        """Returns how many of the first sums each accumulator of a family gives."""
        plan = program(family.order, spec.orders.Terms(self.box.terms))
        assert plan is not None
        equal = np.empty(len(numbers), np.int64)
        products, bias, sums = given
        compiled_code.loaded("sums", "tracer.arithmetic.kernels").count_equal(
            np.ascontiguousarray(products[:, plan.sequence]), self.like.product_shift,
            plan.groups.groups, family.rules(plan, numbers),
            (family.order.reorders, family.place == "last"), np.ascontiguousarray(bias),
            np.ascontiguousarray(sums), equal,
        )  # fmt: skip
        return equal

    def _note(self, family: Family, numbers: Array, equal: Array) -> None:
        """Keeps the accumulators that came closest, one of a family."""
        most = float(equal.max(initial=0)) / len(self.met[-1])
        if most < 1 and (len(self._shares) < _CLOSEST or most > self._shares[-1]):
            place = sum(share >= most for share in self._shares)
            self._shares = [*self._shares[:place], most, *self._shares[place:]][:_CLOSEST]
            near = self._accumulator(family, numbers[equal.argmax()])
            self.closest = [*self.closest[:place], near, *self.closest[place:]][:_CLOSEST]

    def _accumulator(self, family: Family, number: Any) -> Accumulator:
        order, register, bits = family.member(number)
        convention: spec.Convention = "unsigned" if register.unsigned else "twos-complement"
        return replace(
            self.like, bits=register.bits, overflow=register.overflow, order=order,
            product_bits=bits, bias=family.place, convention=convention,
        )  # fmt: skip


def levels_of(order: spec.orders.Order) -> tuple[spec.orders.Level, ...]:
    """Returns the levels of tiles; other orders have none."""
    return order.levels if isinstance(order, spec.orders.Tiles) else ()


def last_register(accumulator: Accumulator) -> spec.Register:
    """Returns the register in which the last sums of an accumulator are added."""
    return spec.Register(accumulator.bits, accumulator.overflow, accumulator.is_unsigned)


def _registers(accumulator: Accumulator) -> list[spec.Register]:
    """Returns the registers of an accumulator's levels, and the last one."""
    last = last_register(accumulator)
    return [*(each.register or last for each in levels_of(accumulator.order)), last]


def sums_of(
    accumulator: Accumulator, left: Array, right: Array, bias: Array | None = None
) -> Array:
    """Returns the sums (N) of the products of rows (N, K), and of a bias (N), in an accumulator."""
    terms = spec.orders.Terms(left.shape[1])
    matrices = checked(left * right, np.ones((terms.count, 1), np.int64), bias, terms)
    return dots.emulated(matrices, terms, accumulator).values[:, 0]


def _sums_of_stages(order: spec.orders.Order, count: int) -> list[list[list[int]]]:
    """Returns the terms of each sum of each stage of an order."""
    sums, stages = [[each] for each in range(count)], []
    for stage in order.stages(spec.orders.Terms(count)):
        rows = stage.groups.tolist()
        sums = [[term for k in row if k >= 0 for term in sums[k]] for row in rows]
        stages.append(sums)
    return stages


def _parted(
    stages: list[list[list[int]]], limits: Sequence[int], random: np.random.Generator
) -> tuple[Array, Array, int]:
    """Returns terms of a few sums, in turn, that a random sum of a later stage adds; its others.

    And the greatest term that leaves none of the few out of its register, of the `limits`.
    """
    place = int(random.integers(1, len(stages)))
    around = stages[place][random.integers(len(stages[place]))]
    below = int(random.integers(place))
    parts = [each for each in stages[below] if each[0] in around]
    many = max(int(random.integers(len(parts))), 1)
    first = int(random.integers(len(parts) - many + 1))
    group = [term for part in parts[first : first + many] for term in part]
    some = len(group) if random.random() < 0.7 else int(random.integers(len(group))) + 1
    others = [each for each in around if each not in group] or group
    near = limits[min(below, len(limits)) - 1] // len(parts[first])
    return random.choice(group, some, False), random.permutation(others), near


def named_orders(count: int) -> Iterator[spec.orders.Order]:
    """Yields the orders of `count` terms that have no choice of registers."""
    yield spec.orders.Sequential()
    yield spec.orders.Tree()
    yield spec.orders.Sorted()
    yield from (spec.orders.Chunked(size) for size in range(2, count))
    yield from (spec.orders.Lanes(size) for size in range(2, count))


def pair_orders(count: int) -> Iterator[spec.orders.Order]:
    """Yields the orders of `count` terms that add pairs in 16 bits first."""
    yield from (spec.orders.Maddubs(size) for size in range(2, (count + 1) // 2 + 1))


def tile_orders(
    count: int, depth: int, place: int | None = None, shared: frozenset[int] | None = None
) -> Iterator[spec.orders.Tiles]:
    """Yields the orders of `depth` levels of tiles, without registers.

    The terms `shared` are those that share the register of the level at `place` with term 0; None
    are any.
    """
    alone = tuple(frozenset({term}) for term in range(count))
    yield from map(spec.orders.Tiles, _levels(alone, depth, place, shared))


def _levels(
    groups: _Groups, depth: int, place: int | None, shared: frozenset[int] | None
) -> Iterator[tuple[spec.orders.Level, ...]]:
    """Yields `depth` levels on top of `groups`; that of the register may narrow each sum alone."""
    if not depth:
        yield ()
        return
    alone = [(spec.orders.Level(1), [[each] for each in range(len(groups))])] if place == 0 else []
    for level, rows in (*_shapes(len(groups)), *alone):
        if shared is not None and place is not None and place >= 0:
            first = frozenset().union(*(groups[each] for each in rows[0]))
            if first != shared if place == 0 else not first <= shared:
                continue
        joined = tuple(frozenset().union(*(groups[each] for each in row)) for row in rows)
        further = None if place is None else place - 1
        for others in _levels(joined, depth - 1, further, shared):
            yield (level, *others)


@lru_cache(maxsize=128)
def _shapes(count: int) -> tuple[tuple[spec.orders.Level, list[list[int]]], ...]:
    """Returns every way to part `count` sums into groups of one size, apart by one stride."""
    levels = [spec.orders.Level(size) for size in range(2, count)]
    levels += [spec.orders.Level(None)] if count > 1 else []
    for stride in range(2, count):
        for size in range(2, -(-count // stride) + 1):
            levels.append(
                spec.orders.Level(None if size * stride >= count else size, stride=stride)
            )
    parted = [level.groups(count).tolist() for level in levels]
    return tuple((level, [[k for k in row if k >= 0] for row in rows])
                 for level, rows in zip(levels, parted, strict=True))  # fmt: skip
