"""Where a black box adds its bias, once the rule of its sum without one is known.

A bias may be a term of the sum, as for nodes of models, or be added after the sum was rounded.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import product
from typing import get_args

import numpy as np

from tracer.accumulators.floats import casting
from tracer.accumulators.spec import NARROWEST, WIDEST, Bias, Register, kinds
from tracer.accumulators.spec.accumulator import Accumulator, AnyAccumulator
from tracer.accumulators.spec.block_fma import SINGLE, BlockFma
from tracer.accumulators.spec.float_accumulator import FloatAccumulator, FloatFormat, float_format
from tracer.accumulators.spec.orders import Chunked, Level, Order, Sequential, Tiles
from tracer.arithmetic import float_probes, float_rules, integer_search, trees
from tracer.arithmetic.black_box import BlackBox, Finding, words
from tracer.arithmetic.black_box import facts as facts_of
from tracer.arithmetic.float_probes import CHUNK, emulated
from tracer.arithmetic.integer_rules import ProductRule
from tracer.arithmetic.integer_search import Choice, Family, levels_of
from tracer.arithmetic.kernel import LEAST_RESULTS, Facts, NotKnown
from tracer.errors import UsageError
from tracer.support.types import Array

_Way = tuple[str, AnyAccumulator | None, Callable[[Array, Array, Array], Array]]
"""A place of the bias, the accumulator that has it, and its sums of rows and biases (N)."""


def find(box: BlackBox, random: np.random.Generator, found: Finding) -> Finding:
    """Returns the rule of a sum with the place of its bias, which 10,000 more vectors verified.

    Raises NotKnown if no place explains them.
    """
    known = None if found.spec is None else kinds.parse(found.spec, Accumulator(32)).accumulator
    own: AnyAccumulator | None
    if isinstance(known, Accumulator):
        place, own = _find_in_integers(box, random, known)
    else:
        place, own = _find_in_floats(box, random, known, found.facts)
    if place is None:
        raise NotKnown(f"without a bias: {found.spec or found.text}; no place explains the bias")
    text, facts = found.text, {**found.facts, "bias": place, "sum": found.spec}
    if isinstance(own, Accumulator | FloatAccumulator) and replace(own, bias="first") != known:
        text, facts = words(own), {**facts, **facts_of(own)}
    if own != known:
        facts.pop("preset", None)
    spec = None if own is None else str(own)
    return replace(found, text=f"{text}; the bias {place}", spec=spec, facts=facts)


def _find_in_integers(
    box: BlackBox, random: np.random.Generator, known: Accumulator
) -> tuple[str | None, Accumulator | None]:
    """Returns the place of a bias, and the accumulator with it; None for both if there is none.

    A bias may tell a register that no sum without it leaves, and the order of what this one adds.
    """
    rule = ProductRule(known.product_shift, known.product_rounding, 0, 0, None)
    widest = min(np.iinfo(box.bias_type).bits, WIDEST - 3) - 1  # sums are below 2^62
    usual = widest if known.is_unsigned else min(known.bits - 1, widest)  # sums may leave 0 alone
    most = box.largest_product.bit_length()
    scale = 1, min(known.bits, most) + 1, most
    search = integer_search.Search(box, random, scale, rule.rounded, rule.like, usual, widest)
    ones = np.tril(np.ones((box.terms, box.terms), np.int64))
    largest = box.factors_of(np.concatenate([ones, -ones]) * box.largest_product)
    search.meet(*largest, np.zeros(2 * box.terms, np.int64))  # which leave the registers it has
    left, right, bias = search.draw(LEAST_RESULTS)
    is_kept = np.arange(LEAST_RESULTS)[:, None] % box.terms == np.arange(box.terms)
    single = search.run(left * is_kept, right, bias)  # has no order, and tells the last register
    unsigned = known.is_unsigned or any(each.unsigned for each in _registers(known.order))
    every = integer_search.registers_of(range(NARROWEST, WIDEST), unsigned)
    own_last = integer_search.last_register(known)
    likely = own_last, replace(own_last, bits=WIDEST - known.is_unsigned)
    every, lasts = list(dict.fromkeys([*likely, *every])), []
    levels = levels_of(known.order)
    named = tuple(replace(each, register=each.register or own_last) for each in levels)
    forms = [known.order, Tiles(named)] if named else [known.order]
    for order, place in product(forms, get_args(Bias)):
        family = _family(known, order, every, place)
        equal = search.count_equal(family, np.arange(len(every)), single)
        lasts.append([every[k] for k in np.flatnonzero(equal == LEAST_RESULTS)])
        own = search.find(iter([replace(family, outer=lasts[-1])]))
        if own is not None:
            return place, own
    if np.array_equal(
        integer_search.sums_of(known, left, right) + bias, box.sums(left, right, bias)
    ):
        return "after the sum, in more bits", None
    if named or isinstance(known.order, Sequential):  # the sum ends before the bias is added
        family = _family(known, Tiles((*named, Level(None, own_last))), every, "first")
        own = search.find(iter([family]))
        if own is not None:
            return "first", own
    for last in lasts[0]:
        if last.overflow != "wrap" and last.bits - 1 <= widest:
            search.bias = last.bits - 1
            orders = _orders(known, box, last)
            some: list[Choice] = [None, *_registers(known.order)]
            families = (_family(known, each, [last], "first") for each in orders)
            own = search.find(replace(f, levels=(some,) * len(f.levels)) for f in families)
            if own is not None:
                return "first", own
    return None, None


def _family(known: Accumulator, order: Order, last: Sequence[Register], place: Bias) -> Family:
    """Returns accumulators in an order with any of the last registers."""
    choices = tuple([level.register] for level in levels_of(order))
    return Family(order, last, (known.product_bits,), choices, place)


def _registers(order: Order) -> list[Register]:
    levels = levels_of(order)
    return list(dict.fromkeys(each.register for each in levels if each.register is not None))


def _orders(known: Accumulator, box: BlackBox, last: Register) -> Iterator[Order]:
    """Yields orders that may add as the known one where no bias reaches the last register's end.

    With a bias at its end, what term 0 adds is lost, unless another term reduces it before.
    """
    yield from integer_search.pair_orders(box.terms)
    if not _registers(known.order):
        yield from integer_search.named_orders(box.terms)
    count = box.terms - 1
    products = np.eye(count, box.terms, 1, np.int64) * -(1 << known.product_shift)
    products[:, 0] = 1 << known.product_shift
    top = np.full(count, last.range[1])
    others = np.flatnonzero(box.sums(*box.factors_of(products), top) == top) + 1
    shared = frozenset([0, *others.tolist()])
    for depth in (1, 2, 3):
        yield from integer_search.tile_orders(box.terms, depth, depth - 1, shared)


def _find_in_floats(
    box: BlackBox, random: np.random.Generator, known: AnyAccumulator | None, facts: Facts
) -> tuple[str | None, AnyAccumulator | None]:
    """Returns the place of a bias, and the accumulator with it; None where there is none.

    Biases cancel a part of their sum, or are about as large; some are of any size, which tells
    exponents that no products reach.
    """
    form, runs = box.operands.left.format, []
    assert form is not None
    low, high = np.log2(form.least_normal), np.log2(form.largest)
    for turn in range(LEAST_RESULTS // CHUNK + 1):
        left, right = float_probes.draw(box, random, CHUNK, box.terms)
        parts = np.cumsum(left * right, 1)[np.arange(CHUNK), random.integers(0, box.terms, CHUNK)]
        factors = random.choice([-1, 1], CHUNK) * np.exp2(random.uniform(-12, 12, CHUNK))
        factors = np.where(random.random(CHUNK) < 0.5, -1, factors)
        sizes = parts * factors
        if not turn:
            sizes = random.choice([-1, 1], CHUNK) * np.exp2(random.uniform(low, high, CHUNK))
        bias = casting.cast(sizes, form, saturates=True).astype(np.float64)
        runs.append(((left, right, bias), box.sums(left, right, bias)))
    for place, own, sums in _of_floats(box, known, facts):
        if all(float_probes.equal(sums(*given), outputs).all() for given, outputs in runs):
            return place, own
    return None, None


def _with_any_exponents(known: FloatAccumulator) -> Iterator[FloatAccumulator]:
    """Yields an accumulator, and those of fewer bits of exponent that rounded products may hide."""
    yield known
    form = known.format
    for bits in range(form.exponent_bits - 1, 1, -1) if known.product else ():
        with suppress(UsageError):  # formats without a normal number
            yield replace(known, format=replace(form, exponent_bits=bits, bias=None))


def _of_floats(box: BlackBox, known: AnyAccumulator | None, tree: Facts) -> Iterator[_Way]:
    """Yields the places of a bias in an accumulator, in a tree, and after the last rounding."""
    result = float_format(tree["result"]) if "result" in tree else None
    owns: list[FloatAccumulator | BlockFma] = [known] if isinstance(known, BlockFma) else []
    for each in _with_any_exponents(known) if isinstance(known, FloatAccumulator) else ():
        owns.append(each)
        with suppress(UsageError):  # what rounds at random begins with a bias
            last = replace(each, chunk=None, order=Chunked(each.chunk)) if each.chunk else each
            owns.append(replace(last, bias="last"))

    def sums(own: FloatAccumulator | BlockFma | None, facts: Facts, *given: Array) -> Array:
        if own is None:
            sides = (given[0], *given[2:]), (given[1], *map(np.ones_like, given[2:]))
            values = float_rules.sums_of(facts, *map(np.column_stack, sides))
        else:
            values = emulated(own, *given)
        return values if result is None else casting.cast(values, result)

    def sums_apart(form: FloatFormat | None, left: Array, right: Array, bias: Array) -> Array:
        total = sums(owns[0] if owns else None, tree, left, right) + bias
        return total if form is None else casting.cast(total, form)

    for own in owns:
        yield getattr(own, "bias", "first"), own, partial(sums, own, tree)
    for place in reversed(trees.PLACES) if "program" in tree else ():
        program = trees.with_term(tree["program"], box.terms, place)
        yield place, None, partial(sums, None, {**tree, "program": program})
    for form in dict.fromkeys((result or SINGLE, SINGLE, None)):
        name = f"after the last rounding, in {form or 'float64'}"
        yield name, None, partial(sums_apart, form)
