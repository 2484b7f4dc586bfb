"""Matrix cores of AMD, against exact fractions and numpy's float32."""

from fractions import Fraction
from math import floor

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.hardware.exact import exponent, rounded
from tracer.accumulators.engine.float_arithmetic import sum_products
from tracer.accumulators.hardware.matrix_cores import AMD

FP32 = 23, -126, 2**128 - 2**104, True
TYPES = {
    "fp16": np.float16, "bf16": ml_dtypes.bfloat16,
    "fp8-e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "fp8-e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}  # fmt: skip
LEAST = {"fp16": -14, "bf16": -126, "fp8-e4m3fnuz": -7, "fp8-e5m2fnuz": -15}
CASES = [(card, form) for card, rows in AMD.items() for form in rows if form in TYPES]


def total(card, form, left, right, start=0.0):
    sides = np.array([left], np.float32), np.array(right, np.float32)[:, None]
    return sum_products(*sides, np.float32([start]), AMD[card][form]).values[0, 0]


def mi100(left, right, start, form):
    return sum((a * b for a, b in zip(left, right, strict=True)), start)


def aligned(left, right, least):
    pairs = [(a * b, exponent(a, least) + exponent(b, least))
             for a, b in zip(left, right, strict=True) if a and b]  # fmt: skip
    if not pairs:
        return Fraction(0), None
    top = max(power for _, power in pairs)
    unit = Fraction(2) ** (top - 24)
    return sum(int(value / unit) for value, _ in pairs) * unit, top


def down(value, power):
    unit = Fraction(2) ** power
    return floor(value / unit) * unit


def with_start(value, top, start):
    powers = [each for each in (top, exponent(start, -126) if start else None) if each is not None]
    if not powers:
        return Fraction(0)
    return down(value, max(powers) - 31) + down(start, max(powers) - 24)


def mi300x(left, right, start, form):
    if "fp8" not in form:
        return with_start(*aligned(left, right, LEAST[form]), start)
    parts = [aligned(left[k::2], right[k::2], LEAST[form]) for k in (0, 1)]
    tops = [top for _, top in parts if top is not None]
    if not tops:
        return start
    value = sum(down(each, max(tops) - 24) for each, _ in parts)
    if start and exponent(start, -126) < max(tops) - 25:
        start = Fraction(0)
    return with_start(value, max(tops), start)


RULES = {"amd:mi100": mi100, "amd:mi300x": mi300x}


@examples(200)
@given(case=st.sampled_from([case for case in CASES if case[0] in RULES]),
       seed=st.integers(0, 9999), depth=st.integers(1, 40), spread=st.integers(0, 14))  # fmt: skip
def test_blocks_are_those_of_exact_fractions(case, seed, depth, spread):
    card, form = case
    random = np.random.default_rng(seed)
    sides = random.normal(size=(2, depth)) * np.exp2(random.integers(-spread, 2, (2, depth)))
    sides = sides.astype(TYPES[form]).astype(np.float32)
    start = np.float32(random.normal() * 2.0 ** random.integers(-40, 20))
    left, right = ([Fraction(float(x)) for x in side] for side in sides)
    value, length = Fraction(float(start)), AMD[card][form].length
    for first in range(0, depth, length):
        part = slice(first, first + length)
        value = Fraction(rounded(RULES[card](left[part], right[part], value, form), *FP32))
    assert total(card, form, *sides, start) == float(value)


@pytest.mark.parametrize("seed", range(20))
def test_cdna2_adds_pairs_in_float32(seed):
    random = np.random.default_rng(seed)
    left, right = random.normal(size=(2, 8)).astype(np.float16).astype(np.float32)
    value = start = np.float32(random.normal())
    for k in (0, 4):
        p = left[k : k + 4] * right[k : k + 4]
        value = value + ((p[0] + p[1]) + (p[2] + p[3]))
    assert total("amd:mi250", "fp16", left, right, start) == value


def test_cdna2_flushes_subnormal_numbers_and_others_keep_them():
    tiny = 2.0**-20  # subnormal in fp16
    assert total("amd:mi250", "fp16", [tiny, 1], [1, tiny]) == 0
    assert total("amd:mi250", "fp16", [0], [0], 2.0**-140) == 0
    assert total("amd:mi100", "fp16", [tiny, 1], [1, tiny]) == 2 * tiny
    assert total("amd:mi100", "fp16", [0], [0], 2.0**-140) == 2.0**-140
    assert total("amd:mi300x", "fp16", [tiny, 1], [1, tiny]) == 2 * tiny


def test_one_rounding_or_several():
    """2^24 + 1 + 1 + 1: exact sums round once, pairs give the same, a loop of float32 loses 3."""
    left, right = [4096, 1, 1, 1], [4096, 1, 1, 1]
    assert total("amd:mi100", "fp16", left, right) == 2.0**24 + 4
    assert total("amd:mi250", "fp16", left, right) == 2.0**24 + 2
    assert total("amd:mi300x", "fp16", left, right) == 2.0**24 + 4


@pytest.mark.parametrize("card", AMD)
def test_infinities_and_nan(card):
    assert total(card, "bf16", [np.inf, 1], [1, 1]) == np.inf
    assert np.isnan(total(card, "bf16", [np.inf, np.inf], [1, -1]))
    assert np.isnan(total(card, "bf16", [np.inf], [0]))
    top = 2.0**100
    assert total(card, "bf16", [top], [top]) == np.inf
    assert total(card, "bf16", [top], [-top]) == -np.inf


def test_products_of_both_signs_beyond_fp32_are_nan_in_cdna3():
    top = 2.0**100
    assert np.isnan(total("amd:mi300x", "bf16", [top, top], [top, -top]))
