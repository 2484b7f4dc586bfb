"""How a black box adds products of floats: its format, rounding, order, and blocks.

Candidates meet random single products first, then sums of two, then whole sums; only those that
agree so far go on. So formats, roundings and ways to multiply are parted from orders. Sums in
float32 or float64 in another order are trees of binary additions, which masked probes find. Further
probes tell which products are rounded before they are added, and which registers are float64 in a
sum of float32. A sum may be rounded to a narrower format at last.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice, product
from typing import Any, get_args

import numpy as np

from tracer.accumulators import hardware
from tracer.accumulators.floats import casting
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
from tracer.arithmetic import float_probes, sums, trees
from tracer.arithmetic.black_box import BlackBox, Finding, order_words
from tracer.arithmetic.integer_search import named_orders, tile_orders
from tracer.arithmetic.kernel import LEAST_RESULTS, Facts, NotKnown
from tracer.errors import UsageError
from tracer.support.types import Array
from tracer.text import plural

_MASK, _RANGE = 100, 70
"""Exponent of the largest product of a mask, and how far the others may lie below it."""
_ROOT = 2.0**64
"""The square of this overflows in float32."""
_BEYOND_SINGLE = 2.0**-30
"""What float64 keeps beside 1, and float32 does not."""


def reveal_tree(
    box: BlackBox, random: np.random.Generator, kind: type[Any], result: FloatFormat | None = None
) -> Finding:
    """Returns a sum in float32 or float64 whose order is a tree of binary additions.

    The sum is rounded to `result` at last; None keeps it. Raises NotKnown if there is none.
    """
    program, rounded = _find_rounded(box, _find_program(box, result), kind)
    added = {step // 4 for step in program if step % 4 == trees.ADD}
    name = np.dtype(kind).name
    facts: dict[str, Any] = {"type": name}
    if kind == np.float32 and result is None and (wide := _wide_registers(box, program)):
        exact = [first for first in wide if not added & rounded & {*_register(program, first)}]
        facts |= {"wide": wide, "exact": exact}
    parted = []  # what is rounded begins a register, which is joined
    for step in program:
        is_rounded = step % 4 == trees.ADD and step // 4 in rounded and rounded != added
        parted += [step - trees.ADD + trees.BEGIN, trees.JOIN] if is_rounded else [step]
    for from_zero in (True, False):
        facts |= {"program": parted, "from_zero": from_zero, "fused": rounded != added}
        if all(
            _explains(box, random, facts, result)
            for _ in range(LEAST_RESULTS // float_probes.CHUNK)
        ):
            return _finding(box, random, program, facts, result)
    raise NotKnown(f"the order of its additions is a tree, but no arithmetic of {name} explains it")


def _finding(
    box: BlackBox, random: np.random.Generator, program: trees.Program, facts: dict[str, Any],
    result: FloatFormat | None,
) -> Finding:  # fmt: skip
    """Returns the finding of a tree: an accumulator that adds so, or the rule in words."""
    branches = trees.branches_of_program(program)
    tree, order = trees.drawn(branches, box.terms), trees.order_of_tree(branches, Terms(box.terms))
    parts = facts["program"].count(trees.JOIN) - program.count(trees.JOIN)
    if facts["type"] == "float32" and order is not None and not ("wide" in facts or parts):
        accumulator = FloatAccumulator(SINGLE, fused=facts["fused"], order=order)
        fraction = float_probes.SINGLE_FRACTION if result is None else result.fraction_bits
        if float_probes.Probes(box, random, fraction, result).verifies(accumulator):
            found = Finding.of(accumulator, box.terms, result=result)
            return replace(found, tree=tree, facts={**facts, **found.facts})
    text = trees.describe(program) if order is None else order_words(order)
    if box.operands.left.fraction_bits == np.finfo(facts["type"]).nmant and not box.is_plain_sum:
        some = f" (not of {plural(parts, 'product')})" if parts else ""
        text = f"{sums.WAYS[facts['fused'], facts['from_zero']]}{some}, {text}"
    text = f"{text}, in {facts['type']}"
    if "wide" in facts:
        inside = sum(len(_register(program, first)) for first in facts["wide"])
        which = "all sums" if inside == box.terms else f"the sums of {plural(inside, 'term')}"
        text = f"{text}, {which} in float64"
    if result is not None:
        facts["result"] = str(result)
        text = f"{text}; the last sum is rounded to {result}"
    return Finding(text, None, facts, tree)


def _find_program(box: BlackBox, result: FloatFormat | None) -> trees.Program:
    """Returns the order of additions. Raises NotKnown if it is no tree.

    Masks are products of the largest operands; all others are as small as these need. A narrow
    result counts few terms at once.
    """
    left, right = box.operands.left.format, box.operands.right.format
    assert left is not None and right is not None
    top = [min(form.largest_exponent, _MASK // 2) for form in (left, right)]
    bottom = [form.least_bit for form in (left, right)]
    if box.is_plain_sum:
        top, bottom = [min(left.largest_exponent, _MASK), 0], [left.least_bit, 0]
    unit = max(sum(bottom), sum(top) - _RANGE, -_MASK if result is None else result.least_bit)
    one = unit if box.is_plain_sum else max(bottom[0], min(unit - bottom[1], unit // 2))
    most = box.terms if result is None else 2 << result.fraction_bits

    def add(values: Array) -> float:
        masks, total = np.abs(values) > 1, 0.0
        for low in range(0, box.terms, most):
            is_counted = np.arange(box.terms) // most == low // most
            a = np.where(masks, np.sign(values) * 2.0 ** top[0], is_counted * 2.0**one)
            b = np.where(masks, 2.0 ** top[1], 2.0 ** (unit - one))
            b = np.ones_like(b) if box.is_plain_sum else b
            total += float(box.sums(a[None], b[None])[0])
        return float(np.ldexp(total, -unit))

    return trees.find_program(add, box.terms)


def _register(program: trees.Program, first: int) -> list[int]:
    """Returns the terms that the register which begins with the term `first` adds itself."""
    held: list[list[int]] = []
    for step in program:
        if step % 4 == trees.BEGIN:
            held.append([step // 4])
        elif step % 4 == trees.ADD:
            held[-1].append(step // 4)
        elif (ended := held.pop())[0] == first:
            return ended
    return held[0]


def _wide_registers(box: BlackBox, program: trees.Program) -> list[int]:
    """Returns the first terms of the registers that keep more than float32, if they are joined."""
    firsts = [step // 4 for step in program if step % 4 == trees.BEGIN]
    rows, asked = [], []
    for first in firsts:
        inside = _register(program, first)
        others = [*inside[2:3], *(step // 4 for step in program if step // 4 not in inside)]
        if len(inside) > 1 and others:
            row = np.zeros(box.terms)
            row[[*inside[:2], others[0]]] = 1, _BEYOND_SINGLE, -1
            rows.append(row)
            asked.append(first)
    if not rows:
        return []
    kept = box.sums(np.array(rows), np.ones((len(rows), box.terms))) == _BEYOND_SINGLE
    return [first for first, is_wide in zip(asked, kept, strict=True) if is_wide]


def _find_rounded(
    box: BlackBox, program: trees.Program, kind: type[Any]
) -> tuple[trees.Program, set[int]]:
    """Returns the terms whose product is rounded before it is added, and the program.

    One of the first two terms of a register may be added by FMA to the other: the program adds it.
    Products that no rounding changes count as rounded, unless they may overflow.
    """
    pairs: list[tuple[int, int, int]] = []
    held: list[list[int]] = []
    for at, step in enumerate(program):
        if step % 4 == trees.BEGIN:
            held.append([step // 4])
        elif step % 4 == trees.ADD:
            pairs.append((at, step // 4, held[-1][0]))
            if program[at - 1] % 4 == trees.BEGIN:
                pairs.append((at, held[-1][0], step // 4))
            held[-1].append(step // 4)
        else:
            held[-2:] = [held[-2] + held[-1]]
    rounded = {step // 4 for step in program if step % 4 == trees.ADD}
    if box.is_plain_sum:
        return program, rounded
    factor = 1 + 2.0 ** -(np.finfo(kind).nmant // 2 + 1)
    tells = (factor, 1 - 2 * factor, 1), (_ROOT, -_ROOT, _ROOT / 2)
    for factor, *other in tells if kind == np.float32 else tells[:1]:
        left, right = (np.zeros((len(pairs), box.terms)) for _ in range(2))
        for row, (_, term, before) in enumerate(pairs):
            left[row, term] = right[row, term] = factor
            left[row, before], right[row, before] = other
        if float_probes.are_operands(box, left[:1], right[:1])[0]:
            break
    else:
        return program, rounded
    outputs, program = box.sums(left, right), list(program)
    for (at, term, before), output in zip(pairs, outputs, strict=True):
        is_exact = output != 0 and np.isfinite(output)
        if is_exact and term in rounded:
            rounded.remove(term)
        elif is_exact and before in rounded:  # term began the register
            program[at - 1], program[at] = 4 * before + trees.BEGIN, 4 * term + trees.ADD
            rounded.remove(before)
    return program, rounded


def _explains(
    box: BlackBox, random: np.random.Generator, facts: dict[str, Any], result: FloatFormat | None
) -> bool:
    """Whether a tree explains random sums; most products are near each other in size."""
    draws = [float_probes.draw(box, random, float_probes.CHUNK, box.terms)]
    if result is not None:  # beside its ties
        draws.append(
            float_probes.draw(box, random, float_probes.CHUNK // 2, box.terms, result.fraction_bits)
        )
    left, right = (np.concatenate(each) for each in zip(*draws, strict=True))
    outputs = box.sums(left, right)
    replayed = sums_of(facts, left, right)
    if result is not None:
        replayed = casting.cast(replayed, result)
    same_sign = np.isnan(outputs) | (np.signbit(replayed) == np.signbit(outputs))
    return bool((float_probes.equal(replayed, outputs) & same_sign).all())


def sums_of(facts: Facts, left: Array, right: Array) -> Array:
    """Returns the sums (N) of products of rows (N, K) as the facts of a tree tell them."""
    left, right = (each.astype(facts["type"]) for each in (left, right))
    with np.errstate(all="ignore"):
        if "wide" not in facts:
            ends = range(float_probes.DIAGONAL, len(left), float_probes.DIAGONAL)
            blocks = zip(np.split(left, ends), np.split(right, ends), strict=True)
            squares = (sums.products(facts, rows, columns.T.copy()) for rows, columns in blocks)
            return np.concatenate([np.diagonal(square) for square in squares])
        held: list[Array] = []  # float32 and float64, whose sums are float64
        for step in facts["program"]:
            term, kind = divmod(step, 4)
            factors = left[:, term], right[:, term]
            rounded, exact = factors[0] * factors[1], factors[0].astype(float) * factors[1]
            if kind == trees.JOIN:
                last = held.pop()
                held[-1] = held[-1] + last
            elif kind == trees.BEGIN:
                wide = exact if term in facts["exact"] else rounded.astype(float)
                first = wide if term in facts["wide"] else rounded
                held.append(first + facts["from_zero"] * 0)
            elif not facts["fused"]:
                held[-1] = held[-1] + rounded
            elif held[-1].dtype == np.float64:
                held[-1] = held[-1] + exact
            else:  # rounded to odd, a sum keeps its second rounding (Boldo and Melquiond, 2008)
                total = exact + held[-1]
                back = total - exact
                error = (exact - (total - back)) + (held[-1] - back)
                is_even = (error != 0) & np.isfinite(error) & (total.view(np.int64) % 2 == 0)
                total = np.where(is_even, np.nextafter(total, np.copysign(np.inf, error)), total)
                held[-1] = total.astype(np.float32)
        return held[0].astype(np.float32)


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
    if fraction > float_probes.SINGLE_FRACTION:
        return reveal_tree(box, random, np.float64)
    probes = float_probes.Probes(box, random, fraction)
    is_single = fraction == float_probes.SINGLE_FRACTION and box.operands.left.format == SINGLE
    reason = f"sums keep {plural(fraction, 'bit')} of fraction; no accumulator explains all probes"
    least = -fraction - 2
    left, right = np.zeros((1, box.terms)), np.ones((1, box.terms))
    left[0, :3] = np.array([1, 2.0 ** (least if box.is_plain_sum else least // 2), -1])[: box.terms]
    right[0, 1] = 1 if box.is_plain_sum else 2.0 ** (least - least // 2)
    fits = float_probes.are_operands(box, left, right)[0]
    keeps_more = fits and box.sums(left, right)[0] == 2.0**least  # than it has at last
    results = (None, *(form for form in _HALVES if form.fraction_bits == fraction))
    for result in results if box.operands.left.format != SINGLE else ():
        for block in _presets(rounded := replace(probes, result=result)):
            if rounded.verifies(block):
                return Finding.of(block, box.terms, result=result)
        if result is not None and keeps_more:
            with suppress(NotKnown):
                return reveal_tree(box, random, np.float32, result)
    candidates: Iterator[float_probes.Candidate] = _accumulators(probes, fraction)
    if not is_single:  # products of a narrow range may hide bits of fraction
        further = _accumulators(probes, float_probes.SINGLE_FRACTION)
        candidates = chain(candidates, _blocks(probes, fraction), further)
    for candidate in candidates:
        if probes.verifies(candidate):
            return Finding.of(candidate, box.terms)
        reason = f"{candidate} explains most probes, and not all"
    if is_single:
        return reveal_tree(box, random, np.float32)
    raise NotKnown(reason)


def _fraction(box: BlackBox) -> int:
    """Returns the bits of fraction of a sum: the most with which 1 + 2^-bits is exact.

    Operands of few bits reach further down from a larger product than 1, or from several.
    """
    if box.terms == 1:
        raise NotKnown("a sum of one product has no order")
    most, bits = 0, np.arange(1, _DOUBLE_FRACTION + 1)
    counts = [1 << n for n in range((box.terms - 1).bit_length())]
    forms = (box.operands.left.format, box.operands.right.format)
    reach = sum(form.largest_exponent - form.least_bit for form in forms if form is not None)
    several = counts if reach < float_probes.SINGLE_FRACTION else counts[:1]
    for power, count, other in product((0, 1, 2, 3, 4, 8, 14), several, (None, box.terms - 1)):
        left, right = (np.zeros((len(bits), box.terms)) for _ in range(2))
        left[:, :count], right[:, :count] = 2.0 ** (power * (1 + box.is_plain_sum)), 2.0**power
        least = 2 * power + count.bit_length() - 1 - bits
        other = count if other is None else other
        left[:, other], right[:, other] = 2.0 ** (least // 2), 2.0 ** (least - least // 2)
        if box.is_plain_sum:
            left[:, other], right[:] = 2.0**least, 1
        fits = float_probes.are_operands(box, left, right)
        if fits.any():
            exact = box.sums(left[fits], right[fits]) == count * 4.0**power + 2.0 ** least[fits]
            most = max(most, int(bits[fits][exact].max(initial=0)))
    return most


def _single_fraction(box: BlackBox, most: int) -> int:
    """Returns the bits of fraction of one product, up to `most`, which are those of a sum."""
    bits = np.arange(1, most + 1)
    left = np.zeros((len(bits), box.terms))
    left[:, 0] = 1 + 2.0**-bits
    right = np.ones(left.shape)
    fits = float_probes.are_operands(box, left, right)
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


def _accumulators(probes: float_probes.Probes, fraction: int) -> Iterator[FloatAccumulator]:
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
        yield from (each for each in pairs if probes.agrees(each, terms))
        if roundings[0].name == "sr":  # no accumulator draws in another order
            ways = [way for way in ways if "order" not in way]
        for each, way in product(
            pairs, float_probes.likely_ways(probes, pairs[0], ways) if pairs else ()
        ):
            if "order" in way and each.rounding.name == "rne" and each.format == SINGLE == operands:
                continue  # masked probes find trees
            if probes.agrees(candidate := replace(each, **way), terms):
                yield candidate


def _seeded(probes: float_probes.Probes, fraction: int) -> FloatRounding | None:
    """Returns the stochastic rounding that explains single products within any range."""
    if not probes.are_random:
        return None
    near_one = probes.near_one
    usual = FloatAccumulator(FloatFormat(8, fraction))
    ways = [usual, replace(usual, fused=True)]
    ways += [
        replace(usual, product=FloatFormat(8, bits))
        for bits in range(float_probes.SINGLE_FRACTION + 1)
    ]
    for seed in range(_SEEDS):
        rounding = FloatRounding("sr", seed)
        for way in ways:
            candidate = replace(way, rounding=rounding)
            if probes.explains(candidate, *near_one):
                return rounding
    return None


def _of_one_format(
    probes: float_probes.Probes, fraction: int, rounding: FloatRounding
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
    probes: float_probes.Probes, fraction: int, rounding: FloatRounding
) -> Iterator[FloatAccumulator]:
    """Yields accumulators that explain single products, which have another format than sums."""
    single = _single_fraction(probes.box, fraction)
    widest = float_probes.SINGLE_FRACTION if single == fraction else single
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


def _presets(probes: float_probes.Probes) -> Iterator[BlockFma]:
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


def _blocks(probes: float_probes.Probes, fraction: int) -> Iterator[BlockFma]:
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
