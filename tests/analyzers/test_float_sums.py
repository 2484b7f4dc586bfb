"""Columns of float sums: rows that are folded have the statistics of their sums together."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from tests.accumulators.test_float_tally import drawn, tally
from tests.examples import examples
from tracer.accumulators.statistics.float_partial_sums import FloatPartialSums
from tracer.analyzers.grouping import grouped
from tracer.analyzers.overflow import of_floats
from tracer.analyzers.views.trace import overflow
from tracer.records.trace import typed_table


def table(*sums: FloatPartialSums) -> pd.DataFrame:
    """The node table of nodes of one operator, and of one without sums."""
    columns = of_floats(sums).rename_axis("node").reset_index()
    columns = pd.concat([columns, pd.DataFrame({"node": ["relu"]})])
    return typed_table(columns.assign(op_type="Conv", time_us=1.0, time_share=0.1))


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 40))
@examples(60)
def test_groups_have_the_statistics_of_their_sums_or_none(seed, first, second):
    parts = [tally(drawn(seed, first)), tally(drawn(seed + 1, second))]
    whole = of_floats([FloatPartialSums("all", parts[0].merged(parts[1]))]).loc["all"]
    nodes = table(*(FloatPartialSums(f"n{i}", each) for i, each in enumerate(parts)))
    (row,) = grouped(nodes, "op").to_dict("records")
    for name in ("outputs", "overflow_outputs", "terms", "accumulator"):
        assert row[name] == whole[name]
    np.testing.assert_allclose(row["swamped_share"], whole["swamped_share"])
    for name in ("rel_error_p50", "rel_error_p99"):
        assert pd.isna(row[name]) or row[name] == whole[name]


def test_a_group_with_one_node_of_sums_has_its_percentiles():
    part = tally(drawn(3, 30))
    (row,) = grouped(table(FloatPartialSums("n", part)), "op").to_dict("records")
    assert row["rel_error_p99"] == part.error_percentile(99)


def test_the_headline_names_the_nodes_that_overflow_and_lose_terms():
    whole = tally((np.ones(4), np.array([True, False, False, False]), np.array([1, 0, 0, 0]),
                   np.array([2, 2, 2, 2]), np.ones(4) * 0.5))  # fmt: skip
    exact = tally((np.ones(4), np.zeros(4, bool), np.zeros(4, int), np.ones(4, int), np.ones(4)))
    nodes = table(FloatPartialSums("fc1", whole), FloatPartialSums("fc2", exact))
    assert overflow.sums_words(nodes) == (
        "1 of 2 nodes overflows fp16, in 1 of 8 outputs (12.5%)",
        "sums of fc1 lose 12.5% of their terms, the most; 99 % of the sums of fc1 have a relative "
        "error of at most 1.12",
    )
    assert overflow.sums_totals(nodes) == (
        "2 nodes with float accumulators: 8 outputs, 12 terms, 8.3% of them swamped",
    )
    assert overflow.sums_words(table(FloatPartialSums("fc2", exact))) == (
        "nothing overflows fp16: 1 node, 4 outputs",
        "no sum loses a term; 99 % of the sums of fc2 have a relative error of at most 0",
    )
