"""Which runs count, on a machine made by hand whose quiet times are known."""

import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.records.counted_runs import MachineUse, Usage, counted_runs, outliers
from tracer.support.measurements import HAS_USAGE, RunTimer, summarize, usage

KERNELS = 30
SLICE_US = 3000.0
"""What another program takes of the processor at a time."""


def machine(runs, share, slower=0.0, others=None, seed=0):
    """True times of kernels, samples, walls and use, where a `share` of the runs is disturbed.

    Each disturbed run stalls in one kernel; a third of the runs is `slower` in all of them.
    """
    random = np.random.default_rng(seed)
    true = random.uniform(20, 60, KERNELS)

    def some():
        speed = 1 + slower * (random.random(runs) < 1 / 3)
        samples = true * speed[:, None] * random.normal(1, 0.01, (runs, KERNELS))
        hit = random.random(runs) < share
        wait = np.where(hit, random.uniform(1, 3, runs) * SLICE_US, 0.0)
        cpu = samples.sum(axis=1) + 2.0
        samples[np.arange(runs), random.integers(KERNELS, size=runs)] += wait
        return samples, Usage(hit.astype(float), cpu), samples.sum(axis=1) + 1.0

    samples, profiled_use, profiled = some()
    _, wall_use, wall = some()
    return true, samples, wall, profiled, MachineUse(wall_use, profiled_use, 2, others)


@given(st.integers(20, 200), st.floats(0, 0.9), st.integers(0, 1000))
def test_disturbed_runs_are_left_out_and_the_others_stay(runs, share, seed):
    true, samples, wall, profiled, use = machine(runs, share, seed=seed)
    counted = counted_runs(wall, profiled, samples, use)
    hit = use.profiled.switches > 0
    if counted.few:  # hardly any run was clean: all count, and stalls are left out by themselves
        assert max(hit.mean(), (use.wall.switches > 0).mean()) > 0.7
    else:
        assert not hit[counted.profiled].any()
    assert counted.disturbed == hit.sum() + (use.wall.switches > 0).sum()
    times = summarize(counted.samples, 1.0).mean
    assert np.abs(times / true - 1).max() < 0.05
    assert abs(summarize(counted.wall_us[:, None]).mean[0] / (true.sum() + 1) - 1) < 0.02


def test_a_quiet_machine_loses_no_run_and_says_nothing():
    _, samples, wall, profiled, use = machine(200, 0.0, others=0.02)
    counted = counted_runs(wall, profiled, samples, use)
    assert counted.left_out == counted.disturbed == 0
    assert counted.sentence() is None


def test_on_a_busy_machine_runs_at_full_speed_count():
    true, samples, wall, profiled, use = machine(300, 0.1, slower=0.12, others=0.5)
    counted = counted_runs(wall, profiled, samples, use)
    times = summarize(counted.samples, 1.0).mean
    assert np.abs(times / true - 1).max() < 0.03
    text = counted.sentence()
    assert text.startswith("busy machine: other programs used 50% of the processors; ")
    left, total = re.search(r"([\d,]+) of ([\d,]+) runs were disturbed or slowed", text).groups()
    assert (int(left), int(total)) == (counted.left_out, 600)
    assert 150 < counted.left_out < 400


def test_where_hardly_a_run_is_clean_the_waits_are_taken_from_the_walls():
    true, samples, wall, profiled, use = machine(100, 0.99, others=0.75)
    counted = counted_runs(wall, profiled, samples, use)
    assert counted.few and "the least disturbed" in counted.sentence()
    assert summarize(counted.wall_us[:, None]).mean[0] == pytest.approx(true.sum(), rel=0.02)
    assert wall.mean() > 3 * true.sum()


@pytest.mark.parametrize("short", [0, 1, 40])
def test_a_kernel_that_waits_in_every_run_is_as_long_as_its_processor_time(short):
    """Truth: a kernel of 35 ms, half of whose time others have its processor, beside short ones."""
    random = np.random.default_rng(1)
    true = np.array([35_000.0, *random.uniform(20, 60, short)])
    samples = true * random.normal(1, 0.005, (24, 1 + short))
    cpu = samples.sum(axis=1)
    hit = random.integers(1 + short, size=24)
    samples[np.arange(24), hit] += SLICE_US
    samples[:, 0] += random.uniform(25_000, 60_000, 24)
    wall = samples.sum(axis=1)
    usage = Usage(np.full(24, 12.0), cpu)
    counted = counted_runs(wall, wall, samples, MachineUse(usage, usage, 2, 0.8))
    assert counted.few
    assert summarize(counted.samples, 1.0).mean == pytest.approx(true, rel=0.03)
    assert counted.samples.sum(axis=1).mean() == pytest.approx(counted.wall_us.mean(), rel=0.01)


def test_a_run_that_blocks_of_its_own_is_not_disturbed():
    """As one that waits for a card: it has little processor time, and no involuntary switch."""
    times = np.full(50, 1000.0)
    assert not Usage(np.zeros(50), np.full(50, 100.0)).disturbed(times).any()


def test_threads_that_spin_are_compared_with_the_best_runs():
    times, cpu = np.full(40, 1000.0), np.full(40, 1990.0)
    cpu[:10] = 1500.0
    switched = np.ones(40)
    disturbed = Usage(switched, cpu).disturbed(times)
    assert disturbed[:10].all() and not disturbed[10:].any()


def test_without_the_systems_word_outliers_are_left_out():
    wall = np.array([10.0] * 30 + [500.0])
    counted = counted_runs(wall, wall, wall[:, None], None)
    assert counted.left_out == 2 and outliers(wall).sum() == 1
    assert counted.sentence() is None


@pytest.mark.skipif(not HAS_USAGE, reason="the system counts no context switches")
def test_a_timer_counts_processor_time_and_what_other_programs_took():
    """Truth: a run that sleeps has no processor time, and one that counts uses it all."""
    timer, code = RunTimer(), "import time; time.sleep(0.05)"
    timer.time(lambda: subprocess.run([sys.executable, "-c", code], check=True))
    timer.time(lambda: sum(range(2_000_000)))
    assert timer.cpu_us[0] < timer.us[0] / 2
    assert timer.cpu_us[1] > 0 and len(timer.switches) == 2
    assert usage()[1] >= timer.cpu_us[1]
