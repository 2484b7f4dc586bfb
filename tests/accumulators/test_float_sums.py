"""Sums in float accumulators, against loops of numpy and exact fractions."""

from fractions import Fraction
from functools import reduce

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.accumulators.float_loops import summed
from tests.examples import examples
from tracer.accumulators.engine.float_arithmetic import sum_products
from tracer.accumulators.spec.float_accumulator import FloatFormat, float_accumulator
from tracer.accumulators.spec.orders import Terms, named
from tracer.accumulators.spec.policy import parse_policy
from tracer.errors import UsageError


def operands(dtype, rows=5, depth=60, columns=7, seed=1, scale=1.0):
    random = np.random.default_rng(seed)
    left, right = random.normal(size=(rows, depth)), random.normal(size=(depth, columns))
    return (left * scale).astype(dtype), right.astype(dtype)


@pytest.mark.parametrize(
    ("spelling", "dtype"),
    [("fp16", np.float16), ("fp32", np.float32), ("bf16", ml_dtypes.bfloat16)],
)
@pytest.mark.parametrize("scale", [1.0, 1e4, 1e-5])
def test_sums_are_those_of_a_loop_in_the_same_type(spelling, dtype, scale):
    left, right = operands(dtype, scale=scale)
    start = np.arange(5).astype(dtype)
    want = np.repeat(start[:, None], 7, axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(left.shape[1]):
            want = want + left[:, k, None] * right[None, k]
    sums = sum_products(left, right, start, float_accumulator(spelling))
    np.testing.assert_array_equal(sums.values, want.astype(np.float32))
    assert sums.values.dtype == np.float32


def nearest(value, form):
    return round(value / unit(value, form)) * unit(value, form)  # round takes the even one of two


def towards_0(value, form):
    return int(value / unit(value, form)) * unit(value, form)


def down(value, form):
    return value // unit(value, form) * unit(value, form)


def unit(value, form):
    exponent = form.least_exponent
    while abs(value) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    return Fraction(2) ** (exponent - form.fraction_bits)


FRACTIONS = {"rne": nearest, "rz": towards_0, "floor": down}
formats = st.builds(FloatFormat, st.integers(4, 8), st.integers(1, 22))


@examples(150)
@given(
    form=formats, rule=st.sampled_from(sorted(FRACTIONS)), fused=st.booleans(),
    chunk=st.sampled_from([None, 1, 4]), seed=st.integers(0, 1000), spread=st.integers(0, 20),
)  # fmt: skip
def test_each_step_rounds_the_exact_sum_once(form, rule, fused, chunk, seed, spread):
    """Magnitudes far apart, where sums in float64 would be rounded twice."""
    random = np.random.default_rng(seed)
    left, right = (
        (random.normal(size=size) * np.exp2(random.integers(-spread, 1, size))).astype(np.float32)
        for size in ((1, 9), (9, 1))
    )
    left, right = left / 16, right / 16  # no sum leaves the range of 4 bits of exponent
    options = [rule, *["fused"] * fused, *([] if chunk is None else [f"chunk={chunk}"])]
    sums = sum_products(left, right, None, float_accumulator(f"{form}({','.join(options)})"))
    q = FRACTIONS[rule]
    total = Fraction(0)
    for first in range(0, 9, chunk or 9):
        value = Fraction(0)
        for k in range(first, min(first + (chunk or 9), 9)):
            product = Fraction(float(left[0, k])) * Fraction(float(right[k, 0]))
            value = q(value + (product if fused else q(product, form)), form)
        total = q(total + value, form) if chunk else value
    assert Fraction(float(sums.values[0, 0])) == total
    assert not sums.overflowed.any()


def test_sums_in_float64_would_be_rounded_twice():
    """1 + 2^-11 + 2^-60 is above the middle of two numbers of tf32, which no float64 shows."""
    left, right = np.float32([[2.0**-30, 1]]), np.float32([[2.0**-30], [1 + 2.0**-11]])
    assert sum_products(left, right, None, float_accumulator("tf32(fused)")).values == 1 + 2.0**-10
    assert (
        sum_products(-left, right, None, float_accumulator("tf32(fused)")).values == -1 - 2.0**-10
    )
    tie = sum_products(left[:, 1:], right[1:], None, float_accumulator("tf32(fused)"))
    assert tie.values == 1
    below = np.float32([[1, -(2.0**-60)]]), np.float32([[1], [2.0**-60]])
    for rule, want in {"rz": 1 - 2.0**-24, "floor": 1 - 2.0**-24, "fused": 1}.items():
        assert sum_products(*below, None, float_accumulator(f"fp32({rule})")).values == want


def test_an_overflow_is_infinite_saturated_or_nan():
    left, right = np.float32([[300, 300], [1, 1]]), np.float32([[1, 200], [2, 1]])
    for spelling, want in [("fp8-e4m3", np.nan), ("fp8-e4m3(saturate)", 448),
                           ("e4m3", np.inf), ("e4m3f", 480)]:  # fmt: skip
        sums = sum_products(left, right, None, float_accumulator(spelling))
        np.testing.assert_array_equal(sums.values[0], [want, want])
        np.testing.assert_array_equal(sums.overflowed, [[True, True], [False, False]])


def test_a_term_that_changes_nothing_is_swamped():
    left, right = np.float32([[4096, 1, 0, 1, -4096, 1]]), np.ones((6, 1), np.float32)
    sums = sum_products(left, right, None, float_accumulator("fp16"))
    # 4096 + 1 is a tie, to 4096; later 0 + 1 is 1
    assert (sums.values, sums.swamped, sums.terms, sums.exact) == (1, 2, 5, 3)


def test_the_accumulator_of_lba_is_one_of_them():
    """M7E4 of arXiv 2401.14110: products of bias 12, sums of bias 10, towards 0, no subnormals."""
    lba = float_accumulator("e4m7f:10(rz,no-subnormals,saturate,product=e4m7f:12,chunk=16)")
    assert lba.format.largest == 63.75
    assert lba.product.largest == 15.9375
    assert lba.format.least_normal == 2.0**-10
    ones = np.ones((64, 1), np.float32)
    assert sum_products(np.full((1, 64), 20.0), ones, None, lba).values == 63.75  # 15.9375 at most
    assert sum_products(np.full((1, 64), 2.0**-13), ones, None, lba).values == 0  # each underflows
    assert sum_products(np.full((1, 64), 2.0**-10), ones, None, lba).values == 2.0**-4
    left, right = operands(np.float32)
    values = sum_products(left, right, None, lba).values
    assert np.abs(values - left @ right).max() < 1


def test_stochastic_sums_depend_on_no_block_and_are_right_on_average():
    left, right = operands(np.float32, rows=4, depth=50, columns=300)
    accumulator = float_accumulator("e5m4(sr=3,fused)")
    whole = sum_products(left, right, None, accumulator, seed=5)
    parts = [
        sum_products(left, right[:, c : c + 77], None, accumulator, 5, 4 * c).values
        for c in range(0, 300, 77)
    ]
    np.testing.assert_array_equal(np.concatenate(parts, 1), whole.values)
    other = sum_products(left, right, None, accumulator, seed=6)
    assert (other.values != whole.values).mean() > 0.5
    same = np.repeat(right[:, :1], 4000, axis=1)
    sums = sum_products(left, same, None, accumulator)
    spread = sums.values.std(1) / np.sqrt(4000)
    np.testing.assert_array_less(abs(sums.values.mean(1) - sums.exact[:, 0]), 5 * spread)


@pytest.mark.parametrize(
    "spelling",
    ["fp16", "fp16(rz)", "e6m9(sr=7,chunk=64)", "bf16(fused)", "e4m7:10", "fp8-e4m3(saturate)",
     "e4m7f:10(rz,no-subnormals,saturate,product=e4m7f:12,chunk=16)", "fp16(flush)"],
)  # fmt: skip
def test_an_accumulator_is_spelled_as_it_is_read(spelling):
    assert str(float_accumulator(spelling)) == spelling


@pytest.mark.parametrize(
    ("spelling", "what"),
    [("fp16(up)", "'up' is not an option"), ("fp16(chunk=0)", "chunk of 0"),
     ("fp16(rz,sr=1)", "sets the rounding again"), ("fp16(chunk=x)", "'chunk=x' is not an option"),
     ("fp16(fused,product=bf16)", "fused product"), ("fp16(rz", "not a float accumulator")],
)  # fmt: skip
def test_other_accumulators_are_refused(spelling, what):
    with pytest.raises(UsageError, match=what):
        float_accumulator(spelling)


@pytest.mark.parametrize(
    "order", ["tree", "chunked(5)", "lanes(4)", "channelwise", "positionwise(2,chunked(6))"]
)
@pytest.mark.parametrize("bias", ["first", "last"])
def test_another_order_is_a_loop_over_its_groups(order, bias):
    """In numpy's float16, which rounds each product and each sum."""
    random, terms = np.random.default_rng(4), Terms(4, (3,))
    left, right, start = (random.standard_normal(shape).astype(np.float16)
                          for shape in ((3, 12), (12, 5), (3,)))  # fmt: skip
    accumulator = float_accumulator(f"fp16(order={order},bias={bias})")
    sums = sum_products(left, right, start, accumulator, terms=terms)
    for m, p in np.ndindex(3, 5):
        values = list(left[m] * right[:, p])
        stages = named(order).stages(terms)
        for number, stage in enumerate(stages):
            is_last = number == len(stages) - 1 and bias == "first"
            values = [
                reduce(np.float16.__add__, (values[k] for k in row if k >= 0),
                       start[m] if is_last else np.float16(0))
                for row in stage.groups.tolist()
            ]  # fmt: skip
        total = values[0] if bias == "first" else values[0] + start[m]
        assert sums.values[m, p] == total
        assert sums.terms[m, p] == 12


@pytest.mark.parametrize(
    ("spelling", "reason"),
    [
        ("fp16(order=maddubs)", "order maddubs"),
        ("fp16(order=sorted)", "order sorted"),
        ("fp16(chunk=4,order=tree)", "with a chunk"),
        ("fp16(sr=1,order=tree)", "with stochastic rounding"),
        ("fp16(bias=middle)", "bias 'middle'"),
        ("fp16(order=)", "not an order"),
    ],
)
def test_orders_that_floats_do_not_have_are_refused(spelling, reason):
    with pytest.raises(UsageError, match=reason):
        float_accumulator(spelling)


@pytest.mark.parametrize(("inner", "dtype"), [("fp16", np.float16), ("bf16", ml_dtypes.bfloat16)])
@pytest.mark.parametrize("tile", [3, 8, 40])
@pytest.mark.parametrize("bias", ["first", "last"])
def test_narrow_floats_of_tiles_are_added_in_a_wide_one(inner, dtype, tile, bias):
    random = np.random.default_rng(tile)
    left, right = (random.normal(0, 3, shape).astype(np.float32) for shape in ((2, 40), (40, 5)))
    start = random.normal(0, 3, 2).astype(np.float32)
    accumulator = float_accumulator(f"fp32(order=tiles({tile}:{inner}),bias={bias})")
    (two_level,) = parse_policy(f"two-level({inner},{tile},fp32)").accumulators
    assert two_level.value == float_accumulator(f"fp32(order=tiles({tile}:{inner}))")
    total = np.zeros((2, 5), np.float32)
    if bias == "first":
        total += start[:, None]
    for first in range(0, 40, tile):
        part = slice(first, first + tile)
        total += summed(left[:, part], right[part], None, dtype).astype(np.float32)
    if bias == "last":
        total += start[:, None]
    state = sum_products(left, right, start, accumulator)
    np.testing.assert_array_equal(state.values, total)
    assert (state.terms.sum(), state.overflowed.any()) == (400, False)


def test_a_tile_that_overflows_is_counted_and_may_saturate():
    ones, large = np.ones((1, 4), np.float32), np.full((4, 1), 60000, np.float32)
    for word, value in (("", np.inf), (":saturate", 2 * 65504)):
        accumulator = float_accumulator(f"fp32(order=tiles(2:fp16{word}))")
        state = sum_products(ones, large, None, accumulator)
        assert (state.values.item(), state.overflowed.item()) == (value, True)


@pytest.mark.parametrize(
    ("spelling", "message"),
    [
        ("fp32(order=tiles(8:fp99))", "'fp99' is not a float format"),
        ("fp32(order=tiles(8:16))", "in float registers"),
        ("fp32(order=tiles(spill=8:16))", "in float registers"),
        ("18(order=tiles(8:fp16))", "of an accumulator of integers"),
        ("18(order=tiles(8:16:fp16))", "is not a level"),
        ("two-level(fp16,8,16)", "'16' is not a float format"),
    ],
)
def test_levels_of_another_kind_are_refused(spelling, message):
    with pytest.raises(UsageError, match=message):
        parse_policy(spelling)
