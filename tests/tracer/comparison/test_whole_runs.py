"""Whole runs that take turns: when they end, and what their ratio is worth."""

import math
import random
from contextlib import contextmanager

import numpy as np
import pytest

from tracer.analyzers.compare.contrast import of_sessions
from tracer.api.compare import SideSettings, running
from tracer.containment.activity import silent
from tracer.executors import measuring


class Machine:
    """A clock that sides advance: it is twice as slow for a while, again and again."""

    def __init__(self):
        self.now, self.opened, self.order = 0.0, 0, []

    def run(self, us):
        self.now += us * (2 if int(self.now / 50_000) % 2 else 1) / 1e6
        return us * (2 if int(self.now * 20) % 2 else 1)


class Fake:
    """A side whose runs take so many µs, a little more or less in each session."""

    block_us = 0.0

    def __init__(self, machine, name, us, scatter=0.0, seed=0):
        self.machine, self.label, self.us, self.scatter = machine, name, us, scatter
        self.chance = random.Random(f"{name}{seed}")

    @contextmanager
    def ready(self):
        self.machine.opened += 1
        us = self.us * math.exp(self.chance.gauss(0, self.scatter))

        def timed():
            self.machine.order.append(self.label)
            return self.machine.run(us)

        yield timed

    def whole_runs(self):
        return measuring.timed(self.ready)


@pytest.fixture
def machine(monkeypatch, comparison_seconds, comparison_paces):
    clock = Machine()
    monkeypatch.setattr(measuring, "SECONDS", comparison_seconds)
    monkeypatch.setattr(running, "PACES", comparison_paces)
    monkeypatch.setattr(measuring.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(measuring.time, "sleep", lambda seconds: None)
    return clock


def measured(machine, *sides, **settings):
    return running.whole_runs(sides, SideSettings(threads=1, **settings), silent)


def test_turns_go_on_until_the_ratio_is_as_exact_as_asked(machine):
    sides = [Fake(machine, "a", 50, 0.01), Fake(machine, "b", 51, 0.01)]
    (first, second), (note,) = measured(machine, *sides, precision=0.005)
    found = of_sessions(first, second)
    assert len(first) > 24 and len(first) % 8 == 0
    assert (found.high - found.low) / 2 / found.ratio <= 0.005
    assert found.low <= 1.02 <= found.high
    assert f"{len(first)} sessions of each side" in note
    assert machine.opened == 2 * len(first)


def test_a_steady_machine_needs_no_more_sessions_than_asked(machine):
    sides = [Fake(machine, "a", 50, 1e-4), Fake(machine, "b", 50, 1e-4)]
    (first, second), _ = measured(machine, *sides, sessions=5)
    assert len(first) == len(second) == 5


def test_turns_end_when_the_time_is_up_and_say_what_is_not_reached(machine):
    sides = [Fake(machine, "a", 5000, 0.3), Fake(machine, "b", 5000, 0.3)]
    (first, _), (note,) = measured(machine, *sides, precision=0.001)
    assert 10 < machine.now < 13
    assert f"not ±0.001, in {len(first)} sessions" in note


def test_a_precision_beyond_what_layouts_allow_is_said_to_be_so(machine):
    sides = [Fake(machine, "a", 5000, 1e-4), Fake(machine, "b", 5000, 1e-4)]
    _, (note,) = measured(machine, *sides, precision=0.002)
    assert "not ±0.002" in note and "±0.0039 through their places in memory alone" in note


def test_each_of_two_sides_comes_first_in_every_second_turn(machine):
    sides = [Fake(machine, name, 500, 0.01) for name in "ab"]
    blocks, _ = measured(machine, *sides)
    of_a_session = machine.order[2 : 2 + 4 * len(blocks[0][0])]  # after a run that tells its time
    firsts = of_a_session[::4]
    assert all({a, b} == {"a", "b"} for a, b in zip(firsts[::2], firsts[1::2], strict=False))


def test_slow_sides_have_few_sessions_and_turns(machine):
    sides = [Fake(machine, "a", 3e6, 0.01), Fake(machine, "b", 3e6, 0.01)]
    (first, second), _ = measured(machine, *sides)
    assert [len(blocks) for blocks in first] == [len(blocks) for blocks in second] == [3] * 4


def test_all_sides_run_once_a_turn_in_any_order(machine):
    sides = [Fake(machine, name, 500, 0.01) for name in "abc"]
    blocks, _ = measured(machine, *sides)
    assert len({tuple(map(len, of_side)) for of_side in blocks}) == 1
    of_a_session = machine.order[3 : 3 + 6 * len(blocks[0][0])]  # after a run that tells its time
    turns = ["".join(of_a_session[at : at + 6 : 2]) for at in range(0, len(of_a_session), 6)]
    assert {"".join(sorted(turn)) for turn in turns} == {"abc"}
    assert len(set(turns)) > 2


def test_short_runs_share_a_block(machine):
    sides = [Fake(machine, "a", 7, 1e-4), Fake(machine, "b", 300, 1e-4)]
    (first, second), _ = measured(machine, *sides, sessions=2)
    runs = {name: machine.order.count(name) / sum(map(len, of)) for name, of in
            zip("ab", (first, second), strict=True)}  # fmt: skip
    assert runs["a"] >= 100 / 14  # a block of 100 µs, at either speed, and a run before it
    assert 2 <= runs["b"] < 2.1
    ratios = [np.median(b / a) for a, b in zip(first, second, strict=True)]
    assert ratios == pytest.approx([300 / 7] * len(ratios), rel=0.01)
