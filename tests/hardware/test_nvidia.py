"""Tensor cores, against published results of cards and exact fractions."""

from dataclasses import replace
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.hardware import exact, vectors
from tracer.accumulators.engine.float_arithmetic import sum_products
from tracer.accumulators.hardware.matrix_cores import NVIDIA
from tracer.accumulators.spec.float_accumulator import FloatRounding

X = (2 - 2.0**-10) * 2.0**-14
"""Of MMA-Sim's assertions: the least number of fp16 with all bits."""

# Row 1 of files of MATLAB-tensor-core (BSD-2-Clause, Copyright Faizan A. Khattak, Mantas Mikaitis)
A4 = "3f7aa000 3f87c000 bea68000 3fbf0000"
B4 = "3f194000 bf26a000 3ed7e000 3e9d8000"
A8 = f"{A4} bf3d0000 3eadc000 3f80a000 3fe8e000"
B8 = f"{B4} bff34000 3ef2e000 bfc16000 bf906000"
A16 = f"{A8} 3f62e000 3f5d2000 bf8c0000 3eb3e000 3cf10000 3e9c6000 3f86e000 3f590000"
B16 = f"{B8} 3dbf0000 bf316000 bf52e000 400ea000 bc710000 401e4000 3e1c2000 bea4e000"
ROWS = {
    ("tc:v100", "fp16"): (A4, B4, "3f7f418c", "3f9b7dec"),
    ("tc:a100", "tf32"): (A4, B4, "3efe7b25", "3f36f7de"),
    ("tc:a100", "fp16"): (A8, B8, "3f5091bb", "bf794a57"),
    ("tc:h100", "fp16"): (A16, B16, "3f676bea", "3f6d0cda"),
}
FOLDERS = {"tc:v100": "V100", "tc:a100": "A100", "tc:h100": "H100"}


def floats(words):
    return np.array([int(word, 16) for word in words.split()], np.uint32).view(np.float32)


def total(preset, operands, left, right, start=0.0):
    accumulator = NVIDIA[preset][operands]
    sides = np.array([left], np.float32), np.array(right, np.float32)[:, None]
    with np.errstate(all="ignore"):
        return sum_products(*sides, np.float32([start]), accumulator).values[0, 0]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("preset", "operands"), ROWS)
def test_a_published_row_of_a_card(preset, operands):
    left, right, start, want = ROWS[preset, operands]
    got = total(preset, operands, floats(left), floats(right), floats(start)[0])
    assert got.view(np.uint32) == int(want, 16)


@pytest.mark.parametrize(
    ("preset", "operands", "most"),
    [("tc:v100", "fp16", -1), ("tc:a100", "fp16", 0), ("tc:ada", "fp16", 0),
     ("tc:h100", "fp16", 1), ("tc:b200", "fp16", 1)],
)  # fmt: skip
def test_a_term_and_its_negative_swallow_bits_from_one_exponent_on(preset, operands, most):
    """X + y z - y z is X while the exponent of y z is at most `most`, as on the cards."""
    for power in range(-4, 6):
        y, z = 2.0 ** (power - power // 2), 2.0 ** (power // 2)
        got = total(preset, operands, [X, y, -y], [1, z, z])
        assert (got == X) == (power <= most), power


@pytest.mark.parametrize("preset", ["tc:ada", "tc:h100"])
def test_sums_of_fp8_keep_13_bits_of_fraction(preset):
    for power in range(-2, 9):
        got = total(preset, "fp8-e5m2", [2.0**-12, 2.0**power, -(2.0**power)], [1, 1, 1])
        assert (got == 2.0**-12) == (power <= 1), power


def test_the_factors_of_a_product_matter():
    """A product of 2 or more is not normalised, so that it is aligned a bit lower."""
    losses = [
        X - total("tc:v100", "fp16", [X, y, -y], [1, z, z]) for y, z in [(1.5, 1.5), (2.25, 1)]
    ]
    assert losses == [2.0**-24, 3 * 2.0**-24]
    a100 = [1.5, 2.0**-23, 2.0**-24, 2.0**-24], [1.5, 1, 1, 1]
    assert total("tc:a100", "bf16", *a100) == 2.25 + 2.0**-22
    assert total("tc:a100", "bf16", [2.25, *a100[0][1:]], [1, 1, 1, 1]) == 2.25


def test_small_terms_that_one_block_adds_at_once():
    small = float(np.float32(1e-7).astype(ml_dtypes.bfloat16))
    got = total("tc:a100", "bf16", [1] + [small] * 7, [1] * 8)
    assert got.view(np.uint32) == 0x3F800003


def test_the_ends_of_the_range():
    largest = float(np.finfo(np.float32).max)
    top = 2.0**127
    assert total("tc:a100", "bf16", [top, top], [1, 2.0**-24]) == top
    assert total("tc:a100", "bf16", [2.0**100], [2.0**3], largest) == largest
    assert total("tc:a100", "bf16", [top], [1], top) == np.inf
    assert total("tc:a100", "bf16", [-top], [1], -top) == -np.inf
    assert total("tc:a100-fp16-sums", "fp16", [16], [1], 65504) == np.inf
    assert total("tc:a100-fp16-sums", "fp16", [15], [1], 65504) == 65504
    assert total("tc:a100", "bf16", [2.0**-70], [2.0**-70], 0) == 2.0**-140  # subnormal
    zero = total("tc:a100", "fp16", [-0.0], [1], -0.0)
    assert zero == 0
    assert not np.signbit(zero)


@pytest.mark.parametrize(
    ("left", "right", "start", "want"),
    [([np.inf, 1], [1, 1], 0, np.inf), ([np.inf, 1], [-1, 1], 0, -np.inf),
     ([np.inf, 1], [0, 1], 0, np.nan), ([np.inf, np.inf], [1, -1], 0, np.nan),
     ([np.nan, 1], [1, 1], 0, np.nan), ([1, 1], [1, 1], np.nan, np.nan),
     ([np.inf, 1], [1, 1], -np.inf, np.nan), ([1, 1], [1, 1], -np.inf, -np.inf)],
)  # fmt: skip
def test_infinities_and_nan(left, right, start, want):
    for preset, bits in (("tc:h100", 0x7FFFFFFF), ("tc:h100-fp16-sums", 0x7FFFE000)):
        got = total(preset, "fp16", left, right, start)
        np.testing.assert_equal(got, np.float32(want))
        if np.isnan(want):
            assert got.view(np.uint32) == bits


TYPES = {
    "fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp8-e4m3": ml_dtypes.float8_e4m3fn,
    "fp8-e5m2": ml_dtypes.float8_e5m2, "fp4-e2m1": ml_dtypes.float4_e2m1fn,
}  # fmt: skip
CASES = [
    (preset, operands) for preset, rows in NVIDIA.items() for operands in rows
    if operands in TYPES and "hmma" not in preset
]  # fmt: skip


@examples(250)
@given(case=st.sampled_from(CASES), seed=st.integers(0, 9999), depth=st.integers(1, 70),
       spread=st.integers(0, 12))  # fmt: skip
def test_blocks_are_those_of_exact_fractions(case, seed, depth, spread):
    preset, operands = case
    random = np.random.default_rng(seed)
    sides = random.normal(size=(2, depth)) * np.exp2(random.integers(-spread, 2, (2, depth)))
    sides = sides.astype(TYPES[operands]).astype(np.float32)
    accumulator = NVIDIA[preset][operands]
    half = accumulator.out.exponent_bits == 5
    start = np.float32(random.normal()).astype(np.float16 if half else np.float32)
    want = exact.chain(
        *([Fraction(float(x)) for x in side] for side in sides), Fraction(float(start)),
        accumulator.length, accumulator.fraction, 1 - accumulator.operands.bias,
        (10, -14, 65504, True) if half
        else (accumulator.out.fraction_bits, -126, 2**128 - 2**104, False),
    )  # fmt: skip
    assert total(preset, operands, *sides, start) == np.float32(want)


@pytest.mark.parametrize("preset", ["tc:hmma-fp8", "tc:hmma-fp8-fp16-sums"])
def test_fp8_by_instructions_of_fp16_takes_two_blocks_and_adds_their_sum(preset):
    random = np.random.default_rng(4)
    sides = random.normal(size=(2, 32)).astype(ml_dtypes.float8_e5m2).astype(np.float32)
    start = np.float16(random.normal())
    left, right = ([Fraction(float(x)) for x in side] for side in sides)
    out = (10, -14, 65504, True) if "sums" in preset else (23, -126, 2**128, False)
    parts = [[k for k in range(32) if k // 2 % 2 == odd] for odd in (0, 1)]
    value = Fraction(0)
    for part in parts:
        terms = exact.block([left[k] for k in part], [right[k] for k in part], value, 25, -14)
        value = Fraction(exact.rounded(terms, *out))
    want = exact.rounded(value + Fraction(float(start)), out[0], out[1], out[2], True)
    assert total(preset, "fp8-e5m2", *sides, start) == want


def write(folder, changed):
    """Writes result files of one row, laid out as the published ones; flips bits of each result."""
    for (preset, operands), (left, right, start, want) in ROWS.items():
        card = FOLDERS[preset]
        place = folder / card / operands
        place.mkdir(parents=True)
        (place / f"a_{card}_{operands}.txt").write_text(f"{left}\n")
        (place / f"b_{card}_{operands}.txt").write_text(f"{right}\n")
        (place / f"c_{card}_fp32.txt").write_text(f"{int(start, 16):032b}\n")
        (place / f"d_{card}_fp32.txt").write_text(f"{int(want, 16) ^ changed:032b}\n")


@pytest.mark.nightly
@pytest.mark.parametrize(("changed", "code"), [(0, 0), (1, 1)])
def test_the_command_compares_a_folder_of_results(changed, code, tmp_path, monkeypatch, capsys):
    write(tmp_path, changed)
    monkeypatch.setattr("sys.argv", ["vectors", str(tmp_path), "--mutations"])
    assert vectors.main() == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"4 files, {4 * changed} mismatches"
    assert sum("rows" in line and line.endswith(f" {changed} mismatches") for line in lines) == 4
    assert sum("exact sum" in line for line in lines) == 4


def test_the_command_fails_for_a_folder_without_results(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["vectors", str(tmp_path)])
    assert vectors.main() == 1


def test_a_wrong_setting_is_noticed():
    """Rows that the settings of another card get wrong: a quarter of them, of random numbers."""
    random = np.random.default_rng(0)
    left, right = random.normal(size=(2, 400, 16)).astype(np.float16).astype(np.float32)
    start = random.uniform(-1, 1, 400).astype(np.float32)
    accumulator = NVIDIA["tc:h100"]["fp16"]
    want = vectors.diagonal(left, right, start, accumulator)
    for change in ({"fraction": 24}, {"length": 8}, {"rounding": FloatRounding("rne")}):
        got = vectors.diagonal(left, right, start, replace(accumulator, **change))
        assert (got != want).mean() > 0.15, change
