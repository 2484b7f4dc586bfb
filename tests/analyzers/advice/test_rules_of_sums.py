"""Advice on energy and widths, on real runs of the LeNet in 8 bits over digits."""

from dataclasses import replace
from functools import cache

import pytest

import tracer
from analyzers.advice import advise
from tracer.inputs.request import Samples

MODEL = "models/lenet/lenet.int8.onnx"

pytestmark = pytest.mark.needs("sklearn")


@cache
def times():
    return tracer.profile(MODEL, runs=20, threads=1, confirm=False)


def merged(accumulator):
    sums = tracer.interpret(MODEL, accumulator=accumulator, feeds=Samples("digits", 64))
    return tracer.merge(times(), sums)


def told(trace):
    return {each.rule: each for each in advise(trace, trace.runs[0], trace.nodes)}


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


def test_nothing_is_spare_at_the_widths_that_the_data_needs():
    needs = merged(32).nodes.dropna(subset=["bits_observed"])
    pairs = zip(needs["node"], needs["bits_observed"], strict=True)
    exact = merged(",".join(f"{node}={bits}" for node, bits in pairs))
    assert exact.nodes["overflow_outputs"].sum() == 0
    assert not {"spare_bits", "cheap_overflow"} & set(told(exact))


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
    enough = tracer.interpret(MODEL, accumulator=f"fc3={needed},*=32", feeds=Samples("digits", 64))
    assert enough.nodes["overflow_outputs"].sum() == 0  # what the advice promises


def test_an_overflow_of_the_most_expensive_node_is_not_called_cheap():
    assert "cheap_overflow" not in told(merged("conv1=16,*=32"))


def test_times_alone_give_no_advice_on_widths():
    trace = times()
    assert not {"spare_bits", "cheap_overflow"} & set(told(trace))
    unpriced = merged(32)
    nodes = unpriced.nodes.assign(energy=float("nan"))
    assert not {"spare_bits", "cheap_overflow"} & set(told(replace(unpriced, nodes=nodes)))
