"""DeepGEMM's promotion, against Hopper's steps and additions of float32."""

import ml_dtypes
import numpy as np
import pytest

from tracer.accumulators import hardware
from tracer.accumulators.engine.float_arithmetic import sum_products
from tracer.accumulators.hardware.matrix_cores import NVIDIA

DEEPGEMM = hardware.presets()["deepgemm"].accumulator.of("fp8-e4m3")
HOPPER = NVIDIA["tc:h100"]["fp8-e4m3"]


@pytest.mark.parametrize("depth", [32, 128, 129, 256, 300])
def test_tiles_of_128_are_four_steps_of_hopper_added_in_float32(depth):
    random = np.random.default_rng(depth)
    left, right = (
        (2 * random.normal(size=shape)).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
        for shape in ((3, depth), (depth, 5))
    )
    want = np.zeros((3, 5), np.float32)
    for first in range(0, depth, 128):
        part = slice(first, first + 128)
        want = want + sum_products(left[:, part], right[part], None, HOPPER).values
    np.testing.assert_array_equal(sum_products(left, right, None, DEEPGEMM).values, want)


def test_promotion_keeps_what_hopper_loses():
    left, right = np.ones((1, 8192), np.float32), np.full((8192, 1), 1.125, np.float32)
    exact = 8192 * 1.125
    lost, kept = (exact - sum_products(left, right, None, each).values[0, 0]
                  for each in (HOPPER, DEEPGEMM))  # fmt: skip
    assert kept == 0
    assert lost > 500  # from 1024 on, each product is truncated to 1
