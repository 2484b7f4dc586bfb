"""Profiled blocks that take turns: how many there are, in which order, and which are complete."""

import math
import random
import weakref
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from tracer.api.compare import SideSettings, running
from tracer.containment import signals
from tracer.containment.activity import silent
from tracer.executors import measuring
from tracer.executors.measuring import Recorder, RunTimes


class Clock:
    """Time that sides advance, and the order in which they opened and ran."""

    def __init__(self):
        self.now, self.events = 0.0, []


class Fake:
    """A side whose only kernel takes all of a run of so many µs; the profiler loses `lost` runs."""

    block_us = 0.0

    def __init__(self, clock, name, us, lost=0, fails_at=None):
        self.clock, self.name, self.us, self.lost, self.fails_at = clock, name, us, lost, fails_at

    def _run(self, kind, us):
        if self.fails_at and len(self.clock.events) >= self.fails_at:
            signals._received.append(KeyboardInterrupt())
            raise KeyboardInterrupt
        self.clock.events.append((self.name, kind))
        self.clock.now += us / 1e6
        return us

    @contextmanager
    def recording(self):
        times = []

        def record(runs):
            for index in range(runs):
                times.append(self._run("profiled" if index == 0 else "more", 2 * self.us))

        def read():
            kept = np.array(times[: len(times) - self.lost])
            return RunTimes(["kernel"], kept[:, None], kept)

        self.clock.events.append((self.name, "opened"))
        yield Recorder(lambda: self._run("plain", self.us), record, read)
        self.clock.events.append((self.name, "closed"))


@pytest.fixture
def clock(monkeypatch, comparison_seconds, comparison_paces):
    made = Clock()
    monkeypatch.setattr(measuring, "SECONDS", comparison_seconds)
    monkeypatch.setattr(running, "PACES", comparison_paces)
    monkeypatch.setattr(measuring.time, "monotonic", lambda: made.now)
    yield made
    signals._received.clear()


def measured(*sides, together=True, **settings):
    return running.layer_turns(sides, SideSettings(threads=1, **settings), together, silent)


def test_sides_are_open_together_and_their_blocks_take_turns_in_any_order(clock):
    sides = [Fake(clock, name, 100) for name in "abc"]
    made, notes = measured(*sides, sessions=6)
    assert [len(side) for side in made] == [6, 6, 6] and not notes
    assert len({tuple(map(len, side)) for side in made}) == 1
    ends = [place for place, event in enumerate(clock.events) if event[1] == "opened"]
    assert len(ends) == 18
    orders = set()
    for session in np.split(np.arange(len(clock.events)), ends[3::3]):
        events = [clock.events[place] for place in session]
        assert {kind for _, kind in events[:3]} == {"opened"}
        blocks = [name for name, kind in events if kind == "profiled"]
        each = ["".join(blocks[at : at + 3]) for at in range(0, len(blocks), 3)]
        assert {"".join(sorted(turn)) for turn in each} == {"abc"}
        orders.update(each)
    assert len(orders) > 3


@pytest.mark.parametrize(("us", "runs"), [(20, 25), (330, 5), (2000, 3), (30_000, 1)])
def test_a_block_is_long_enough_for_a_coarse_clock_and_short_of_a_long_run(clock, us, runs):
    (first,), _ = measured(Fake(clock, "a", us), sessions=2)
    assert {session.samples_us.shape[1:] for session in first} == {(runs, 1)}
    assert {session.wall_us.shape for session in first} == {(runs,)}
    assert all(len(session) >= 3 for session in first)


def test_slow_sides_have_eight_sessions_and_a_note(clock):
    made, (note,) = measured(Fake(clock, "a", 1e6), Fake(clock, "b", 1e6))
    assert [len(side) for side in made] == [8, 8]
    assert note.startswith("layers are compared in 8 sessions of each side, not 24")


def test_turns_that_the_profiler_lost_are_left_out_on_all_sides(clock):
    made, _ = measured(Fake(clock, "a", 330), Fake(clock, "b", 330, lost=7), sessions=3)
    lengths = {len(session) for side in made for session in side}
    blocks = [name for name, kind in clock.events if kind == "profiled"].count("a") / 3
    assert lengths == {int(blocks) - 2}  # five runs are a turn


def test_sides_that_do_not_fit_together_are_opened_one_after_the_other(clock):
    sides = [Fake(clock, name, 400) for name in "ab"]
    made, _ = measured(*sides, together=False, sessions=9)
    assert [[len(session) for session in side] for side in made] == [[1] * 9] * 2
    kinds = [kind for _, kind in clock.events if kind in ("opened", "closed")]
    assert kinds == ["opened", "closed"] * 18
    opened = "".join(name for name, kind in clock.events if kind == "opened")
    assert {opened[at : at + 2] for at in range(0, 18, 2)} == {"ab", "ba"}


def test_a_side_leaves_the_memory_before_the_next_one_is_opened(clock):
    held = weakref.WeakSet()

    class Weights:
        pass

    class Large(Fake):
        @contextmanager
        def recording(self):
            assert not held
            weights = Weights()
            held.add(weights)
            with super().recording() as recorder:
                yield replace(recorder, plain=lambda: (recorder.plain(), weights)[0])

    made, _ = measured(*(Large(clock, name, 400) for name in "ab"), together=False, sessions=4)
    assert [len(side) for side in made] == [4, 4]


def test_a_signal_leaves_the_sessions_that_are_complete_on_all_sides(clock):
    sides = [Fake(clock, "a", 500), Fake(clock, "b", 500, fails_at=3000)]
    made, notes = measured(*sides, sessions=1000)
    opened = sum(kind == "opened" for _, kind in clock.events) // 2
    assert opened > 1 and [len(side) for side in made] == [opened - 1] * 2
    assert not notes


def test_the_time_is_a_share_of_what_is_left_of_a_limit(clock, monkeypatch):
    monkeypatch.setattr(measuring.signals, "seconds_left", lambda: 3.0)
    chance = random.Random(0)
    sides = [Fake(clock, "a", 2e4 * math.exp(chance.gauss(0, 0.1)))]
    measured(*sides)
    assert 1.5 <= clock.now < 3
