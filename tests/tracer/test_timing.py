import time

import pytest

from tracer.support.measurements import elapsed_us, times_us


@pytest.fixture
def clock(monkeypatch):
    """A clock in ns that stands still unless a test moves it."""
    now = [0]
    monkeypatch.setattr(time, "perf_counter_ns", lambda: now[0])
    return now


def test_a_call_of_a_millisecond_is_a_thousand_us(clock):
    def call():
        clock[0] += 1_000_500

    assert elapsed_us(call) == 1000.5


def test_each_call_of_a_loop_is_timed_and_the_warm_up_is_not(clock):
    durations = iter([9000, 8000, 3000, 1000, 2000])

    def call():
        clock[0] += next(durations)

    assert times_us(call, 3, warmup=2) == [3.0, 1.0, 2.0]
