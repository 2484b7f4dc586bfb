"""Sums term after term, as `floats.compiled_sums.sequential` describes them."""

from typing import Any

import numpy as np

from tracer.accumulators.floats import kernels
from tracer.accumulators.floats.kernels.lanes import (
    FLOOR,
    FORMAT,
    FORMS,
    LANES,
    OUTS,
    RNE,
    ROW,
    RZ,
    SR,
    SUMS,
    TABLE,
    TERM,
    by_draw,
    down,
    have_places,
    is_outside,
    limited,
    nearest,
    odd_sum,
    towards_0,
)
from tracer.interpreter.compiled_code import entry
from tracer.interpreter.kernels import argument_types as types
from tracer.interpreter.kernels.argument_types import (
    free,
    helper,
    inlined,
    new_doubles,
    new_integers,
    repeat_type,
    tuple_type,
    vector_type,
)

_WORD = np.uint64(kernels.STEP_STEP)
_BITS, _BITS_OF_ALL = vector_type(types.uint64), types.Array(types.uint64, 2, "C")
_PART, _FOUR = repeat_type(types.int64, 2), repeat_type(types.float64, 4)
_WAY = tuple_type(types.int64, types.boolean, types.boolean, types.boolean)
"""The rule; whether a product is added without a format of its own; whether a sum must be rounded
to odd first; whether nothing can overflow or is flushed. Each way has a loop of its own, in which
it is constant."""


@inlined(types.float64(types.float64, FORMAT, types.int64, types.uint64))
def _rounded(number: float, form: Any, rule: int, words: int) -> float:
    if rule == RNE:
        return nearest(number, form)
    if rule == RZ:
        return towards_0(number, form)
    if rule == FLOOR:
        return down(number, form)
    return by_draw(number, form, words)


@inlined(types.void(types.float64, ROW, SUMS, _BITS, types.int64, FORMS, _WAY))
def _step(factor: float, row: Any, sums: Any, bits: Any, k: int, forms: Any, way: Any) -> None:
    """Adds term k to the sums of some columns of a row."""
    rule, is_fused, is_odd, _ = way
    values, exact, terms, swamped, overflowed = sums
    form, product_form = forms
    first, second = np.uint64(2 * k + 1) * _WORD, np.uint64(2 * k + 2) * _WORD
    for i in range(values.size):
        product, before = factor * row[i], values[i]
        term, outside = product, False
        if not is_fused:
            term = _rounded(product, product_form, rule, bits[i] + first)
            outside = is_outside(term, product_form)
            term = limited(term, product_form)
        after = odd_sum(before, term) if is_odd else before + term
        after = _rounded(after, form, rule, bits[i] + second)
        outside |= is_outside(after, form)
        after = limited(after, form)
        values[i] = after
        exact[i] += product
        terms[i] += product != 0
        swamped[i] += (product != 0) & (after == before)
        overflowed[i] |= outside


@inlined(TERM(TERM, types.float64, FORMS, _WAY))
def _added(state: Any, product: float, forms: Any, way: Any) -> Any:
    """Adds a product where nothing can overflow or is flushed."""
    rule, is_fused, is_odd, _ = way
    before, exact, terms, swamped = state
    unused = np.uint64(0)
    term = product if is_fused else _rounded(product, forms[1], rule, unused)
    after = odd_sum(before, term) if is_odd else before + term
    after = _rounded(after, forms[0], rule, unused) + 0.0  # -0 becomes +0
    is_term = product != 0
    return after, exact + product, terms + is_term, swamped + (is_term & (after == before))


@inlined(types.void(SUMS, repeat_type(ROW, 4), _FOUR, FORMS, _WAY))
def _step_4(sums: Any, rows: Any, factors: Any, forms: Any, way: Any) -> None:
    """Adds 4 terms to each sum, which stays in a register."""
    a, b, c, d = rows
    values, exact, terms, swamped, _ = sums
    for i in range(values.size):
        state = (values[i], exact[i], terms[i], swamped[i])
        state = _added(state, factors[0] * a[i], forms, way)
        state = _added(state, factors[1] * b[i], forms, way)
        state = _added(state, factors[2] * c[i], forms, way)
        state = _added(state, factors[3] * d[i], forms, way)
        values[i], exact[i], terms[i], swamped[i] = state


@inlined(types.int64(_PART, ROW, TABLE, SUMS, FORMS, _WAY))
def _fours(part: Any, left: Any, right: Any, sums: Any, forms: Any, way: Any) -> int:
    """Adds terms by fours; returns the first that is left."""
    k, end = part
    while k + 4 <= end:
        rows = right[k], right[k + 1], right[k + 2], right[k + 3]
        four = left[k], left[k + 1], left[k + 2], left[k + 3]
        _step_4(sums, rows, four, forms, way)
        k += 4
    return k


@helper(types.int64(_PART, ROW, TABLE, SUMS, FORMS, _WAY))
def _usual_terms(part: Any, left: Any, right: Any, sums: Any, forms: Any, way: Any) -> int:
    """Adds terms by fours, where nothing can overflow; returns the first that is left."""
    rule, is_fused, is_odd, _ = way
    if rule == RNE and is_fused:
        return _fours(part, left, right, sums, forms, (RNE, True, True, True))
    if rule == RNE and is_odd:
        return _fours(part, left, right, sums, forms, (RNE, False, True, True))
    if rule == RNE:
        return _fours(part, left, right, sums, forms, (RNE, False, False, True))
    if rule == RZ and is_fused:
        return _fours(part, left, right, sums, forms, (RZ, True, True, True))
    if rule == RZ:
        return _fours(part, left, right, sums, forms, (RZ, False, True, True))
    return part[0]


@inlined(types.void(_PART, ROW, TABLE, SUMS, _BITS, FORMS, _WAY))
def _steps(part: Any, left: Any, right: Any, sums: Any, bits: Any, forms: Any, way: Any) -> None:
    for k in range(part[0], part[1]):
        _step(left[k], right[k], sums, bits, k, forms, way)


@helper(types.void(_PART, ROW, TABLE, SUMS, _BITS, FORMS, _WAY))
def _nearest_terms(
    part: Any, left: Any, right: Any, sums: Any, bits: Any, forms: Any, way: Any
) -> None:
    """`_terms` to nearest."""
    if way[1]:
        _steps(part, left, right, sums, bits, forms, (RNE, True, True, False))
    elif way[2]:
        _steps(part, left, right, sums, bits, forms, (RNE, False, True, False))
    else:
        _steps(part, left, right, sums, bits, forms, (RNE, False, False, False))


@helper(types.void(_PART, ROW, TABLE, SUMS, _BITS, FORMS, _WAY))
def _terms(part: Any, left: Any, right: Any, sums: Any, bits: Any, forms: Any, way: Any) -> None:
    """Adds the terms of a part, from its beginning to its end, to the sums of a row."""
    rule, is_fused, _, is_usual = way
    if is_usual:
        part = _usual_terms(part, left, right, sums, forms, way), part[1]
    if rule == RNE:
        _nearest_terms(part, left, right, sums, bits, forms, way)
    elif rule == SR:
        _steps(part, left, right, sums, bits, forms, (SR, is_fused, True, False))
    elif rule == RZ:
        _steps(part, left, right, sums, bits, forms, (RZ, is_fused, True, False))
    else:
        _steps(part, left, right, sums, bits, forms, (FLOOR, is_fused, True, False))


@helper(types.void(LANES, LANES, SUMS, _BITS, types.int64, FORMS, types.int64))
def _join(total: Any, values: Any, sums: Any, bits: Any, step: int, forms: Any, rule: int) -> None:
    """Adds to each total a value, and rounds it."""
    words, form = np.uint64(step + 1) * _WORD, forms[0]
    for i in range(total.size):
        after = _rounded(odd_sum(total[i], values[i]), form, rule, bits[i] + words)
        sums[4][i] |= is_outside(after, form)
        total[i] = limited(after, form)


@entry(lambda left, right, low, bits, forms, way, chunk, outs: (
        have_places(left, right, low, *outs)
        and chunk >= 0
        and bits.shape in (outs[0].shape, (len(left), 0))
    ),
    types.void(TABLE, TABLE, types.int64, _BITS_OF_ALL, FORMS, _WAY, types.int64, OUTS)
)  # fmt: skip
def run(
    left: Any, right: Any, low: int, bits: Any, forms: Any, way: Any, chunk: int, outs: Any
) -> None:
    """Sums of rows `left` (M, K) times columns `right` (K, n), float64; `low` is the first of P.

    `outs` (M, P): values, which begin as the start, exact sums, float64, which do too, terms other
    than 0, swamped ones and overflows, int64, which begin with 0. `bits` (M, P), uint64, are those
    of `casting.draw_words`, or (M, 0) for rules that draw nothing. `forms` are the formats of sums
    and of products. A `chunk` of 0 is none.
    """
    rule = way[0]
    depth, high = left.shape[1], low + right.shape[1]
    zeros, inner = new_doubles(high - low), new_doubles(high - low)
    unused = new_integers(high - low)
    for row in range(len(left)):
        total, exact = outs[0][row, low:high], outs[1][row, low:high]
        counts = outs[2][row, low:high], outs[3][row, low:high], outs[4][row, low:high]
        words = bits[row, low:high] if bits.shape[1] else unused.view(np.uint64)
        sums = (total, exact, counts[0], counts[1], counts[2])
        _join(total, zeros, sums, words, 2 * depth, forms, rule)
        if not chunk:
            part = 0, depth
            _terms(part, left[row], right, sums, words, forms, way)
            continue
        inside = (inner, exact, counts[0], counts[1], counts[2])
        for number in range(-(-depth // chunk)):
            part = number * chunk, min(number * chunk + chunk, depth)
            inner[:] = 0.0
            _terms(part, left[row], right, inside, words, forms, way)
            _join(total, inner, sums, words, 2 * depth + 1 + number, forms, rule)
    free(zeros)
    free(inner)
    free(unused)
