"""Spans to rows and kernels, on trees of any shape; and how runs are taken in turn."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracer.containment.activity import silent
from tracer.errors import UsageError
from tracer.executors import eager
from tracer.executors.calls import Calls, Kind, Span
from tracer.executors.eager import Measured, Overhead, profile_of
from tracer.executors.settings import EagerSettings
from tracer.support.measurements import RunTimer

NAMES = st.sampled_from(["a::x", "a::y", "z"])
LEAF = st.tuples(st.sampled_from(["operator", "module"]), NAMES, st.just([]))
TREES = st.lists(
    st.recursive(
        LEAF,
        lambda inner: st.tuples(
            st.sampled_from(["operator", "module"]), NAMES, st.lists(inner, max_size=4)
        ),
        max_leaves=25,
    ),
    max_size=5,
)


def spans_of(trees, start=0, inside=False):
    """Spans of a forest, where it ends, and the time in operators that are in no other."""
    spans, outermost = [], 0
    for kind, name, inner in trees:
        own, end, within = spans_of(inner, start + 1, inside or kind == "operator")
        end += 1
        kinds = Kind.FORWARD if kind == "operator" else Kind.MODULE
        spans += [Span(kinds, name, start, end), *own]
        if kind == "module":
            outermost += within
        elif not inside:
            outermost += end - start
        start = end + 1
    return spans, start, outermost


@settings(deadline=None)
@given(TREES, st.randoms())
def test_own_times_add_up_to_those_of_the_outermost_operators(trees, random):
    spans, _, outermost = spans_of(trees)
    random.shuffle(spans)
    calls = Calls("a")
    calls.add(spans)
    calls.add(spans)
    samples = calls.samples()
    assert (samples[0] == samples[1]).all()
    assert (samples >= 0).all()
    assert samples[0].sum() * 1e3 == pytest.approx(outermost, rel=1e-3, abs=1e-3)
    assert len(calls.sites) == sum(span.kind is Kind.FORWARD for span in spans)
    assert len({site.path for site in calls.sites}) == len(calls.sites)
    assert calls.calls() == [1.0] * len(calls.sites)
    assert {site.node for site in calls.sites} == set(calls.operations)


def test_a_gradient_of_no_origin_belongs_to_the_row_before_it():
    calls = Calls("a")
    calls.add(
        [
            Span(Kind.MODULE, "m", 0, 10),
            Span(Kind.FORWARD, "a::f", 1, 9, origin=4),
            Span(Kind.FORWARD, "a::g", 2, 8, origin=5),  # the forward operator of the gradient
            Span(Kind.FORWARD, "a::h", 11, 12, origin=6),
            Span(Kind.BACKWARD, "HBackward", 20, 21, origin=6),
            Span(Kind.BACKWARD, "GBackward", 22, 23, origin=5),
            Span(Kind.BACKWARD, "Accumulate", 24, 25),
        ]
    )
    owners = {site.name: site.node for site in calls.sites}
    assert owners["HBackward"] == "h (backward)"
    assert owners["GBackward"] == owners["Accumulate"] == "m/f (backward)"
    assert calls.operations["m/f (backward)"].module == "m"


def test_what_recording_costs_is_taken_from_the_call_around():
    calls = Calls("a")
    calls.add([Span(Kind.FORWARD, "f", 0, 9000), Span(Kind.FORWARD, "g", 100, 200)])
    calls.add([Span(Kind.FORWARD, "f", 0, 9000)])
    measured = Measured("e", "cpu", [], [10.0], [20.0], Overhead(0.5, 2.0))
    run = profile_of(calls, measured).run
    assert [k.calls for k in run.kernels] == [1.0, 0.5]
    assert run.bias_us.tolist() == [0.5 + 2.0 * 0.5, 0.5]


def test_no_more_is_taken_than_recording_cost_in_all():
    assert Overhead(1.0, 3.0).at_most(2.0) == Overhead(0.5, 1.5)
    assert Overhead(1.0, 3.0).at_most(9.0) == Overhead(1.0, 3.0)
    assert Overhead(1.0, 3.0).at_most(-1.0) == Overhead(0.0, 0.0)
    assert Overhead(0.0, 0.0).at_most(-1.0) == Overhead(0.0, 0.0)


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(1, 40))
def test_every_run_asked_for_is_made_with_undisturbed_ones_on_both_sides(runs, most):
    order = []

    def recorded_runs(count):
        order.append("P")
        return RunTimer([1.0] * count, [0] * count, [1.0] * count)

    recording = SimpleNamespace(
        timed=lambda: order.append("W") or 1.0,
        runs=recorded_runs,
    )
    walls, recorded = eager.alternate(
        EagerSettings(runs=runs), recording, silent,
        samples=lambda: np.ones((order.count("P"), 2)), most_runs=lambda: most,
    )  # fmt: skip
    assert len(recorded.us) == len(recorded.switches) == runs
    assert len(walls.us) >= 5
    blocks = "".join(order).replace("WW", "W")
    while "WW" in blocks:
        blocks = blocks.replace("WW", "W")
    assert blocks.startswith("WP")
    assert runs == 1 or blocks.endswith(("PW", "WP"))
    assert "PPP" not in blocks


def test_without_a_number_runs_go_on_for_half_a_second_or_until_the_slowest_rows_are_clear():
    default = EagerSettings()
    assert default.missing_runs(0, 0.0) == 10
    assert default.missing_runs(10, 0.25) == 11
    assert default.missing_runs(10, 1.5) == 0
    assert default.missing_runs(10, 0.5, spread=1.5) == 13  # 10 x 1.5² in all
    assert default.missing_runs(10, 0.5, spread=9.0) == 20  # 1.5 s at most
    assert EagerSettings(precision=0.01).missing_runs(10, 0.5, spread=9.0) == 190  # 10 s
    assert EagerSettings(runs=5).missing_runs(3, 9.0) == 2
    assert EagerSettings(runs=5, min_time=2.0).missing_runs(5, 1.0) == 6


@pytest.mark.parametrize(
    "wrong",
    [
        {"runs": 0}, {"warmup": -1}, {"min_time": -1}, {"threads": -1}, {"threads": 9999},
        {"loss": "best", "backward": True}, {"optimizer": "best", "backward": True},
        {"device": "tpu"}, {"loss": "sum"}, {"optimizer": "sgd"},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(UsageError):
        EagerSettings(**wrong)
