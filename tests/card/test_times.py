"""Times of networks that a card had, as tracer and as events of CUDA tell them."""

import pytest

from tests.card.times import NETWORKS

CLOSE = 0.05
"""Difference of two ways to measure kernels that is allowed."""


@pytest.fixture
def times(card):
    return card("times")


@pytest.fixture(params=NETWORKS)
def network(request, times):
    """The figures of a network."""
    if request.param not in times:
        pytest.skip("no time was left for it")
    return times[request.param]


def test_the_sum_of_the_rows_is_the_time_between_events(network):
    """Less the gaps between kernels, which follow each other without waiting for launches."""
    assert network["sum_us"] == pytest.approx(network["events"]["torch_us"], rel=CLOSE)
    assert network["ratio"] == pytest.approx(1, abs=CLOSE)
    assert network["sum_us"] < network["events"]["queued_event_us"] * (1 + CLOSE)


def test_busy_and_idle_make_up_a_run(network):
    assert network["busy_us"] <= network["wall_us"] * (1 + CLOSE)
    assert network["busy_us"] == pytest.approx(network["sum_us"], rel=CLOSE)  # hardly any overlap
    assert 0 <= network["waiting_us"] <= network["gaps_us"]
    assert 0 < network["gaps"] < network["kernels"] * 1.2  # copies and memory sets have gaps, too
    assert network["streams"] in (1, 2)  # backward, cuDNN takes a stream of its own for some


def test_the_memory_is_that_of_the_allocator(network, request):
    if "captured" in request.node.name:
        pytest.skip("what a graph holds is allocated while it is captured, before the run")
    assert network["peak_mb"] == pytest.approx(network["events"]["peak_bytes"] / 1e6, rel=0.1)


def test_the_kernels_of_a_graph_are_in_the_row_of_its_launch(times):
    captured, eager = times["resnet20 captured"], times["resnet20"]
    assert captured["of_graphs"] == eager["kernels"]
    assert captured["operators"][0][0] == "cudaGraphLaunch"
    assert captured["sum_us"] == pytest.approx(eager["sum_us"], rel=0.1)


def test_a_small_network_waits_for_launches(times):
    small = times["resnet20 batch 1"]
    assert small["busy_us"] < small["wall_us"] / 2
    assert small["waiting_us"] > small["gaps_us"] / 2


def test_a_command_makes_a_page_and_a_table(times):
    assert times["command"]["code"] == 0, times["command"]
    assert times["command"]["page_bytes"] > 10_000
    assert any(line.startswith("the card was busy") for line in times["command"]["stdout"])
