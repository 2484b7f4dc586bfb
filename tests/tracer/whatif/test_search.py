"""Searches over invented networks whose best widths are known, by trying all of them."""

from __future__ import annotations

import itertools
from contextlib import closing

from hypothesis import given, settings
from hypothesis import strategies as st

from tracer.records.whatif import Evaluation
from tracer.storage.whatif_file import WhatIfFile
from tracer.whatif.evaluation_cache import EvaluationCache
from tracer.whatif.search import WidthSearch, pareto_front

NODES = ("a", "b", "c")


def network(needs, losses):
    """A bit too few costs a node's loss; every node has enough at its need."""

    def evaluate(bits):
        missing = [max(need - bits[node], 0) for node, need in zip(NODES, needs, strict=True)]
        lost = sum(loss * m for loss, m in zip(losses, missing, strict=True))
        return Evaluation(bits, 100.0 - lost, {})

    return evaluate


def energy_of(works):
    return lambda widths: float(sum(w * b for w, b in zip(works, widths, strict=True)))


needs = st.tuples(*[st.integers(4, 9)] * 3)
losses = st.tuples(*[st.integers(1, 9)] * 3)
works = st.tuples(*[st.integers(1, 9)] * 3)


@settings(max_examples=60, deadline=None)
@given(needs, losses, works, st.integers(0, 12))
def test_one_width_for_all_is_the_least_that_is_allowed(needs, losses, works, budget):
    cache = EvaluationCache(NODES, network(needs, losses))
    allowed = lambda score: score >= 100 - budget  # noqa: E731
    choice = WidthSearch(cache, energy_of(works), allowed).narrowest_uniform(max(needs))
    evaluate = network(needs, losses)
    least = min(b for b in range(2, 10) if allowed(evaluate(dict.fromkeys(NODES, b)).score))
    assert choice.widths == (least,) * 3
    assert choice.energy == least * sum(works)


@settings(max_examples=60, deadline=None)
@given(needs, losses, works, st.integers(0, 12))
def test_a_width_for_each_costs_no_more_and_cannot_lose_another_bit(needs, losses, works, budget):
    cache, energy = EvaluationCache(NODES, network(needs, losses)), energy_of(works)
    allowed = lambda score: score >= 100 - budget  # noqa: E731
    search = WidthSearch(cache, energy, allowed)
    uniform = search.narrowest_uniform(max(needs))
    choice = search.narrowest_each((uniform.widths, needs))
    assert allowed(choice.score)
    assert choice.energy <= min(uniform.energy, energy(needs))
    for node in range(3):
        if choice.widths[node] > 2:
            less = list(choice.widths)
            less[node] -= 1
            assert not allowed(cache(tuple(less)).score)


def test_without_a_budget_each_node_gets_what_it_needs():
    cache, energy = EvaluationCache(NODES, network((5, 9, 7), (1, 1, 1))), energy_of((1, 2, 3))
    choice = WidthSearch(cache, energy, lambda score: score >= 100).narrowest_each(((9, 9, 9),))
    assert choice.widths == (5, 9, 7)
    assert choice.limiting == "a"


def test_the_node_that_forbids_another_bit_is_named():
    cache = EvaluationCache(NODES, network((5, 6, 6), (1, 5, 2)))
    search = WidthSearch(cache, energy_of((1, 1, 1)), lambda score: score > 96)
    choice = search.narrowest_uniform(9)
    assert (choice.widths, choice.limiting) == ((6, 6, 6), "b")


def test_no_width_may_be_allowed():
    cache = EvaluationCache(NODES, network((5, 6, 6), (1, 5, 2)))
    search = WidthSearch(cache, energy_of((1, 1, 1)), lambda score: score > 100)
    assert search.narrowest_uniform(9) is None


@settings(max_examples=40, deadline=None)
@given(needs, losses, works)
def test_the_front_holds_what_nothing_beats(needs, losses, works):
    cache, energy = EvaluationCache(NODES, network(needs, losses)), energy_of(works)
    for widths in itertools.product((4, 6, 8), repeat=3):
        cache(widths)
    front = pareto_front(cache, energy, lambda score: score)
    for widths, evaluation in cache:
        beaten = any(
            p.energy <= energy(widths) and p.score >= evaluation.score
            and (p.energy, p.score) != (energy(widths), evaluation.score)
            for p in front
        )  # fmt: skip
        assert beaten or (energy(widths), evaluation.score) in {(p.energy, p.score) for p in front}
    assert [p.energy for p in front] == sorted(p.energy for p in front)
    assert all(x.score < y.score for x, y in itertools.pairwise(front))


def test_nothing_is_evaluated_twice(tmp_path):
    evaluated = []

    def evaluate(bits):
        evaluated.append(tuple(bits.values()))
        return network((5, 6, 7), (1, 2, 3))(bits)

    with closing(WhatIfFile(tmp_path / "w.trace", {})) as file:
        for _ in range(2):
            cache = EvaluationCache(NODES, evaluate, file=file, variant="v")
            search = WidthSearch(cache, energy_of((1, 1, 1)), lambda score: score > 98)
            search.narrowest_each(((8, 8, 8), (5, 6, 7)))
        assert len(evaluated) == len(set(evaluated)) == len(cache)
        other = EvaluationCache(NODES, evaluate, file=file, variant="w")
        other((8, 8, 8))
    assert len(evaluated) == len(cache) + 1


def test_progress_counts_requests_and_resets_with_each_purpose():
    reports = []
    cache = EvaluationCache(
        NODES, network((5, 6, 7), (1, 2, 3)), pinned={"b": 9},
        progress=lambda *report: reports.append(report),
    )  # fmt: skip
    cache.begin("sweep", 3)
    assert [list(cache.uniform(bits).bits.values()) for bits in (4, 5, 5)] == [
        [4, 9, 4], [5, 9, 5], [5, 9, 5]
    ]  # fmt: skip
    cache.begin("search")
    cache((4, 9, 4))
    assert reports == [(1, 3, "sweep"), (2, 3, "sweep"), (3, 3, "sweep"), (1, 0, "search")]
    assert (len(cache), cache.free) == (2, (0, 2))
