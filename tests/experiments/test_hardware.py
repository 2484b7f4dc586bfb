"""The table of networks in families of accumulators, on few samples."""

import numpy as np
import pytest

from experiments import hardware
from experiments.hardware import FAMILIES, NETWORKS, Family
from tests.accumulators.test_float_tally import drawn, tally
from tracer.accumulators.statistics.float_partial_sums import FloatPartialSums


@pytest.mark.needs("sklearn")
def test_a_network_is_as_accurate_in_float32_as_onnxruntime():
    result = hardware.run(NETWORKS["LeNet"], Family("fp32"), 30, 1)
    assert result.top1 >= 29 / 30
    assert result.swamped < 0.001
    assert result.error < 1e-5
    labels = hardware.labels_of(NETWORKS["LeNet"], 30)
    assert labels.shape == (30,)
    assert set(labels) <= set(range(10))


def test_counts_of_nodes_are_added():
    parts = [drawn(seed, 20) for seed in (1, 2)]
    sums = [FloatPartialSums(str(seed), tally(part)) for seed, part in enumerate(parts)]
    result = hardware.result(0.5, sums)
    overflowed = np.concatenate([part[1] for part in parts])
    swamped, terms = (sum(part[at].sum() for part in parts) for at in (2, 3))
    assert result.overflowed == overflowed.mean()
    assert result.swamped == swamped / terms
    assert result.error == max(each.tally.error_percentile(50) for each in sums)


def test_the_page_keeps_what_is_around_the_table():
    page = f"before\n{hardware.BEGIN}\nold\n{hardware.END}\nafter\n"
    new = hardware.updated(page, "| new |")
    assert new.startswith("before\n") and new.endswith("\nafter\n")
    assert "| new |" in new and "old" not in new
    assert hardware.updated(new, "| new |") == new


def test_there_are_eight_families():
    assert len({(each.accumulator, each.operands) for each in FAMILIES}) == 8
