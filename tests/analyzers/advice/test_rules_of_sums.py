"""Advice on energy and widths, on real runs of the LeNet in 8 bits over digits."""

from dataclasses import replace
from functools import cache

import pytest

import tracer
from tracer.analyzers.advice import advise
from tracer.inputs.request import Samples

MODEL = "models/lenet/lenet.int8.onnx"

pytestmark = pytest.mark.needs("sklearn")


@cache
def times():
    return tracer.profile(MODEL, runs=20, threads=1, confirm=False)


def merged(accumulator):
    sums = tracer.interpret(MODEL, accumulator=accumulator, inputs=Samples("digits", 64))
    return tracer.merge(times(), sums)


def told(trace, hot=False):
    """What is advised where products took nearly all of the time, or nearly none of it."""
    nodes = trace.nodes.copy()
    timed = nodes["time_us"].notna()
    us = nodes["outputs"].notna().map({True: 100.0, False: 1.0} if hot else {True: 1.0, False: 1e4})
    for column in ("time_us", "time_us_raw", "time_us_ci95_low", "time_us_ci95_high"):
        nodes[column] = nodes[column].mask(timed, us)
    nodes["time_share"] = nodes["time_us"] / nodes["time_us"].sum()
    return {each.rule: each for each in advise(trace, trace.runs[0], nodes)}


@pytest.mark.nightly
def test_nodes_that_are_hot_in_energy_and_time_are_worth_narrowing():
    trace = merged(32)
    found = told(trace, hot=True)["worth_narrowing"]
    rows = trace.nodes.set_index("node").loc[list(found.nodes)]
    energy = rows["energy"] / trace.nodes["energy"].sum()
    assert (energy >= 0.1).all()
    assert found.energy_share == pytest.approx(energy.sum())
    needed = rows["bits_observed"]
    assert found.figures == {
        "bits": 32, "bits_needed": needed.max(), "spare_bits": 32 - needed.max(),
    }  # fmt: skip
    assert f"need {needed.min()} to {needed.max()} of 32 bits" in found.text
    assert f"tracer whatif {trace.model.name} --accumulator {needed.min()}:32" in found.text
    assert "spare_bits" not in told(trace, hot=True)  # of the same nodes
    assert "worth_narrowing" not in told(trace)  # they take no time


def test_a_node_with_spare_bits_and_much_energy_is_told_with_its_figures():
    trace = merged("conv1=22,*=26")
    found = told(trace)["spare_bits"]
    row = trace.nodes.set_index("node").loc[found.nodes[0]]
    spare = row["bits"] - row["bits_observed"]
    assert found.figures["spare_bits"] == spare >= 2
    assert found.figures["spare_bits_guaranteed"] == 26 - row["bits_guaranteed"]
    share = row["energy"] / trace.nodes["energy"].sum()
    assert f"{found.nodes[0]} takes {share:.0%} of the energy" in found.text
    assert f"has {spare} bits to spare on this data ({row['bits_observed']} of 26" in found.text
    assert "node_Conv_22" not in found.nodes  # it needs all of its 22 bits
    assert found.energy_share == pytest.approx(
        trace.nodes.set_index("node").loc[list(found.nodes), "energy"].sum()
        / trace.nodes["energy"].sum()
    )


@pytest.mark.nightly
def test_nothing_is_spare_at_the_widths_that_the_data_needs():
    needs = merged(32).nodes.dropna(subset=["bits_observed"])
    pairs = zip(needs["node"], needs["bits_observed"], strict=True)
    exact = merged(",".join(f"{node}={bits}" for node, bits in pairs))
    assert exact.nodes["overflow_outputs"].sum() == 0
    for hot in (True, False):
        assert not {"spare_bits", "worth_narrowing", "cheap_overflow"} & set(told(exact, hot))


def test_an_overflow_that_costs_little_to_avoid_is_told():
    trace = merged("fc3=12,*=32")
    found = told(trace)["cheap_overflow"]
    assert found.nodes == ("node_linear_2",)
    rows = trace.nodes.set_index("node")
    needed = rows.loc["node_linear_2", "bits_observed"]
    assert found.figures == {
        "overflow_outputs": rows["overflow_outputs"].sum(),
        "bits_needed": needed,
    }
    assert f"{needed} bits are enough" in found.text
    enough = tracer.interpret(MODEL, accumulator=f"fc3={needed},*=32", inputs=Samples("digits", 64))
    assert enough.nodes["overflow_outputs"].sum() == 0  # what the advice promises


def test_an_overflow_of_the_most_expensive_node_is_not_called_cheap():
    assert "cheap_overflow" not in told(merged("conv1=16,*=32"))


@pytest.mark.nightly
def test_times_alone_give_no_advice_on_widths():
    trace = times()
    assert not {"spare_bits", "worth_narrowing", "cheap_overflow"} & set(told(trace, hot=True))
    unpriced = merged(32)
    nodes = unpriced.nodes.assign(energy=float("nan"))
    assert not {"spare_bits", "cheap_overflow"} & set(told(replace(unpriced, nodes=nodes)))
