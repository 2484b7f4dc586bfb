"""How a black box adds products of floats: its format, rounding, order, and blocks.

Candidates meet random single products first, then sums of two, then whole sums; only those that
agree so far go on. So formats, roundings and ways to multiply are parted from orders. Sums
in float32 or float64 in another order are trees, which masked probes find.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice, product
from typing import Any, get_args

import numpy as np

from tracer.accumulators import hardware
from tracer.accumulators.spec.accumulator import ByOperands
from tracer.accumulators.spec.block_fma import SINGLE, BlockFma, Rule
from tracer.accumulators.spec.float_accumulator import (
    FORMAT_NAMES,
    FloatAccumulator,
    FloatFormat,
    FloatRounding,
    Specials,
    Subnormals,
    float_format,
)
from tracer.arithmetic import float_trees
from tracer.arithmetic.black_box import BlackBox
from tracer.arithmetic.finding import Finding
from tracer.arithmetic.float_probes import (
    SINGLE_FRACTION,
    Candidate,
    Probes,
    are_operands,
)
from tracer.arithmetic.integer_search import named_orders, tile_orders
from tracer.arithmetic.rule import NotKnown
from tracer.errors import UsageError

_SEEDS = 1 << 10
"""Seeds of stochastic rounding that are tried."""
_MOST_FOUND = 3000
"""Accumulators that go on from single products to sums of two: a second or two."""
_LEAST = (None, -133, -132, -21, -20, -19)
"""Least exponents of blocks that devices have."""
_DOUBLE_FRACTION = 52
_HALVES = (float_format("fp16"), float_format("bf16"))
"""Formats to which libraries round sums at last."""


def reveal(box: BlackBox, random: np.random.Generator) -> Finding:
    """Returns the rule of a sum of floats. Raises NotKnown if none fits."""
    fraction = _fraction(box)
    if fraction > SINGLE_FRACTION:
        return float_trees.reveal(box, random, np.float64)
    probes = Probes(box, random, fraction)
    is_single = fraction == SINGLE_FRACTION and box.operands.left.format == SINGLE
    reason = f"sums keep {fraction} bits of fraction; no accumulator explains all probes"
    least = -fraction - 2
    left, right = np.zeros((1, box.terms)), np.ones((1, box.terms))
    left[0, :3] = np.array([1, 2.0 ** (least if box.is_plain_sum else least // 2), -1])[: box.terms]
    right[0, 1] = 1 if box.is_plain_sum else 2.0 ** (least - least // 2)
    fits = are_operands(box, left, right)[0]
    keeps_more = fits and box.sums(left, right)[0] == 2.0**least  # than it has at last
    results = (None, *(form for form in _HALVES if form.fraction_bits == fraction))
    for result in results if box.operands.left.format != SINGLE else ():
        for block in _presets(rounded := replace(probes, result=result)):
            if rounded.verifies(block):
                return Finding.of(block, box.terms, result=result)
        if result is not None and keeps_more:
            with suppress(NotKnown):
                return float_trees.reveal(box, random, np.float32, result)
    blocks = iter(()) if is_single else _blocks(probes, fraction)
    candidates: Iterator[Candidate] = chain(_accumulators(probes, fraction), blocks)
    for candidate in candidates:
        if probes.verifies(candidate):
            return Finding.of(candidate, box.terms)
        reason = f"{candidate} explains most probes, and not all"
    if is_single:
        return float_trees.reveal(box, random, np.float32)
    raise NotKnown(reason)


def _fraction(box: BlackBox) -> int:
    """Returns the bits of fraction of a sum: the most with which 1 + 2^-bits is exact.

    Operands of few bits reach further down from a larger product than 1.
    """
    if box.terms == 1:
        raise NotKnown("a sum of one product has no order")
    most, bits = 0, np.arange(1, _DOUBLE_FRACTION + 1)
    for power, other in product((0, 1, 2, 3, 4, 8, 14), {1, box.terms - 1}):
        left, right = (np.zeros((len(bits), box.terms)) for _ in range(2))
        left[:, 0], right[:, 0] = 2.0 ** (power * (1 + box.is_plain_sum)), 2.0**power
        least = 2 * power - bits
        left[:, other], right[:, other] = 2.0 ** (least // 2), 2.0 ** (least - least // 2)
        if box.is_plain_sum:
            left[:, other], right[:] = 2.0**least, 1
        fits = are_operands(box, left, right)
        if fits.any():
            exact = box.sums(left[fits], right[fits]) == 4.0**power + 2.0 ** least[fits]
            most = max(most, int(bits[fits][exact].max(initial=0)))
    return most


def _single_fraction(box: BlackBox, most: int) -> int:
    """Returns the bits of fraction of one product, up to `most`, which are those of a sum."""
    bits = np.arange(1, most + 1)
    left = np.zeros((len(bits), box.terms))
    left[:, 0] = 1 + 2.0**-bits
    right = np.ones(left.shape)
    fits = are_operands(box, left, right)
    if not fits.any():
        return most
    wrong = bits[fits][box.sums(left[fits], right[fits]) != left[fits, 0]]
    return int(wrong.min(initial=most + 1)) - 1


def _formats(fraction: int, subnormals: Subnormals) -> Iterator[FloatFormat]:
    """Yields formats with so many bits of fraction, those with a name first."""
    named = [float_format(name) for name in FORMAT_NAMES if subnormals == "kept"]
    yield from (form for form in named if form.fraction_bits == fraction)
    for specials in get_args(Specials):
        for bits in range(8, 0, -1):
            with suppress(UsageError):  # it has no number, or is wider than float32
                form = FloatFormat(bits, fraction, None, specials, subnormals)
                if form not in named:
                    yield form


def _accumulators(probes: Probes, fraction: int) -> Iterator[FloatAccumulator]:
    """Yields the float accumulators that explain the probes."""
    roundings = [FloatRounding(name) for name in ("rne", "rz", "floor")]
    if by_seed := _seeded(probes, fraction):
        roundings = [by_seed]
    terms, operands = probes.box.terms, probes.box.operands.left.format
    orders = chain(named_orders(terms), tile_orders(terms, 1))
    ways: list[dict[str, Any]] = [{"chunk": size} for size in (None, *range(2, terms), 1)]
    ways += [{"order": order} for order in orders if not order.reorders]
    for find in (_of_one_format, _of_two_formats):  # most accumulators have one format
        pairs: list[FloatAccumulator] = []
        for rounding in roundings:
            found = islice(find(probes, fraction, rounding), _MOST_FOUND)
            for each in found:  # two products are in one register, or in two
                if probes.agrees(each, 2) or probes.agrees(replace(each, chunk=1), 2):
                    pairs.append(each)
        for each, way in product(pairs, ways):
            is_tree = each.rounding.name == "rne" and each.format == SINGLE == operands
            if "order" in way and (is_tree or each.rounding.name == "sr"):
                continue  # masked probes find trees, and no accumulator draws in another order
            if probes.agrees(candidate := replace(each, **way), terms):
                yield candidate


def _seeded(probes: Probes, fraction: int) -> FloatRounding | None:
    """Returns the stochastic rounding that explains single products within any range."""
    if not probes.are_random:
        return None
    near_one = probes.near_one
    usual = FloatAccumulator(FloatFormat(8, fraction))
    ways = [usual, replace(usual, fused=True)]
    ways += [replace(usual, product=FloatFormat(8, bits)) for bits in range(SINGLE_FRACTION + 1)]
    for seed in range(_SEEDS):
        rounding = FloatRounding("sr", seed)
        for way in ways:
            candidate = replace(way, rounding=rounding)
            if probes.explains(candidate, *near_one):
                return rounding
    return None


def _of_one_format(
    probes: Probes, fraction: int, rounding: FloatRounding
) -> Iterator[FloatAccumulator]:
    """Yields accumulators that explain single products; products are exact, or like the sum."""
    for own in _by_range(fraction, rounding):
        for each in (*own, *(replace(each, fused=True) for each in own)):
            if probes.agrees(each, 1):
                yield each


def _by_range(fraction: int, rounding: FloatRounding) -> Iterator[list[FloatAccumulator]]:
    """Yields the accumulators of one format, together those that treat small and large alike."""
    for saturates, subnormals in product((False, True), get_args(Subnormals)):
        forms = _formats(fraction, subnormals)
        yield [FloatAccumulator(form, rounding, saturates) for form in forms]


def _of_two_formats(
    probes: Probes, fraction: int, rounding: FloatRounding
) -> Iterator[FloatAccumulator]:
    """Yields accumulators that explain single products, which have another format than sums."""
    single = _single_fraction(probes.box, fraction)
    widest = SINGLE_FRACTION if single == fraction else single
    for own in _by_range(fraction, rounding):
        like = max(own, key=lambda each: each.format.largest_exponent)
        for bits in range(single, widest + 1):
            forms = list(_formats(bits, like.format.subnormals))
            wide = max(forms, key=lambda form: form.largest_exponent)
            limits = [each for each in own if probes.agrees(replace(each, product=wide), 1)]
            for form in forms:
                if probes.agrees(replace(like, product=form), 1):
                    yield from (replace(each, product=form) for each in own if each.format != form)
                elif single == fraction:  # the sum limits the range
                    yield from (replace(each, product=form) for each in limits)
                else:
                    mixed = (replace(each, product=form) for each in own)
                    yield from (each for each in mixed if probes.agrees(each, 1))


def _presets(probes: Probes) -> Iterator[BlockFma]:
    """Yields the block multiply-adds of devices that explain the probes.

    Libraries part long sums, and add the parts in fp32: that is a promotion.
    """
    terms, known = probes.box.terms, []
    for preset in hardware.presets().values():
        sums_of = preset.accumulator
        for block in sums_of.accumulators.values() if isinstance(sums_of, ByOperands) else ():
            if not isinstance(block, BlockFma):
                continue
            if str(block.operand_format) != str(probes.box.operands.left.format):
                continue
            short = terms <= (block.promote or 0)
            known.append(replace(block, promote=None) if short else block)
    chains = [each for each in known if (each.rule, each.schedule) == ("aligned", "chain")]
    yield from (block for block in chains if probes.agrees(block, terms))
    for block in dict.fromkeys(chains):
        if block.promote is None and probes.agrees(block, 2):
            for size in range(block.length, terms, block.length):
                if probes.agrees(parted := replace(block, promote=size), terms):
                    yield parted
    others = (each for each in known if each not in chains)  # which exact arithmetic computes
    yield from (block for block in others if probes.agrees(block, terms))


def _blocks(probes: Probes, fraction: int) -> Iterator[BlockFma]:
    """Yields other block multiply-adds that explain the probes."""
    operands, terms = probes.box.operands.left.format, probes.box.terms
    assert operands is not None
    outs = [form for form in _formats(fraction, "kept") if form.exponent_bits in (5, 8)]
    outs = list(dict.fromkeys([*outs, SINGLE]))  # which a block of few bits may hide
    nearest = FloatRounding()
    options: list[dict[str, Any]] = [
        {"fraction": bits, "out": out, "rounding": rounding, "least": least}
        for least in _LEAST for out in outs for rounding in (FloatRounding("rz"), nearest)
        for bits in range(36)
    ]  # fmt: skip
    options += [{"fraction": 24, "rounding": nearest, "rule": rule} for rule in get_args(Rule)[1:]]
    for each in options:
        block = BlockFma(2, operands=operands, **each)
        if not probes.agrees(block, 2):
            continue
        for length in range(1, min(terms, 128) + 1):
            for promote in (None, *range(length, terms, length)):
                longer = replace(block, length=length, promote=promote)
                if probes.agrees(longer, terms):
                    yield longer
