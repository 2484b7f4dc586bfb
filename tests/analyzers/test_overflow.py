"""The overflow columns against sums made one product at a time in plain numpy."""

import numpy as np
import pandas as pd
import pytest

import tracer
from tests.graphs import integers
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.statistics.partial_sums import PartialSums, Tally
from tracer.analyzers.grouping import grouped
from tracer.analyzers.overflow import COLUMNS, by_width, channels, overflow, widths

BITS = 15
ROWS = 40


@pytest.fixture(scope="module")
def feeds():
    rng = np.random.default_rng(1)
    draw = lambda *shape: rng.integers(0, 256, shape, np.uint8)  # noqa: E731
    return {"x": draw(ROWS, 2, 4, 4), "a": draw(ROWS, 12)}


@pytest.fixture(scope="module")
def trace(feeds, tmp_path_factory):
    file = tmp_path_factory.mktemp("feeds") / "f.npz"
    np.savez(file, **feeds)
    return tracer.interpret(integers(), accumulator=BITS, inputs=file)


@pytest.fixture(scope="module")
def prefixes(feeds):
    """Partial sums of the matrix product: (12, rows, 5)."""
    weights = next(w for w in integers().graph.initializer if w.name == "wm")
    from onnx import numpy_helper

    w = numpy_helper.to_array(weights).astype(np.int64)
    return np.cumsum(feeds["a"].astype(np.int64).T[:, :, None] * w[:, None, :], axis=0)


def saturated(prefixes, bits):
    """Final sums and events of an accumulator that clips."""
    products = np.diff(prefixes, axis=0, prepend=0)
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    total, events = np.zeros(products.shape[1:], np.int64), 0
    for product in products:
        total = total + product
        events += int(((total < low) | (total > high)).sum())
        total = np.clip(total, low, high)
    return total, events


def outside(values, bits):
    return (values < -(2 ** (bits - 1))) | (values > 2 ** (bits - 1) - 1)


def test_the_columns_are_those_of_sums_made_one_by_one(trace, prefixes):
    row = trace.nodes.set_index("node").loc["m"]
    over, persistent = outside(prefixes, BITS).any(0), outside(prefixes[-1], BITS)
    final, events = saturated(prefixes, BITS)
    errors = np.abs(final - prefixes[-1])
    wanted = {
        "acc_min": min(0, prefixes.min()), "acc_max": max(0, prefixes.max()),
        "final_min": prefixes[-1].min(), "final_max": prefixes[-1].max(),
        "bits": BITS, "outputs": ROWS * 5,
        "overflow_outputs": over.sum(), "transient_outputs": (over & ~persistent).sum(),
        "persistent_outputs": persistent.sum(), "saturation_events": events,
        "outputs_changed": (errors > 0).sum(), "max_abs_error": errors.max(),
    }  # fmt: skip
    assert {name: row[name] for name in wanted} == wanted
    assert 0 < wanted["transient_outputs"] < wanted["overflow_outputs"] < wanted["outputs"]
    enough = row["bits_observed"]
    assert not outside(prefixes, enough).any()
    assert outside(prefixes, enough - 1).any()
    assert enough <= row["bits_guaranteed"] <= row["bits_datatype"]


def test_every_width_is_known_from_the_one_run(trace, prefixes):
    sums = next(sums for sums in trace.runs[0].sums if sums.node == "m")
    table = widths(sums)
    for bits, over, transient, persistent in table.itertuples(index=False):
        assert over == outside(prefixes, bits).any(0).sum()
        assert persistent == outside(prefixes[-1], bits).sum()
        assert transient == over - persistent
    assert table["bits"].iloc[0] == 2
    assert table["overflow_outputs"].iloc[-1] == 0 < table["overflow_outputs"].iloc[-2]


def test_the_nodes_of_a_run_are_counted_at_common_widths(trace, prefixes):
    every, over, persistent = by_width(trace.runs[0].sums)
    at = [sums.node for sums in trace.runs[0].sums].index("m")
    assert over[at].tolist() == [outside(prefixes, bits).any(0).sum() for bits in every]
    assert persistent[at].tolist() == [outside(prefixes[-1], bits).sum() for bits in every]
    assert not over[:, -1].any()
    assert over[:, -2].any()
    assert by_width(())[1].size == 0


def test_channels_add_up_to_their_node(trace, prefixes):
    for sums in trace.runs[0].sums:
        table, row = channels(sums), trace.nodes.set_index("node").loc[sums.node]
        assert tuple(table.columns) == COLUMNS
        for name in ("outputs", "overflow_outputs", "saturation_events", "outputs_changed"):
            assert table[name].sum() == row[name]
        for name in ("acc_max", "bits_observed", "bits_guaranteed", "max_abs_error"):
            assert table[name].max() == row[name]
        assert len(table) == {"c": 3, "m": 5}[sums.node]
    found = channels(trace.runs[0].sums[1])
    assert found["final_max"].tolist() == prefixes[-1].max(0).tolist()


def test_nodes_without_an_accumulator_are_not_measured(trace):
    others = trace.nodes.set_index("node").loc[["f", "r"], list(COLUMNS)]
    assert others.isna().all(axis=None)
    assert (trace.nodes[list(COLUMNS)].dtypes == "Int64").all()
    plain = tracer.count(integers()).nodes
    assert plain[list(COLUMNS)].isna().all(axis=None)


def test_a_node_that_made_no_output_was_not_seen():
    sums = PartialSums("n", Tally.empty(2, Accumulator(8)), guaranteed=12)
    row = overflow([sums]).loc["n"]
    assert (row["bits"], row["outputs"], row["bits_guaranteed"]) == (8, 0, 12)
    assert row[["acc_min", "final_max", "bits_observed", "max_abs_error"]].isna().all()
    assert overflow([]).empty


def test_groups_have_the_sums_and_the_worst_of_their_nodes(trace):
    groups = grouped(trace.nodes, "module")
    nodes = trace.nodes
    assert len(groups) == 1
    assert groups["overflow_outputs"][0] == nodes["overflow_outputs"].sum()
    assert groups["acc_min"][0] == nodes["acc_min"].min()
    assert groups["bits_guaranteed"][0] == nodes["bits_guaranteed"].max()
    unknown = nodes.copy()
    unknown.loc[unknown["node"] == "c", "bits_guaranteed"] = pd.NA
    assert grouped(unknown, "module")["bits_guaranteed"].isna().all()


def test_python_says_it_as_objects_and_as_text():
    from tests.graphs import residual

    by_text = tracer.interpret(residual(), accumulator="Conv=16", fixed="8:6/8:4")
    policy = tracer.Policy.of(tracer.Accumulator(16))
    by_object = tracer.interpret(residual(), accumulator=policy, fixed="8:6/8:4")
    for node in ("c1", "c2"):
        one, other = (t.nodes.set_index("node").loc[node] for t in (by_text, by_object))
        assert one["overflow_outputs"] == other["overflow_outputs"]
    assert "y" not in {sums.node for sums in by_text.runs[0].sums}
    assert "y" in {sums.node for sums in by_object.runs[0].sums}
