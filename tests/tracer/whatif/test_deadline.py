"""What-ifs that end early: what they answer holds, and was found until then."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.tracer.whatif import networks
from tracer.analyzers.views import render
from tracer.api.whatif import what_if
from tracer.errors import LimitError
from tracer.limits import Limits
from tracer.whatif import criteria
from tracer.whatif.options import WhatIfOptions

OPTIONS = WhatIfOptions(batch=40, accuracy_budget=20, metric="agreement")
WIDTHS = "8:16"


@pytest.fixture
def files(tmp_path):
    return networks.model(tmp_path / "m.onnx"), networks.data(tmp_path / "d.npz", 80)


def ended_after(monkeypatch, looks, files, widths=WIDTHS, options=OPTIONS):
    """A what-if for which a second passes with each look at the clock."""
    clock = iter(range(10**6))
    monkeypatch.setattr(criteria, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    limits = Limits(seconds=looks)
    return what_if(files[0], widths, files[1], options, limits=limits, in_process=True)


def scores_of(files, variant):
    """The score at the widths of each node, each in a sweep of its own."""
    found = {}
    for choice in filter(None, (variant.answer.uniform, variant.answer.each)):
        pins = dict(zip((work.node for work in variant.work), choice.widths, strict=True))
        *rest, last = pins
        policy = ",".join(f"{node}={pins[node]}" for node in rest) + f",{last}={pins[last]}:24"
        (one,) = what_if(*(files[0], policy, files[1]), replace(OPTIONS, search=False)).variants
        found[choice.widths] = one.answer.rows[0].score
    return found


@pytest.mark.nightly
def test_what_a_search_without_time_answers_holds(monkeypatch, files):
    (whole,) = what_if(files[0], WIDTHS, files[1], OPTIONS).variants
    rows = {row.bits: row for row in whole.answer.rows}
    energies = []
    for looks in (4, 7, 12, 20, 40):
        with monkeypatch.context() as patch:
            result = ended_after(patch, looks, files)
        (one,) = result.variants
        assert one.answer.ended == "out of time"
        assert all(row.score == rows[row.bits].score for row in one.answer.rows[:-1])
        assert one.answer.observed == whole.answer.observed
        best = one.answer.each or one.answer.uniform
        energies.append(best.energy)
        for widths, score in scores_of(files, one).items():
            assert score >= one.answer.score - OPTIONS.accuracy_budget, (looks, widths)
        assert "Ended early, out of time" in render(result, "md").decode()
    assert energies == sorted(energies, reverse=True)
    assert energies[0] > energies[-1] >= whole.answer.each.energy


def test_variants_without_time_are_left_out_and_counted(monkeypatch, files):
    options = replace(OPTIONS, orders=("sequential", "tree"))
    result = ended_after(monkeypatch, 5, files, options=options)
    assert len(result.variants) == 1
    assert "out of time: 1 of 2 variants were tried" in result.notes


def test_enough_time_changes_nothing(files):
    (whole,) = what_if(files[0], WIDTHS, files[1], OPTIONS).variants
    (same,) = what_if(files[0], WIDTHS, files[1], OPTIONS, limits=Limits(seconds=600)).variants
    assert same.answer.each == whole.answer.each
    assert not same.answer.ended


def test_a_limit_that_leaves_no_time_for_the_wide_pass_is_an_error(files):
    with pytest.raises(LimitError, match=r"time limit was reached|exceeds the limit"):
        what_if(files[0], WIDTHS, files[1], OPTIONS, limits=Limits(seconds=1e-6))
