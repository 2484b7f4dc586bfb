"""docs/hardware.md has the presets of the registry."""

from pathlib import Path

import numpy as np
import pytest

from tests.accumulators.dots import emulate
from tests.hardware import page
from tests.hardware.kernels import EXACT, KERNELS, Kernel
from tracer.accumulators import hardware
from tracer.accumulators.spec import kinds
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Terms, named


def test_the_page_has_the_presets_of_today():
    text = Path("docs/hardware.md").read_text(encoding="utf-8")
    assert page.updated(text) == text
    assert all(f"| `{name}` |" in text for name in hardware.presets())


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda each: f"{each.library.name}-{each.files}")
def test_a_kernel_is_a_preset_or_wraps_at_32_bits_in_its_order(kernel: Kernel):
    if kernel.sums != EXACT:
        assert kernel.sums in hardware.presets()
        return
    accumulator = kinds.parse(EXACT, Accumulator(32)).accumulator
    most = 8 if "4 bits" in kernel.processor else 128
    random = np.random.default_rng(3)
    left = random.choice(np.array([0, 7, 255], np.uint8), (3, 70_001))
    right = random.choice(np.array([-most, -1, most - 1], np.int8), (70_001, 2))
    right[:, 0] = -most
    left[0] = 255
    sums = left.astype(np.int64) @ right.astype(np.int64)
    assert most == 8 or (np.abs(sums) >= 2**31).any()
    for own in (accumulator, Accumulator(32, "wrap", named(kernel.order), zero_points="after")):
        values = emulate(left, right, None, Terms(len(right)), own).values
        np.testing.assert_array_equal(values, sums.astype(np.int32))
