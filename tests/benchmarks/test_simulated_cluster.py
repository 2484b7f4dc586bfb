"""The simulated cluster, against what queueing theory says of simple ones."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.simulated_cluster import MEASURED, Cluster, Costs, sweep
from tests.examples import examples

FREE = Costs(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, math.inf, 0.0, 0.0, 0.0)
quick = examples(40)
durations = st.lists(st.floats(0.01, 10), min_size=1, max_size=60)


@quick
@given(workers=st.integers(1, 20), tasks=st.integers(1, 200))
def test_equal_tasks_without_costs_run_in_waves(workers, tasks):
    told = Cluster(FREE, workers, [2.0] * tasks).run()
    waves = math.ceil(tasks / workers)
    assert told.seconds == pytest.approx(2 * waves)
    assert told.busy == pytest.approx(tasks / workers / waves)


@quick
@given(workers=st.integers(1, 20), durations=durations)
def test_tasks_of_any_length_keep_grahams_bounds(workers, durations):
    """List scheduling (Graham 1966): at most twice the optimum; a task more may wait at each."""
    told = Cluster(FREE, workers, durations).run()
    least = max(sum(durations) / workers, max(durations))
    assert least <= told.seconds + 1e-9
    assert told.seconds <= sum(durations) / workers + 2 * max(durations) + 1e-9


@quick
@given(workers=st.integers(1, 20), durations=durations, wait=st.floats(0, 0.5))
def test_every_second_of_a_worker_is_in_one_share(workers, durations, wait):
    costs = replace(MEASURED, latency_s=wait)
    told = Cluster(costs, workers, durations).run()
    shares = (told.busy, told.starting, told.waiting, told.ending)
    assert sum(shares) == pytest.approx(1)
    assert min(shares) >= 0
    assert told.busy * workers * told.seconds == pytest.approx(sum(durations))


def test_the_scheduler_is_the_limit_where_tasks_are_short():
    """A server that takes 10 ms for each task ends 100 in a second, whatever the workers."""
    told = Cluster(replace(FREE, scheduler_s=0.01), 500, [1.0] * 5000).run()
    assert told.seconds == pytest.approx(5000 * 0.01, rel=0.05)
    assert told.busy == pytest.approx(5000 / 500 / told.seconds)
    assert told.scheduler > 0.95


def test_the_card_of_the_client_is_the_limit_where_results_are_large():
    told = Cluster(replace(FREE, link=1e6, result_bytes=1e4), 500, [1.0] * 5000).run()
    assert told.seconds == pytest.approx(5000 * 1e4 / 1e6, rel=0.05)


def test_the_model_reaches_all_workers_in_a_tree():
    """1,023 copies are made in ten transfers: the copies double with each."""
    costs = replace(FREE, link=1e6, model_bytes=1e6)
    assert Cluster(costs, 1023, [99.0] * 2046).run().seconds == pytest.approx(10 + 2 * 99)


@pytest.mark.nightly
def test_a_thousand_workers_compute_more_than_seven_tenths_of_the_time():
    assert sweep(MEASURED, 1000, 1e9, 4.0).busy >= 0.7
    assert sweep(MEASURED, 4000, 1e9, 0.5).busy < 0.7  # the scheduler
