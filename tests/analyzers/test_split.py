"""Times of fused kernels, divided among their nodes."""

import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.analyzers import timing

GROUPS = [("conv", "norm", "relu"), ("add",), ()]
TIMES = pd.DataFrame({"time_us": {"conv": 30.0, "add": 4.0, "runtime:reorder": 2.0, "norm": None}})


def divided(alone):
    return timing.fused_parts(TIMES, GROUPS, alone)["time_us_split"].to_dict()


def test_a_kernel_is_divided_in_the_proportion_of_its_nodes():
    assert divided({"conv": 8.0, "norm": 0.0, "relu": 2.0}) == {
        "conv": 24.0, "norm": 0.0, "relu": 6.0, "add": 4.0, "runtime:reorder": 2.0,
    }  # fmt: skip


@pytest.mark.parametrize("relu", [math.nan, None])
def test_a_kernel_with_a_node_that_cannot_run_alone_keeps_its_time(relu):
    alone = {"conv": 8.0, "norm": 1.0} | ({} if relu is None else {"relu": relu})
    assert divided(alone) == {"conv": 30.0, "add": 4.0, "runtime:reorder": 2.0}
    assert "0 of 1 fused kernels" in timing.split_notes(GROUPS, alone)[0]


def test_nothing_is_divided_without_times():
    assert divided({}) == {}
    assert timing.split_notes(GROUPS, {}) == ()


@given(st.lists(st.floats(0, 1e6), min_size=3, max_size=3))
def test_the_parts_sum_to_the_times(times):
    parts = divided(dict(zip(GROUPS[0], times, strict=True)))
    assert sum(parts.values()) == pytest.approx(36.0)
    assert min(parts.values()) >= 0
