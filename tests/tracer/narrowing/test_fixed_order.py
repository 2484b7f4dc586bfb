"""Products and factors that have the same bits on every processor: sums are in a fixed order."""

import hashlib
import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracer
from tests.examples import examples
from tracer.interpreter.numeric import parallel, products
from tracer.narrowing import rounding

ROOT = Path(__file__).parents[3]
WIDE = np.longdouble


def factors(seed, most=200):
    random = np.random.default_rng(seed)
    rows, depth, columns = random.integers(1, most, 3)
    left = random.standard_normal((rows, depth)) * 10.0 ** random.integers(-9, 9, (rows, 1))
    return left, random.standard_normal((depth, columns)) ** 5


@examples(30)
@given(st.integers(0, 2**32 - 1))
def test_each_product_is_added_to_the_sum_before_in_one_rounding(seed):
    left, right = factors(seed, most=30)
    sums = np.zeros((len(left), right.shape[1]))
    for m, n in np.ndindex(*sums.shape):
        for a, b in zip(left[m].tolist(), right[:, n].tolist(), strict=True):
            sums[m, n] = float(Fraction(float(sums[m, n])) + Fraction(a) * Fraction(b))
    assert np.array_equal(rounding.product(left, right), sums)


@examples(60)
@given(st.integers(0, 2**32 - 1))
def test_a_product_is_the_product_on_any_threads(seed):
    left, right = factors(seed)
    found = rounding.product(left, right)
    exact, sizes = (a @ b for a, b in ((left.astype(WIDE), right), (np.abs(left), np.abs(right))))
    assert (np.abs(found - exact) <= sizes * left.shape[1] * 2.0**-53).all()
    stack = np.stack([left, 2 * left])
    with parallel.threads(3):
        assert np.array_equal(rounding.product(stack, right), np.stack([found, 2 * found]))


def test_products_of_small_integers_are_exact():
    random = np.random.default_rng(3)
    codes = random.integers(0, 256, (3000, 40))
    assert np.array_equal(rounding.product(codes.T, codes), codes.T @ codes)
    for most in (255, 5, 4000):  # sums of whole bytes, of all rows, and of none fit float32
        codes = random.integers(-most, most + 1, (700, 300))
        with parallel.threads(2):
            assert np.array_equal(rounding.gram(codes.astype(float)), codes.T @ codes)
            other = rounding.integer_product(codes.astype(float), codes.T[:, :40].astype(float))
        assert np.array_equal(other, codes @ codes.T[:, :40])


@pytest.mark.parametrize("size", [1, 2, 47, 48, 49, 150])
def test_factors_are_those_of_lapack(size):
    codes = np.random.default_rng(size).integers(0, 256, (4 * size + 8, size))
    moments = (codes.T @ codes) / len(codes) + 10 * np.eye(size)
    lower = rounding.cholesky(moments)
    assert np.allclose(lower, np.linalg.cholesky(moments), 1e-9, 1e-9)
    assert np.allclose(rounding.inverse(lower) @ lower, np.eye(size), 0, 1e-9)
    with pytest.raises(np.linalg.LinAlgError):
        rounding.cholesky(moments - 1e6 * np.eye(size))


def test_the_interpreter_multiplies_in_a_fixed_order_within():
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(s).astype(np.float32) for s in ((3, 2, 90), (3, 90, 4)))
    with rounding.interpreting():
        found = products.matmul(a, b)
    assert found.dtype == np.float32
    assert np.array_equal(found, rounding.product(a, b).astype(np.float32))
    assert products.replacement() is None


NARROW = """
import sys, tracer
sys.stdout.buffer.write(tracer.narrow(
    sys.argv[1], "10", sys.argv[2], limit=40, in_process=True
).proto.SerializeToString(deterministic=True))
"""
AVX512 = "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL"
MACHINES = (
    {"OPENBLAS_CORETYPE": "Prescott"},
    {"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    {"OPENBLAS_CORETYPE": "SkylakeX", "NPY_DISABLE_CPU_FEATURES": AVX512},
    {"OPENBLAS_CORETYPE": "Zen", "NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma"},
)


@pytest.mark.nightly
def test_a_narrowed_model_has_the_same_bytes_on_every_processor():
    model = ROOT / "models/lenet/lenet.int8.onnx"
    hashes = set()
    for machine in MACHINES:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **machine}
        command = [sys.executable, "-W", "ignore", "-c", NARROW, str(model), "digits"]
        run = subprocess.run(command, env=environment, capture_output=True, check=False)
        assert run.returncode == 0, run.stderr.decode()
        hashes.add(hashlib.sha256(run.stdout).hexdigest())
    assert len(hashes) == 1


@pytest.mark.nightly
def test_the_table_of_the_page_is_what_its_command_prints():
    page = (ROOT / "docs/narrowing.md").read_text()
    table = page[page.index("| bits | LeNet narrowed | saturated |") :].partition("\n\n")[0]
    rows = re.findall(r"^\| (\d+)[^|]*\| ([\d.]+) \| ([\d.]+) \|", table, re.MULTILINE)
    shown = {int(bits): (narrowed, saturated) for bits, narrowed, saturated in rows}
    found = tracer.narrow(ROOT / "models/lenet/lenet.int8.onnx", "4:16:4", "digits")
    assert {point.bits for point in found.curve} == {4, 8, 12, 16}
    for point in found.curve:
        assert shown[point.bits] == (f"{point.narrowed:.1f}", f"{point.saturated:.1f}")
