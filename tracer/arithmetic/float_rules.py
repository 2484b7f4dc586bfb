"""How a black box adds products of floats: its format, rounding, order, and blocks.

Candidates meet random single products first, then sums of two, then whole sums; only those that
agree so far go on. So formats, roundings and ways to multiply are parted from orders. Sums
in float32 or float64 in another order are trees, which masked probes find.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice, product
from typing import Any, get_args

import numpy as np

from tracer.accumulators import hardware
from tracer.accumulators.engine.float_arithmetic import sum_products
from tracer.accumulators.floats import casting, compiled_sums
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
from tracer.accumulators.spec.orders import Terms
from tracer.arithmetic import sums, trees
from tracer.arithmetic.black_box import BlackBox, Numbers
from tracer.arithmetic.finding import Finding
from tracer.arithmetic.order_trees import branches_of_program, drawn, order_of_tree
from tracer.arithmetic.rule import LEAST_RESULTS, NotKnown
from tracer.errors import UsageError
from tracer.support.types import Array

_SINGLES, _PAIRS, _WHOLE, _CHUNK = 600, 1500, 400, 1000
"""Random probes of one product, of two, and of all; those of a step of the verification."""
_MASKED, _MASK_EXPONENT, _MASK_RANGE = 200, 15, 37
"""Probes whose sum hides small terms; the exponent of their large ones, and what lies between."""
_FEW = 40
"""Probes that a candidate meets first."""
_REPEATS = 4
_SEEDS = 1 << 10
"""Seeds of stochastic rounding that are tried."""
_DIAGONAL = 32
"""Pairs of vectors whose products blocks compute together, to keep one of each row."""
_MOST_FOUND = 3000
"""Accumulators that go on from single products to sums of two: a second or two."""
_LEAST = (None, -133, -132, -21, -20, -19)
"""Least exponents of blocks that devices have."""
_SINGLE_FRACTION, _DOUBLE_FRACTION = 23, 52
_HALVES = (float_format("fp16"), float_format("bf16"))
"""Formats to which libraries round sums at last."""
Candidate = FloatAccumulator | BlockFma


def reveal(box: BlackBox, random: np.random.Generator) -> Finding:
    """Returns the rule of a sum of floats. Raises NotKnown if none fits."""
    fraction = _fraction(box)
    if fraction > _SINGLE_FRACTION:
        return _tree(box, random, np.float64)
    probes = _Probes(box, random)
    is_single = fraction == _SINGLE_FRACTION and box.operands.left.format == SINGLE
    reason = f"sums keep {fraction} bits of fraction; no accumulator explains all probes"
    results = (None, *(form for form in _HALVES if form.fraction_bits == fraction))
    for result in results if box.operands.left.format != SINGLE else ():
        for block in _presets(rounded := replace(probes, result=result)):
            if rounded.verifies(block):
                return Finding.of(block, box.terms, result=result)
    blocks = iter(()) if is_single else _blocks(probes, fraction)
    candidates: Iterator[Candidate] = chain(_accumulators(probes, fraction), blocks)
    for candidate in candidates:
        if probes.verifies(candidate):
            return Finding.of(candidate, box.terms)
        reason = f"{candidate} explains most probes, and not all"
    if is_single:
        return _tree(box, random, np.float32)
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
        fits = _are_operands(box, left, right)
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
    fits = _are_operands(box, left, right)
    if not fits.any():
        return most
    wrong = bits[fits][box.sums(left[fits], right[fits]) != left[fits, 0]]
    return int(wrong.min(initial=most + 1)) - 1


def _are_operands(box: BlackBox, left: Array, right: Array) -> Array:
    """Returns which rows consist of numbers that the operands hold."""
    fits = np.ones(len(left), bool)
    for side, values in ((box.operands.left, left), (box.operands.right, right)):
        assert side.format is not None
        fits &= (casting.cast(values, side.format) == values).all(1)
    return fits


@dataclass(frozen=True)
class _Probes:
    """Random probes of a black box, of one product, of two, and of all, with their sums.

    The box rounds sums to the format `result` at last; None keeps those of the accumulator.
    """

    box: BlackBox
    random: np.random.Generator
    result: FloatFormat | None = None
    sets: dict[int, tuple[Array, Array, Array]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for columns, count in ((1, _SINGLES), (2, _PAIRS), (self.box.terms, _WHOLE)):
            if columns not in self.sets:
                self.sets[columns] = self._probe(count, columns)
        if self.result is None and self.box.terms > 2:
            known = self.sets[self.box.terms]
            masks = self._sums(*masked(self.box, self.random, _MASKED))
            left, right, sums = (np.concatenate(both) for both in zip(known, masks, strict=True))
            self.sets[self.box.terms] = left, right, sums

    @property
    def are_random(self) -> bool:
        """Whether the same product alone gives other sums at other terms."""
        terms, sides = self.box.terms, (self.box.operands.left, self.box.operands.right)
        for _ in range(_REPEATS):
            left, right = (_numbers(each, self.random, np.zeros((1, 1), int)) for each in sides)
            right = np.ones((1, 1)) if self.box.is_plain_sum else right
            sums = self.box.sums(left * np.eye(terms), np.repeat(right, terms, 0) * np.ones(terms))
            if len(np.unique(sums)) > 1:
                return True
        return False

    @property
    def near_one(self) -> tuple[Array, Array, Array]:
        """Further probes of one product each, from 1/2 to 4, at every term in turn."""
        terms, sides = self.box.terms, (self.box.operands.left, self.box.operands.right)
        count = max(terms, _PAIRS // 5)
        powers = self.random.integers(-1, 1, (count, terms))
        left, right = (_numbers(side, self.random, powers * k) for k, side in enumerate(sides))
        left *= np.arange(count)[:, None] % terms == np.arange(terms)
        return self._sums(left, np.ones_like(right) if self.box.is_plain_sum else right)

    def _probe(self, count: int, columns: int) -> tuple[Array, Array, Array]:
        return self._sums(*draw(self.box, self.random, count, columns))

    def _sums(self, left: Array, right: Array) -> tuple[Array, Array, Array]:
        count, columns = left.shape
        whole = [np.zeros((count, self.box.terms)) for _ in range(2)]
        whole[0][:, :columns], whole[1][:, :columns] = left, right
        return left, right, self.box.sums(*whole)

    def agrees(self, candidate: Candidate, columns: int) -> bool:
        """Whether a candidate explains the probes of so many products."""
        left, right, outputs = self.sets[columns]
        if isinstance(candidate, BlockFma) and columns < self.box.terms:
            # the zeros of blocks that follow align the sum once more
            zeros = np.zeros((len(left), min(candidate.length, self.box.terms - columns)))
            left, right = (np.concatenate([side, zeros], 1) for side in (left, right))
        for part in (slice(0, _FEW), slice(_FEW, None)):
            if not self._explains(candidate, left[part], right[part], outputs[part]):
                return False
        return True

    def _explains(self, candidate: Candidate, left: Array, right: Array, outputs: Array) -> bool:
        sums = emulated(candidate, left, right)
        if self.result is not None:
            sums = casting.cast(sums, self.result)
        return bool(_equal(sums, outputs).all())

    def verifies(self, candidate: Candidate) -> bool:
        """Whether it explains 10,000 more random pairs of vectors."""
        for _ in range(LEAST_RESULTS // _CHUNK):
            if not self._explains(candidate, *self._probe(_CHUNK, self.box.terms)):
                return False
        return True


def draw(
    box: BlackBox, random: np.random.Generator, count: int, columns: int
) -> tuple[Array, Array]:
    """Returns random operands (count, columns), float64: numbers of their formats.

    Products of a row have exponents that are near each other, anywhere in a wide range; some of
    them cancel, some have few bits.
    """
    one, shape = (count, 1), (count, columns)
    is_wide = random.random(one) < 0.3
    base = np.where(is_wide, random.integers(-160, 136, one), random.integers(-12, 13, one))
    spread = random.choice([1, 3, 8, 14, 28], one)
    exponents = base + random.integers(-30, 31, shape) % (2 * spread) - spread
    share = exponents // 2 + random.integers(-3, 4, shape)
    if box.is_plain_sum:
        share = exponents
    out = []
    for side, power in ((box.operands.left, share), (box.operands.right, exponents - share)):
        out.append(_numbers(side, random, power))
    if box.is_plain_sum:
        out[1] = np.ones(shape)
    elif columns > 1:  # most products twice, once with the other sign
        twins = (random.random(one) < 0.4) & (random.random((count, columns // 2)) < 0.9)
        for values, sign in zip(out, (-1, 1), strict=True):
            values[:, 1::2] = np.where(
                twins, sign * values[:, : columns // 2 * 2 : 2], values[:, 1::2]
            )
    kept = random.random(shape) < np.where(random.random(one) < 0.15, 0.4, 1.1)
    return out[0] * kept, out[1]


def masked(box: BlackBox, random: np.random.Generator, count: int) -> tuple[Array, Array]:
    """Returns operands (count, terms), float64, of small products and two that are ± large.

    What is added while these two have not met is lost, even if the sum is rounded at last. So the
    order shows, which random products hide.
    """
    pairs = random.integers(0, box.terms, (count, 2))
    rows, out = np.arange(count), []
    for side, sign in ((box.operands.left, -1), (box.operands.right, 1)):
        assert side.format is not None
        top = min(side.format.largest_exponent, _MASK_EXPONENT)
        least = side.format.least_exponent - side.format.fraction_bits
        values = np.full((count, box.terms), 2.0 ** max(least, top - _MASK_RANGE))
        values[rows, pairs[:, 1]] = sign * 2.0**top
        values[rows, pairs[:, 0]] = 2.0**top
        out.append(values)
        if top - least >= _MASK_RANGE or box.is_plain_sum:  # one side tells enough
            out.append(np.ones(values.shape))
            break
    return out[0], out[1]


def _numbers(side: Numbers, random: np.random.Generator, powers: Array) -> Array:
    """Returns finite numbers of a format with about these exponents, of either sign."""
    form = side.format
    assert form is not None
    shape = powers.shape
    units = 1 << form.fraction_bits
    bits = np.select(
        [random.random(shape) < 0.2, random.random(shape) < 0.25],
        [np.zeros(shape, np.int64), units - (units >> random.integers(0, 24, shape)) // 1],
        random.integers(0, units, shape),
    )
    powers = np.clip(powers, form.least_exponent, form.largest_exponent)
    values = np.ldexp(1 + bits / units, powers) * random.choice([-1, 1], shape)
    values = casting.cast(values, form, saturates=True).astype(np.float64)
    return np.where(np.isfinite(values), values, 1.0)


def emulated(candidate: Candidate, left: Array, right: Array) -> Array:
    """Returns the sums (N) of products of rows (N, K) by the project's own emulation."""
    with np.errstate(all="ignore"):
        if isinstance(candidate, FloatAccumulator):
            products, ones = left * right, np.ones((left.shape[1], 1))
            indices = np.zeros((len(left), 1), np.int64)
            start = np.zeros((1, 1))
            if not candidate.is_plain:
                terms = Terms(left.shape[1])
                staged = compiled_sums.by_stages(products, ones, start, candidate, terms)
                return staged.values[:, 0]
            return compiled_sums.sequential(products, ones, start, candidate, 0, indices).values[
                :, 0
            ]
        parts = []
        for low in range(0, len(left), _DIAGONAL):
            rows, columns = left[low : low + _DIAGONAL], right[low : low + _DIAGONAL]
            square = sum_products(
                rows.astype(np.float32), columns.T.astype(np.float32), None, candidate
            )
            parts.append(np.diagonal(square.values).astype(np.float64))
        return np.concatenate(parts)


def _equal(first: Array, second: Array) -> Array:
    return np.asarray((first == second) | (np.isnan(first) & np.isnan(second)))


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


def _accumulators(probes: _Probes, fraction: int) -> Iterator[FloatAccumulator]:
    """Yields the float accumulators that explain the probes."""
    roundings = [FloatRounding(name) for name in ("rne", "rz", "floor")]
    pairs: list[FloatAccumulator] = []
    for find in (_of_one_format, _of_two_formats):  # most accumulators have one format
        for rounding in roundings if not pairs else ():
            found = islice(find(probes, fraction, rounding), _MOST_FOUND)
            pairs += [each for each in found if probes.agrees(each, 2)]
        if find is _of_one_format and not pairs and (by_seed := _seeded(probes, fraction)):
            roundings = [by_seed]
            pairs += [
                each for each in _of_one_format(probes, fraction, by_seed) if probes.agrees(each, 2)
            ]
    terms = probes.box.terms
    for each in pairs:
        for chunk in (None, *range(2, terms), 1):
            candidate = replace(each, chunk=chunk)
            if probes.agrees(candidate, terms):
                yield candidate


def _seeded(probes: _Probes, fraction: int) -> FloatRounding | None:
    """Returns the stochastic rounding that explains single products within any range."""
    if not probes.are_random:
        return None
    left, right, outputs = probes.near_one
    usual = FloatAccumulator(FloatFormat(8, fraction))
    ways = [usual, replace(usual, fused=True)]
    ways += [replace(usual, product=FloatFormat(8, bits)) for bits in range(_SINGLE_FRACTION + 1)]
    for seed in range(_SEEDS):
        rounding = FloatRounding("sr", seed)
        for way in ways:
            candidate = replace(way, rounding=rounding)
            if all(
                _equal(emulated(candidate, left[part], right[part]), outputs[part]).all()
                for part in (slice(0, _FEW), slice(_FEW, None))
            ):
                return rounding
    return None


def _of_one_format(
    probes: _Probes, fraction: int, rounding: FloatRounding
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
    probes: _Probes, fraction: int, rounding: FloatRounding
) -> Iterator[FloatAccumulator]:
    """Yields accumulators that explain single products, which have another format than sums."""
    single = _single_fraction(probes.box, fraction)
    widest = _SINGLE_FRACTION if single == fraction else single
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


def _presets(probes: _Probes) -> Iterator[BlockFma]:
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


def _blocks(probes: _Probes, fraction: int) -> Iterator[BlockFma]:
    """Yields other block multiply-adds that explain the probes."""
    operands, terms = probes.box.operands.left.format, probes.box.terms
    assert operands is not None
    outs = [form for form in _formats(fraction, "kept") if form.exponent_bits in (5, 8)]
    outs = list(dict.fromkeys([*outs, SINGLE]))  # which a block of few bits may hide
    options: list[dict[str, Any]] = [
        {"fraction": bits, "out": out, "rounding": rounding, "least": least}
        for least in _LEAST for out in outs for rounding in ("rz", "rne") for bits in range(36)
    ]  # fmt: skip
    options += [{"fraction": 24, "rounding": "rne", "rule": rule} for rule in get_args(Rule)[1:]]
    for each in options:
        block = BlockFma(2, operands=operands, **each)
        if not probes.agrees(block, 2):
            continue
        for length in range(1, min(terms, 128) + 1):
            for promote in (None, *range(length, terms, length)):
                longer = replace(block, length=length, promote=promote)
                if probes.agrees(longer, terms):
                    yield longer


def _tree(box: BlackBox, random: np.random.Generator, kind: type[Any]) -> Finding:
    """Returns a sum in float32 or float64 whose order is a tree of binary additions.

    Raises NotKnown if the order is none.
    """
    ones = np.ones((1, box.terms))
    is_single = kind == np.float32
    name = np.dtype(kind).name
    for rule in sums.sum_rules(lambda terms: float(box.sums(terms[None], ones)[0]), box.terms):
        if all(_explains(box, random, rule.facts, kind) for _ in range(LEAST_RESULTS // _CHUNK)):
            program = rule.facts["program"]
            branches = branches_of_program(program)
            tree = drawn(branches, box.terms)
            has_products = is_single and not box.is_plain_sum
            order = order_of_tree(branches, Terms(box.terms))
            if has_products and order is not None:
                accumulator = FloatAccumulator(SINGLE, fused=rule.facts["fused"], order=order)
                if _Probes(box, random).verifies(accumulator):
                    return replace(Finding.of(accumulator, box.terms), tree=tree)
            text = rule.text if has_products else trees.describe(program)
            return Finding(f"{text}, in {name}", None, {**rule.facts, "type": name}, tree)
    raise NotKnown(f"the order of its additions is a tree, but no arithmetic of {name} explains it")


def _explains(
    box: BlackBox, random: np.random.Generator, facts: dict[str, Any], kind: type[Any]
) -> bool:
    """Whether a tree explains random sums; most products are near each other in size."""
    left, right = draw(box, random, _CHUNK, box.terms)
    outputs = box.sums(left, right)
    if kind == np.float64:
        replayed = trees.sums_of(facts["program"], left * right)
    else:
        parts = []
        for low in range(0, _CHUNK, _DIAGONAL):
            rows, columns = (
                each[low : low + _DIAGONAL].astype(np.float32) for each in (left, right)
            )
            with np.errstate(all="ignore"):
                parts.append(
                    np.diagonal(sums.products(facts, rows, np.ascontiguousarray(columns.T)))
                )
        replayed = np.concatenate(parts).astype(np.float64)
    return bool((_equal(replayed, outputs) & (np.signbit(replayed) == np.signbit(outputs))).all())
