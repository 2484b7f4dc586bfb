"""Random probes of a black box that adds products of floats, and candidates that explain them."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np

from tracer.accumulators.engine.float_arithmetic import sum_products
from tracer.accumulators.floats import casting, compiled_sums
from tracer.accumulators.spec.block_fma import BlockFma
from tracer.accumulators.spec.float_accumulator import FloatAccumulator, FloatFormat, Subnormals
from tracer.accumulators.spec.orders import Level, Terms, Tiles
from tracer.arithmetic.black_box import BlackBox, Numbers
from tracer.arithmetic.integer_search import tile_orders
from tracer.arithmetic.kernel import LEAST_RESULTS
from tracer.errors import UsageError
from tracer.support.types import Array

CHUNK = 1000
"""Random probes of a step of the verification."""
DIAGONAL = 32
"""Pairs of vectors whose products blocks compute together, to keep one of each row."""
SINGLE_FRACTION = 23
_SINGLES, _PAIRS, _WHOLE = 600, 1500, 400
"""Random probes of one product, of two, and of all."""
_BESIDE = 0.1
"""Share of probes with products just beside numbers of few bits."""
_ONE_SIGN = 0.1
"""Share of probes none of whose products is below 0."""
_MASKED, _MASK_EXPONENT, _MASK_RANGE = 200, 15, 37
"""Probes whose sum hides small terms; the exponent of their large ones, and what lies between."""
_TELLING = 64
"""Sums that tell two candidates apart, of which no more are tried."""
_AT_ENDS, _LEAST_SUMS = 4000, 0.1
"""Probes at the ends of a range, and the share of their products that are the least sum."""
_LIKELY, _LEVELS = 16, 3
"""Ways to add that are tried with each format of numbers; levels of tiles that masks tell."""
_FEW = 40
"""Probes that a candidate meets first."""
_REPEATS = 4
_TRIFLES = np.array([25, 18, 13])
"""Above the greatest h of a trifle of 2^-h, 2^-2h, 2^-3h: factors stay numbers of float32."""
Candidate = FloatAccumulator | BlockFma


def are_operands(box: BlackBox, left: Array, right: Array) -> Array:
    """Returns which rows consist of numbers that the operands hold."""
    fits = np.ones(len(left), bool)
    for side, values in ((box.operands.left, left), (box.operands.right, right)):
        assert side.format is not None
        if side.dtype != np.float64:
            fits &= (casting.cast(values, side.format) == values).all(1)
    return fits


@dataclass(frozen=True)
class Probes:
    """Random probes of a black box, of one product, of two, and of all, with their sums.

    Sums keep `fraction` bits of fraction. The box rounds them to the format `result` at last; None
    keeps those of the accumulator.
    """

    box: BlackBox
    random: np.random.Generator
    fraction: int
    result: FloatFormat | None = None
    sets: dict[int, tuple[Array, Array, Array]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        terms, random = self.box.terms, self.random
        for columns, count in ((1, _SINGLES), (2, _PAIRS), (terms, _WHOLE)):
            if columns in self.sets:
                continue
            left, right = self._draw(count, columns)
            if columns > 2:
                masks = masked(self.box, random, _MASKED)
                left, right = np.concatenate([left, masks[0]]), np.concatenate([right, masks[1]])
            self.sets[columns] = self._sums(left, right)

    @property
    def are_random(self) -> bool:
        """Whether the same product alone gives other sums at other terms."""
        terms, sides = self.box.terms, (self.box.operands.left, self.box.operands.right)
        for _ in range(_REPEATS):
            left, right = (_significands(each, self.random, (1, 1)) for each in sides)
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
        left, right = (
            _numbers(side, _significands(side, self.random, powers.shape), powers * k)
            for k, side in enumerate(sides)
        )
        left *= np.arange(count)[:, None] % terms == np.arange(terms)
        return self._sums(left, np.ones_like(right) if self.box.is_plain_sum else right)

    def _draw(self, count: int, columns: int) -> tuple[Array, Array]:
        """Returns so many random operands, and half as many whose products are beside ties."""
        some = draw(self.box, self.random, count, columns)
        ties = draw(self.box, self.random, count // 2, columns, self.fraction)
        return np.concatenate([some[0], ties[0]]), np.concatenate([some[1], ties[1]])

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
        return self.explains(candidate, left, right, outputs)

    def explains(self, candidate: Candidate, left: Array, right: Array, outputs: Array) -> bool:
        """Whether a candidate gives the outputs (N) of these operands (N, columns)."""
        return all(
            self._equal(candidate, left[part], right[part], outputs[part]).all()
            for part in (slice(0, _FEW), slice(_FEW, None))
        )

    def share(self, candidate: Candidate) -> float:
        """Returns the share of a quarter of the sums of all products that a candidate explains."""
        return float(self._equal(candidate, *(e[::4] for e in self.sets[self.box.terms])).mean())

    def _equal(self, candidate: Candidate, left: Array, right: Array, outputs: Array) -> Array:
        sums = emulated(candidate, left, right)
        return equal(sums if self.result is None else casting.cast(sums, self.result), outputs)

    def verifies(self, candidate: Candidate) -> bool:
        """Whether it explains 10,000 more random pairs of vectors, and those that tell others."""
        for _ in range(LEAST_RESULTS // CHUNK):
            if not self.explains(candidate, *self._sums(*self._draw(CHUNK, self.box.terms))):
                return False
        return not isinstance(candidate, FloatAccumulator) or all(
            self._is_told_from(candidate, rival) for rival in _rivals(candidate)
        )

    def _is_told_from(self, candidate: FloatAccumulator, rival: FloatAccumulator) -> bool:
        """Whether it explains sums that a rival does not, whose products have another range.

        Random products hardly tell: of a sum in 8 bits, one just below a range changes one sum of
        thousands. So they are drawn at the ends of the ranges, beside some that are the least
        sum, and the rows that tell are tried.
        """
        forms = [form for form in (candidate.product, rival.product) if form is not None]
        ends = [form.least_exponent for form in forms] + [forms[-1].largest_exponent]
        shape = _AT_ENDS, self.box.terms
        near = self.random.choice(ends, (_AT_ENDS, 1)) + self.random.integers(-2, 1, shape)
        is_least = self.random.random(shape) < _LEAST_SUMS
        near = np.where(is_least, candidate.format.least_exponent, near)
        left, right = draw(self.box, self.random, _AT_ENDS, self.box.terms, near=near)
        sums = [emulated(each, left, right) for each in (candidate, rival)]
        telling = np.flatnonzero(~equal(*sums))[:_TELLING]
        left, right = left[telling], right[telling]
        return not len(telling) or self.explains(candidate, *self._sums(left, right))


def likely_ways(
    probes: Probes, like: FloatAccumulator, ways: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Returns the ways in which an accumulator explains most sums, and tiles that masks tell."""
    likely = sorted(ways, key=lambda way: -probes.share(replace(like, **way)))[:_LIKELY]
    alone = [frozenset([term]) for term in range(probes.box.terms)]
    meetings = _find_meetings(probes, like)
    return likely + [{"order": each} for each in (_tiles(meetings, alone) if meetings else ())]


def _find_meetings(probes: Probes, like: FloatAccumulator) -> list[frozenset[int]]:
    """Returns for each term which are added to term 0 until it is; nothing if masks do not fit.

    Term 0 and the other one cancel. A small one is rounded where it is added to either alone.
    """
    box, form = probes.box, like.format
    powers = np.arange(form.largest_exponent, form.least_exponent, -1)
    pairs = np.ldexp([1, 1.25], np.column_stack([powers, powers - form.fraction_bits]))
    alone = emulated(like, pairs.reshape(-1, 1), np.ones((pairs.size, 1))).reshape(pairs.shape)
    fits = are_operands(box, pairs, np.ones_like(pairs)) & (alone == pairs).all(1)
    meetings, one = [], np.ones((box.terms, box.terms))
    for term in range(box.terms if fits.any() else 0):
        large, small = pairs[fits][0]
        values = np.diag(one[0] * small)
        values[:, [0, term]] = large, -large
        meetings.append(frozenset(np.flatnonzero(box.sums(values, one) != small).tolist()))
    return meetings


def _tiles(
    meetings: list[frozenset[int]], sums: list[frozenset[int]], levels: tuple[Level, ...] = ()
) -> Iterator[Tiles]:
    """Yields tiles with further levels on top of `sums` of these terms, that explain meetings."""

    def agrees(row: list[int]) -> bool:
        part = sums[row[0]]
        for k in row[1:]:
            part |= sums[k]
            if any(meetings[term] != part for term in sums[k]):
                return False
        return True

    if levels and agrees([*range(len(sums))]):
        yield Tiles(levels)
    for tile in tile_orders(len(sums), 1) if len(levels) < _LEVELS else ():
        rows = [row[row >= 0].tolist() for row in tile.levels[0].groups(len(sums))]
        if agrees(rows[0]):
            joined = [frozenset[int]().union(*(sums[k] for k in row)) for row in rows]
            yield from _tiles(meetings, joined, (*levels, *tile.levels))


def _rivals(candidate: FloatAccumulator) -> Iterator[FloatAccumulator]:
    """Yields accumulators whose products have another range, or other subnormal numbers."""
    form = candidate.product
    if form is None:
        return
    changes: list[dict[str, Any]] = [{"exponent_bits": n, "bias": None} for n in range(1, 9)]
    changes += [{"subnormals": each} for each in get_args(Subnormals)]
    for change in changes:
        with suppress(UsageError):  # it has no number, or is wider than float32
            rival = replace(candidate, product=replace(form, **change))
            if rival != candidate:
                yield rival


def draw(
    box: BlackBox, random: np.random.Generator, count: int, columns: int, bits: int | None = None,
    near: Array | None = None,
) -> tuple[Array, Array]:  # fmt: skip
    """Returns random operands (count, columns), float64: numbers of their formats.

    Products of a row have exponents that are near each other, anywhere in a wide range; some of
    them cancel, some have few bits. Some rows have no products below 0: those of few bits then
    have sums of many. Some rows have products just beside numbers of few bits, where sums are exact
    or tie: there it shows whether a product was rounded before. With `bits`, the fraction of sums,
    all rows are like that, and their exponents nearer to 0 and to each other. The exponents are
    about those of `near` (count, columns), if they are given.
    """
    one, shape = (count, 1), (count, columns)
    is_wide = random.random(one) < (0.3 if bits is None else 0)
    base = np.where(is_wide, random.integers(-160, 136, one), random.integers(-12, 13, one))
    spread = random.choice([1, 3, 8, 14, 28] if bits is None else [1, 3], one)
    if near is not None:
        base, spread = near, random.choice([1, 3], one)
    exponents = base + random.integers(-30, 31, shape) % (2 * spread) - spread
    share = exponents // 2 + random.integers(-3, 4, shape)
    if box.is_plain_sum:
        share = exponents
    is_beside = random.random(one) < (_BESIDE if bits is None else 1)
    least, most = (1, SINGLE_FRACTION) if bits is None else (bits, bits + 1)
    lengths = random.integers(least, most + 1, one)
    beside = _factors_beside(random, shape, lengths)
    out, sides = [], (box.operands.left, box.operands.right)
    for side, power, factors in zip(sides, (share, exponents - share), beside, strict=True):
        usual = _significands(side, random, shape)
        out.append(_numbers(side, np.where(is_beside, factors, usual), power))
    if box.is_plain_sum:
        out[1] = np.ones(shape)
    elif columns > 1:  # most products twice, once with the other sign
        twins = (random.random(one) < 0.4) & (random.random((count, columns // 2)) < 0.9)
        for values, sign in zip(out, (-1, 1), strict=True):
            values[:, 1::2] = np.where(
                twins, sign * values[:, : columns // 2 * 2 : 2], values[:, 1::2]
            )
    kept = random.random(shape) < np.where(random.random(one) < 0.15, 0.4, 1.1)
    has_signs = random.random(one) >= _ONE_SIGN
    left, right = (np.where(has_signs, values, np.abs(values)) for values in out)
    return left * kept, right


def _factors_beside(
    random: np.random.Generator, shape: tuple[int, ...], bits: Array
) -> tuple[Array, Array]:
    """Returns factors, float64, whose products are numbers with `bits` of fraction and a trifle.

    With x = ±2^-h, they are n (1 + x) · 1, n (1 + x)(1 - x) = n (1 - x²) and
    n (1 + x)(1 - x + x²) = n (1 + x³): beyond the bits of a product in float32, too.
    """
    number = 1 + np.floor(np.ldexp(random.random(shape), bits)) * np.ldexp(1.0, -bits)
    ways = random.integers(0, 3, shape)
    x = np.ldexp(random.choice([-1.0, 1.0], shape), -random.integers(2, _TRIFLES[ways]))
    other = np.choose(ways, [np.ones(shape), 1 - x, 1 - x + x * x])
    return random.choice([-1, 1], shape) * number * (1 + x), other


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


def _significands(side: Numbers, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Returns significands of a format, of either sign, some of few bits, some just below 2."""
    units = 1 << side.fraction_bits
    bits = np.select(
        [random.random(shape) < 0.2, random.random(shape) < 0.25],
        [np.zeros(shape, np.int64), units - (units >> random.integers(0, 24, shape)) // 1],
        random.integers(0, units, shape),
    )
    return np.asarray((1 + bits / units) * random.choice([-1, 1], shape))


def _numbers(side: Numbers, significands: Array, powers: Array) -> Array:
    """Returns finite numbers of a format with about these exponents."""
    form = side.format
    assert form is not None
    powers = np.clip(powers, form.least_exponent, form.largest_exponent)
    values = np.ldexp(significands, powers)
    if side.dtype != np.float64:
        values = casting.cast(values, form, saturates=True).astype(np.float64)
    return np.where(np.isfinite(values), values, 1.0)


def emulated(candidate: Candidate, left: Array, right: Array, bias: Array | None = None) -> Array:
    """Returns the sums (N) of products of rows (N, K), and a bias (N), by the own emulation."""
    bias = np.zeros(len(left)) if bias is None else bias
    with np.errstate(all="ignore"):
        if isinstance(candidate, FloatAccumulator):
            products, ones = left * right, np.ones((left.shape[1], 1))
            indices = np.zeros((len(left), 1), np.int64)
            start = bias[:, None]
            if not candidate.is_plain:
                terms = Terms(left.shape[1])
                staged = compiled_sums.by_stages(products, ones, start, candidate, terms)
                return staged.values[:, 0]
            return compiled_sums.sequential(products, ones, start, candidate, 0, indices).values[
                :, 0
            ]
        parts = []
        for part in (slice(low, low + DIAGONAL) for low in range(0, len(left), DIAGONAL)):
            rows, columns = left[part].astype(np.float32), right[part].T.astype(np.float32)
            square = sum_products(rows, columns, bias[part], candidate)
            parts.append(np.diagonal(square.values).astype(np.float64))
        return np.concatenate(parts)


def equal(first: Array, second: Array) -> Array:
    """Returns which numbers are equal; a NaN equals a NaN."""
    return np.asarray((first == second) | (np.isnan(first) & np.isnan(second)))
