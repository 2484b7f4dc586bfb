from hypothesis import given
from hypothesis import strategies as st

from tracer.executors.onnxruntime import chunk_plan
from tracer.executors.onnxruntime.settings import OrtSettings

runs = st.integers(1, 100_000)
per_run = st.integers(1, 3_000_000)


@given(runs, per_run, st.integers(0, 100_000), st.integers(0, 50_000))
def test_a_chunk_never_makes_more_events_than_the_profiler_holds_unless_one_run_does(
    wanted, events, warmup, done
):
    warm, count = chunk_plan.plan(
        chunk_plan.Done(done, done / 1e3, events),
        OrtSettings(runs=wanted + done, warmup=warmup),
    )
    assert 1 <= count <= wanted
    assert warm <= min(warmup, 5)
    assert (warm + count) * events <= chunk_plan.MOST_EVENTS or (warm, count) == (0, 1)


@given(runs, per_run)
def test_every_run_is_made_and_no_more(wanted, events):
    options, done = OrtSettings(runs=wanted), 0
    while options.missing_runs(done, 0.0):
        done += chunk_plan.plan(chunk_plan.Done(done, 0.0, events), options)[1]
    assert done == wanted


def test_a_session_is_not_opened_for_a_few_runs_of_a_large_model():
    large = chunk_plan.Done(runs=10, seconds=1.0, events=5_000)
    assert chunk_plan.plan(large, OrtSettings(runs=1000))[1] >= 20


def test_time_asked_for_is_made_up_by_runs():
    assert OrtSettings(min_time=1.0).missing_runs(10, 0.1) == 91
    assert OrtSettings(min_time=1.0).missing_runs(10, 1.0) == 0
    assert OrtSettings().missing_runs(10, 0.1) == 91
    assert OrtSettings(runs=10).missing_runs(10, 0.1) == 0
