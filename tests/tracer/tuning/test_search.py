"""What a search decides, where the times of all setups are told."""

import numpy as np
import pytest

from tests.graphs import parse, residual
from tests.tracer.tuning.told import Bench, findings
from tracer.containment import signals
from tracer.containment.activity import silent
from tracer.errors import UsageError
from tracer.executors.onnxruntime import feeding
from tracer.executors.settings import SessionSettings
from tracer.support.tolerance import Tolerance
from tracer.tuning.candidates import Request
from tracer.tuning.search import ByTime, Search

SPINNING = "session.intra_op.allow_spinning"


@pytest.fixture(scope="module")
def found():
    """The findings on a residual network at several settings, by name."""
    base = residual()
    return {
        "default": findings(base),
        "one thread": findings(base, threads=1),
        "not optimised": findings(base, optimization="none"),
        "memory": findings(base, goal="memory"),
    }


def searched(found, cost, *, seconds=60.0, seed=0, told=None, **request):
    bench = Bench(cost, seed, **(told or {}))
    search = Search(found, Request(seconds=seconds, goal=found.goal, **request), bench, silent,
                    bench.clock)  # fmt: skip
    return search.run(), bench


def steps(result):
    return [str(step) for step in result.best.steps]


def threads_of(setup):
    return setup.settings.threads or 4


def spins(setup):
    return setup.session.entries.get(SPINNING) != "0"


@pytest.mark.nightly
def test_a_big_product_on_one_thread_gets_all_of_them(found):
    result, _ = searched(found["one thread"], lambda setup: 1000 / threads_of(setup) + 20)
    assert steps(result) == ["threads=4"]
    assert 1 / result.contrast.ratio == pytest.approx(1020 / 270, rel=0.02)


def test_threads_that_spin_on_busy_cores_are_told_to_sleep(found):
    def cost(setup):
        return 1000 / threads_of(setup) * (3 if spins(setup) and threads_of(setup) > 1 else 1)

    result, _ = searched(found["default"], cost)
    assert steps(result) == ["spinning=off"]


def test_a_graph_that_is_not_optimised_is(found):
    result, _ = searched(
        found["not optimised"],
        lambda setup: {"none": 100, "extended": 60, "all": 40}[setup.settings.optimization],
    )
    assert steps(result) == ["optimization=all"]


@pytest.mark.skipif(
    not feeding.can_flush_denormals(), reason="the control register is not known here"
)
def test_denormals_are_flushed():
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[64,64] x) => (float[64,64] y) { y = MatMul (x, w) }
    """
    tiny = parse(text, w=np.full((64, 64), 1e-39, np.float32))
    result, _ = searched(
        findings(tiny), lambda setup: 10 if setup.session.flushes_denormals else 100
    )
    assert steps(result) == ["denormals=zero"]


@pytest.mark.nightly
def test_what_was_shown_alone_is_measured_again_where_combining_showed_nothing(found, monkeypatch):
    monkeypatch.setattr(ByTime, "improves", lambda *_: False)  # as in too few turns
    result, _ = searched(found["one thread"], lambda setup: 1000 / threads_of(setup))
    assert steps(result) == ["threads=4"]
    assert 1 / result.contrast.ratio == pytest.approx(4, rel=0.02)
    for seed in range(6):
        result, _ = searched(found["default"], lambda setup: 100, seed=seed, seconds=20)
        assert steps(result) == [], seed


@pytest.mark.nightly
def test_where_nothing_helps_nothing_is_kept(found):
    for seed in range(12):
        result, _ = searched(found["default"], lambda setup: 100, seed=seed, seconds=20)
        assert steps(result) == [], seed


def test_a_gain_of_less_than_one_percent_is_not_worth_a_change(found):
    result, _ = searched(
        found["default"], lambda setup: 100 if setup.session.arena else 99.5, told={"scatter": 1e-4}
    )
    assert steps(result) == []


def test_of_two_changes_that_do_the_same_one_is_kept(found):
    def cost(setup):
        return 50 if not spins(setup) or threads_of(setup) == 1 else 100

    result, _ = searched(found["default"], cost)
    assert len(steps(result)) == 1
    assert result.contrast.ratio == pytest.approx(0.5, rel=0.02)


def test_changes_that_harm_each_other_are_not_combined(found):
    def cost(setup):
        one, other = threads_of(setup) == 1, setup.settings.optimization == "basic"
        return {(False, False): 100, (True, False): 60, (False, True): 70, (True, True): 90}[
            one, other
        ]

    result, _ = searched(found["default"], cost)
    assert steps(result) == ["threads=1"]


def test_a_second_form_wins_where_another_change_is_made(found):
    def cost(setup):
        counts = {1: 95, 2: 90, 3: 97, 4: 100}
        if not spins(setup):
            counts = {1: 80, 2: 75, 3: 60, 4: 70}
        return counts[threads_of(setup)]

    result, _ = searched(found["default"], cost)
    assert steps(result) == ["threads=3", "spinning=off"]


def test_small_gains_add_up(found):
    def cost(setup):
        saved = (not spins(setup)) + (not setup.session.memory_pattern)
        saved += setup.settings.optimization == "extended"
        return 100 * 0.9**saved

    result, _ = searched(found["default"], cost)
    assert steps(result) == ["optimization=extended", "spinning=off", "memory_pattern=off"]
    assert result.contrast.ratio == pytest.approx(0.729, rel=0.02)


@pytest.mark.nightly
def test_results_that_change_are_never_kept(found):
    def outputs(setup):
        return [np.ones(3, np.float32) * (1.01 if setup.settings.optimization == "basic" else 1)]

    def cost(setup):
        return 10 if setup.settings.optimization == "basic" else 100

    result, _ = searched(found["default"], cost, told={"outputs": outputs})
    assert steps(result) == []
    (basic,) = [c for c in result.candidates if str(c.steps[0]) == "optimization=basic"]
    assert basic.fault.startswith("changes results: the largest error is 0.0")
    assert basic.difference == pytest.approx(0.01, rel=0.01)
    result, _ = searched(
        found["default"], cost, told={"outputs": outputs}, tolerance=Tolerance(relative=0.1)
    )
    assert steps(result) == ["optimization=basic"]


def test_fewer_bits_are_tried_only_where_they_are_allowed(found):
    def cost(setup):
        return 10 if setup.model is not found["default"].model else 100

    def outputs(setup):
        return [np.ones(3, np.float32) * (1.5 if cost(setup) == 10 else 1)]

    result, _ = searched(found["default"], cost, told={"outputs": outputs})
    assert steps(result) == []
    assert {c.fault for c in result.candidates if c.steps[0].change.effect == "quantize"} == {
        "needs --allow quantize"
    }
    allowed = frozenset({"quantize"})
    result, _ = searched(
        found["default"], cost, told={"outputs": outputs}, allow=allowed, only=("static_int8",)
    )
    assert len(steps(result)) == 1
    assert result.best.difference == pytest.approx(0.5)


def test_slow_forms_are_measured_less(found):
    _, bench = searched(found["default"], lambda setup: 100 * threads_of(setup))
    alone = bench.raced[: bench.raced.index(min(bench.raced))]
    assert alone[0] > alone[-1]
    assert alone == sorted(alone, reverse=True)


def test_the_time_is_kept(found):
    for seconds in (5, 50):
        _, bench = searched(
            found["default"], lambda setup: 100 / threads_of(setup), seconds=seconds
        )
        assert bench.now < 1.3 * seconds + 3


def test_forms_for_which_no_time_is_left_are_not_measured(found):
    def opens(bench, setup):
        bench.now += 0.5  # a race of twelve takes 36 s
        return [np.ones(3, np.float32)]

    result, bench = searched(found["default"], lambda setup: 100, seconds=20, told={"opens": opens})
    own = [candidate for candidate in result.candidates if len(candidate.own) > 1]
    late = [c.fault for c in result.candidates if c.fault.startswith("no time was left")]
    assert own and late and not result.is_whole
    assert bench.now <= 1.2 * 20
    assert steps(result) == [] and result.best.setup is found["default"].setup


def test_memory_that_takes_too_long_to_measure_is_left_out(found):
    def probes(bench, setup):
        bench.now += 3
        return 1 << 20

    result, bench = searched(
        found["default"], lambda setup: 100, seconds=20, told={"probes": probes}
    )
    assert result.memory_before == 1 << 20 and result.is_whole
    assert not [candidate for candidate in result.candidates if candidate.memory]
    assert bench.now <= 1.2 * 20


@pytest.mark.parametrize("after", [0, 1])
def test_a_time_limit_leaves_the_forms_that_were_measured(found, after):
    def stops(bench):
        if len(bench.raced) >= after:
            up = signals.TimeUp()
            signals._received.append(up)
            raise up

    result, _ = searched(found["default"], lambda setup: 100, told={"stops": stops})
    assert not result.is_whole and signals.ending() == ""
    assert any(len(candidate.own) > 1 for candidate in result.candidates) == bool(after)
    assert all(c.fault for c in result.candidates if len(c.own) < 2)
    assert steps(result) == []


def test_a_signal_ends_a_search(found):
    def stops(bench):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        searched(found["default"], lambda setup: 100, told={"stops": stops})


def test_a_goal_of_memory_is_judged_by_memory(found):
    result, _ = searched(
        found["memory"], lambda setup: 100,
        told={"memory": lambda setup: (1 << 20) * (2 if setup.session.arena else 1)},
        only=("arena", "memory_pattern", "threads"),
    )  # fmt: skip
    assert steps(result) == []  # a small model: the arena does not apply
    result, _ = searched(
        found["memory"], lambda setup: 100,
        told={"memory": lambda setup: (1 << 20) * (2 if setup.session.memory_pattern else 1)},
    )  # fmt: skip
    assert steps(result) == ["memory_pattern=off"]
    assert (result.memory_before, result.best.memory) == (2 << 20, 1 << 20)


def test_what_applies_already_is_not_tried_again():
    chosen = SessionSettings(entries={SPINNING: "0"}, memory_pattern=False, arena=False, bound=True)
    result, _ = searched(findings(residual(), session=chosen), lambda setup: 100, seconds=1)
    names = {candidate.steps[0].change.name for candidate in result.candidates}
    assert not names & {"spinning", "memory_pattern", "arena", "binding"}


def test_an_unknown_change_is_refused_with_the_names(found):
    with pytest.raises(UsageError, match=r"no change 'warp'.*threads"):
        searched(found["default"], lambda setup: 1, only=("warp",))
