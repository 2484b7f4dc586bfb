"""The line on stderr that tells, without a terminal, how long a long task will take."""

from __future__ import annotations

import pytest

from tracer.cli import _messages
from tracer.containment.activity import silent


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands at `clock[0]` seconds."""
    now = [100.0]
    monkeypatch.setattr(_messages.time, "monotonic", lambda: now[0])
    return now


def test_a_long_task_is_estimated_whenever_its_time_has_doubled(clock, capsys):
    seen = []
    report = _messages.estimating(lambda *step: seen.append(step))
    for done in range(1, 9):
        clock[0] += 4
        report(done, 40, "searching widths")
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("searching widths: 3 of 40 in 12 s, about 148 s left")  # 37 steps of 4 s
    assert second.endswith("searching widths: 7 of 40 in 28 s, about 132 s left")
    assert seen == [(done, 40, "searching widths") for done in range(1, 9)]


def test_each_task_has_its_own_time_and_a_short_one_no_line(clock, capsys):
    report = _messages.estimating(silent)
    for done in range(1, 6):
        clock[0] += 1
        report(done, 5, "calibrating")
    for done in range(1, 4):
        clock[0] += 30
        report(done, 0, "evaluating")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("evaluating: 2 steps in 30 s; their number is not known")
