"""Sums in float32 lanes, twice as many as of float64, where no step of them loses a bit.

`single_sums` says where that is. What is counted beside the sums does not depend on their
rounding, and is computed by other kernels.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tracer.accumulators.floats.kernels.arrays import have_places
from tracer.accumulators.floats.kernels.rounding import inlined
from tracer.accumulators.kernels.array_types import each, flat, kernel, several
from tracer.interpreter.compiled_code import entry

SINGLES = types.Array(types.float32, 2, "C", readonly=True)
VALUES, COUNTS = types.Array(types.float32, 2, "C"), types.Array(types.int32, 2, "C")
FORMAT = several(types.float32, 2)
"""1.5 times 2^23 units of 1; the least exponent, as a power."""
_FORMS = several(FORMAT, 2)
_ROW = types.Array(types.float32, 1, "C", readonly=True)
_LANES, _COUNTS = flat(types.float32), flat(types.int32)
_EXPONENT = np.int32(0x7F800000)
_MAGNITUDE = np.int32(0x7FFFFFFF)
_TERM = each(types.float32, types.int32)
"""A sum on its way, and the products that did not change it."""


def _bits_of(_: Any, number: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), code


def _float_of(_: Any, bits: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), code


def _fused(_: Any, a: Any, b: Any, c: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        single = ir.FloatType()
        kind = ir.FunctionType(single, (single, single, single))
        function = builder.module.declare_intrinsic("llvm.fma", [single], kind)
        return builder.call(function, arguments)

    return types.float32(types.float32, types.float32, types.float32), code


bits_of: Any = intrinsic(_bits_of)
"""The bits of a float32, int32."""
float_of: Any = intrinsic(_float_of)
"""The float32 with these bits, int32."""
fused: Any = intrinsic(_fused)
"""a b + c, rounded once."""


@entry(lambda values: True)
@kernel(each(types.int32, types.float32, types.float32)(_ROW))
def measured(values: Any) -> Any:
    """Returns the bits that any value has, the least magnitude other than 0, and the greatest.

    Infinity and NaN have greater magnitudes than numbers, as integers.
    """
    bits, least, greatest = np.int32(0), np.int32(_EXPONENT), np.int32(0)
    for i in range(values.size):
        magnitude = np.int32(bits_of(values[i]) & _MAGNITUDE)
        bits |= magnitude
        greatest = max(greatest, magnitude)
        least = min(least, magnitude if magnitude != 0 else _EXPONENT)
    return bits, float_of(least), float_of(greatest)


@inlined(types.float32(types.float32, types.float32, FORMAT))
def _at(number: float, power: float, form: Any) -> float:
    """Rounds to nearest the units of an exponent; their multiple that is added fits in a step."""
    return fused(power, -form[0], fused(power, form[0], number))


@inlined(types.float32(types.float32, FORMAT))
def nearest(number: float, form: Any) -> float:
    """Rounds to nearest, ties to even, as `rounding.nearest` does; 0 is +0."""
    power = float_of(np.int32(bits_of(number) & _EXPONENT))
    return _at(number, power if power > form[1] else form[1], form)


@inlined(types.float32(types.float32, FORMAT))
def _nearest_sum(number: float, form: Any) -> float:
    """Rounds a sum of multiples of the least unit: it is exact where it has few of them."""
    return _at(number, float_of(np.int32(bits_of(number) & _EXPONENT)), form)


@inlined(_TERM(_TERM, types.float32, FORMAT, FORMAT))
def _added(state: Any, product: float, form: Any, product_form: Any) -> Any:
    before, unchanged = state
    after = _nearest_sum(before + nearest(product, product_form), form)
    return after, np.int32(unchanged + np.int32(after == before))


@inlined(types.float32(types.float32, types.float32, types.boolean))
def _product(a: float, b: float, is_exact: bool) -> float:
    """a b, exact or rounded to odd: a second rounding, to 22 bits or fewer, is exact."""
    product = a * b
    if is_exact:
        return product
    error, bits = fused(a, b, -product), bits_of(product)
    towards_0 = np.int32(bits + ((bits_of(error) ^ bits) >> 31))  # less 1 where signs differ
    return float_of(np.int32(towards_0 | 1) if error != 0 else bits)


@inlined(types.void(_LANES, _COUNTS, _ROW, types.float32, _FORMS, types.boolean))
def _step_1(
    values: Any, unchanged: Any, row: Any, factor: float, forms: Any, is_exact: bool
) -> None:
    """Adds a term to each sum."""
    for i in range(values.size):
        state = (values[i], unchanged[i])
        state = _added(state, _product(factor, row[i], is_exact), forms[0], forms[1])
        values[i], unchanged[i] = state


@inlined(
    types.void(_LANES, _COUNTS, several(_ROW, 4), several(types.float32, 4), _FORMS, types.boolean)
)
def _step_4(
    values: Any, unchanged: Any, rows: Any, factors: Any, forms: Any, is_exact: bool
) -> None:
    """Adds 4 terms to each sum, which stays in a register."""
    a, b, c, d = rows
    form, product_form = forms
    for i in range(values.size):
        state = (values[i], unchanged[i])
        state = _added(state, _product(factors[0], a[i], is_exact), form, product_form)
        state = _added(state, _product(factors[1], b[i], is_exact), form, product_form)
        state = _added(state, _product(factors[2], c[i], is_exact), form, product_form)
        state = _added(state, _product(factors[3], d[i], is_exact), form, product_form)
        values[i], unchanged[i] = state


@inlined(types.void(_LANES, _COUNTS, _ROW, SINGLES, _FORMS, types.boolean))
def _add(sums: Any, counts: Any, factors: Any, right: Any, forms: Any, is_exact: bool) -> None:
    """Adds the terms of a row to its sums."""
    k, depth = 0, factors.size
    while k + 4 <= depth:
        rows = right[k], right[k + 1], right[k + 2], right[k + 3]
        four = factors[k], factors[k + 1], factors[k + 2], factors[k + 3]
        _step_4(sums, counts, rows, four, forms, is_exact)
        k += 4
    while k < depth:
        _step_1(sums, counts, right[k], factors[k], forms, is_exact)
        k += 1


@entry(
    lambda left, right, low, forms, is_exact, values, unchanged: have_places(
        left, right, low, values, unchanged
    )
)
@kernel(types.void(SINGLES, SINGLES, types.int64, _FORMS, types.boolean, VALUES, COUNTS))
def sequential(
    left: Any, right: Any, low: int, forms: Any, is_exact: bool, values: Any, unchanged: Any
) -> None:
    """Sums term after term, to nearest: rows `left` (M, K) times columns `right` (K, n).

    `low` is the first column of P. `forms` are those of sums and of products; `is_exact` says that
    float32 holds every product. `values` (M, P), float32, begin as the start in its format;
    `unchanged` (M, P), int32, begin with 0: products, those of 0 too, that leave a sum as it is.
    """
    high = low + right.shape[1]
    for row in range(len(left)):
        sums, counts = values[row, low:high], unchanged[row, low:high]
        if is_exact:  # each way has its own loop, in which the way is constant
            _add(sums, counts, left[row], right, forms, True)
        else:
            _add(sums, counts, left[row], right, forms, False)
