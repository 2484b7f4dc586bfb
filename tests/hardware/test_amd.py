"""Matrix cores of AMD, against exact fractions and numpy's float32."""

from dataclasses import replace
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
# Rows of random numbers: factors, C, and D of the models of MATLAB-tensor-core (BSD-2-Clause,
# Copyright Faizan A. Khattak, Mantas Mikaitis; b12b5a7, of MI300X 122c221) in GNU Octave 7.3
MODELLED = {
    ("amd:mi100", "fp16"): ("628292ac88b0eaa4f6be0317b207168b", "85b92cb995070129ce842e272a90e788",
                            "-0x1.d6abf2p-30", "0x1.758e36p-5"),
    ("amd:mi100", "bf16"): ("8abcf73a3c39bd38", "0d39b7b35535b7bc", "-0x1.6c9188p-22",
                            "-0x1.35e86ap-18"),
    ("amd:mi250", "fp16"): ("04ad36854689649068a89d94d1bd848c", "30b78b0b9fb3038cbd05dfab5615bd01",
                            "0x1.5e0ef8p-7", "0x1.6940aep-5"),
    ("amd:mi250", "bf16"): ("45bf9cbdc2bdeabeefbd0c40843c6cbf", "73be113f223e343da63dc2bece3ba4be",
                            "0x1.025890p-17", "-0x1.c10b8cp-2"),
    ("amd:mi300x", "fp16"): (
        "edaca63d6aadf2b336b0e4ad5fae2c2fa8bc5abcfd2dd39e53337d2da2b7b7a9",
        "3ac0e43bf1b93a2c5339b92d6531272a2d3a9325afb1dc3bc3b8c134352ca1b5",
        "0x1.bcfabcp-30", "0x1.b0f0e8p-2"),
    ("amd:mi300x", "fp8-e5m2fnuz"): (
        "8282c22620119b86bf99883b1500a214a739b4a41824aa8911b834a62a961c14",
        "102db3142b89040e0391252528a043830e14b88eab11940a222837a78eb6221d",
        "0x1.4850c4p-22", "0x1.b4df2cp-3"),
}  # fmt: skip
CASES = [(card, form) for card, rows in AMD.items() for form in rows if form in TYPES]


def total(card, form, left, right, start=0.0):
    sides = np.array([left], np.float32), np.array(right, np.float32)[:, None]
    return sum_products(*sides, np.float32([start]), AMD[card][form]).values[0, 0]


@pytest.mark.parametrize(("card", "form"), MODELLED)
def test_a_row_of_a_model_of_others_that_other_rules_get_wrong(card, form):
    *sides, start, want = MODELLED[card, form]
    left, right = (np.frombuffer(bytes.fromhex(each), TYPES[form]) for each in sides)
    sums = {
        rule: sum_products(
            np.float32([left]), np.float32(right)[:, None], np.float32([float.fromhex(start)]),
            replace(AMD[card][form], rule=rule),
        ).values[0, 0]
        for rule in {"exact", "pairwise", "late", "aligned", AMD[card][form].rule}
    }  # fmt: skip
    same = [rule for rule, value in sums.items() if value == float.fromhex(want)]
    assert same == [AMD[card][form].rule]


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
