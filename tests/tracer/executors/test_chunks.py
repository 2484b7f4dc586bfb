import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tracer.executors import measuring
from tracer.executors.onnxruntime import recording
from tracer.executors.settings import OrtSettings

runs = st.integers(1, 100_000)
per_run = st.integers(1, 3_000_000)


@given(runs, per_run, st.integers(0, 100_000), st.integers(0, 50_000))
def test_a_chunk_never_makes_more_events_than_the_profiler_holds_unless_one_run_does(
    wanted, events, warmup, done
):
    warm, count = recording.plan_session(
        recording.RunsSoFar(done, done / 1e3, events),
        OrtSettings(runs=wanted + done, warmup=warmup),
    )
    assert 1 <= count <= wanted
    assert warm <= min(warmup, 5)
    assert (warm + count) * events <= recording.MOST_EVENTS or (warm, count) == (0, 1)


@given(runs, per_run)
def test_every_run_is_made_and_no_more(wanted, events):
    options, done = OrtSettings(runs=wanted), 0
    while options.missing_runs(done, 0.0):
        done += recording.plan_session(recording.RunsSoFar(done, 0.0, events), options)[1]
    assert done == wanted


def test_a_session_is_not_opened_for_a_few_runs_of_a_large_model():
    large = recording.RunsSoFar(runs=10, seconds=1.0, events=5_000)
    assert recording.plan_session(large, OrtSettings(runs=1000))[1] >= 20


def test_time_asked_for_is_made_up_by_runs():
    assert OrtSettings(min_time=1.0).missing_runs(10, 0.1) == 91
    assert OrtSettings(min_time=1.0).missing_runs(10, 1.0) == 0
    assert OrtSettings().missing_runs(10, 0.1) == 41
    assert OrtSettings(runs=10).missing_runs(10, 0.1) == 0


@given(st.floats(1e-6, 1e3))
def test_runs_by_default_take_some_seconds_and_are_not_too_few(run_s):
    options, done = OrtSettings(), recording.RunsSoFar(0, 0.0, 100, expected_s=run_s)
    while done.missing(options):
        runs = done.runs + recording.plan_session(done, options)[1]
        done = replace(done, runs=runs, seconds=runs * run_s)
    assert done.runs >= 3
    assert done.runs <= 10 or done.seconds <= 1.1
    assert done.seconds <= 10 or done.runs == 3
    assert bool(options.notes(done.runs, done.seconds)) == (done.runs < 10)


def test_long_runs_need_no_others_to_wake_threads():
    assert recording.plan_session(recording.RunsSoFar(3, 6.0, 100), OrtSettings()) == (1, 2)
    assert recording.plan_session(recording.RunsSoFar(3, 0.003, 100), OrtSettings(runs=4)) == (
        5,
        1,
    )


def test_warm_up_of_a_slow_model_ends_early_unless_runs_are_asked_for(monkeypatch):
    clock, ran = itertools.count(0, 2), []
    monkeypatch.setattr(measuring.time, "monotonic", lambda: next(clock))
    measuring.warm_up(lambda: ran.append("default"), OrtSettings())
    measuring.warm_up(lambda: ran.append("asked for"), OrtSettings(runs=1))
    assert ran == ["default", *["asked for"] * 5]
