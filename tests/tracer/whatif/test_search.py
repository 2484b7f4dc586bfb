"""Searches over invented networks whose best widths are known, by trying all of them."""

from __future__ import annotations

import itertools
from contextlib import closing
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tracer.records.whatif import Evaluation
from tracer.storage.whatif_file import WhatIfFile
from tracer.whatif.evaluation import EvaluationCache
from tracer.whatif.sweep import BudgetJudge, Descents, WidthSearch, furthest, pareto_front

NODES = ("a", "b", "c")


class Asked:
    """Says what is allowed, by the widths alone."""

    def __init__(self, allowed):
        self.allowed = allowed

    def __call__(self, widths, near=None):
        return self.allowed(widths)

    def expect(self, widths):
        """Nothing is idle here."""


class Network:
    """A bit too few costs a node's loss; every node has enough at its need."""

    def __init__(self, needs, losses):
        self.needs, self.losses = needs, losses
        self.evaluated = []

    def evaluate(self, bits):
        return replace(self.score(bits), overflows={})

    def score(self, bits, near=None):
        self.evaluated.append(tuple(bits.values()))
        assert near is None or list(near) == list(NODES)
        missing = [max(need - bits[node], 0) for node, need in zip(NODES, self.needs, strict=True)]
        lost = sum(loss * m for loss, m in zip(self.losses, missing, strict=True))
        return Evaluation(bits, 100.0 - lost, None)

    def ahead(self, bits, counted):
        """Nothing is idle here."""

    def share(self, node, bits):
        """Missing bits: more of them let more sums overflow."""
        return max(self.needs[node] - bits, 0) / 100


def searching(cache, network, energy, budget, explain=False):
    return WidthSearch(judge(cache, budget), energy, 2, network.share, explain)


def judge(cache, budget):
    return BudgetJudge(cache, lambda score: score >= 100 - budget)


def energy_of(works):
    return lambda widths: float(sum(w * b for w, b in zip(works, widths, strict=True)))


needs = st.tuples(*[st.integers(4, 9)] * 3)
losses = st.tuples(*[st.integers(1, 9)] * 3)
works = st.tuples(*[st.integers(1, 9)] * 3)


@examples(60)
@given(needs, losses, works, st.integers(0, 12))
def test_one_width_for_all_is_the_least_that_is_allowed(needs, losses, works, budget):
    network = Network(needs, losses)
    cache = EvaluationCache(NODES, network)
    choice = searching(cache, network, energy_of(works), budget).narrowest_uniform(max(needs))
    scores = {bits: network.score(dict.fromkeys(NODES, bits)).score for bits in range(2, 10)}
    least = min(bits for bits, score in scores.items() if score >= 100 - budget)
    assert choice.widths == (least,) * 3
    assert choice.energy == least * sum(works)


@examples(60)
@given(needs, losses, works, st.integers(0, 12), st.none() | losses)
def test_a_width_for_each_costs_no_more_and_cannot_lose_another_bit(
    needs, losses, works, budget, seen
):
    """Whatever losses a screen sees: what it refuses is not tried on all samples."""
    network, energy = Network(needs, losses), energy_of(works)
    cache = EvaluationCache(NODES, network)
    screen = None if seen is None else judge(EvaluationCache(NODES, Network(needs, seen)), budget)
    search = searching(cache, network, energy, budget)
    uniform = search.narrowest_uniform(max(needs))
    choice = search.narrowest_each(needs, uniform.widths, screen)
    assert choice.score == cache(choice.widths).score >= 100 - budget
    assert choice.energy <= min(uniform.energy, energy(needs))
    for node in range(3):
        if choice.widths[node] > 2:
            less = list(choice.widths)
            less[node] -= 1
            refused = screen is not None and screen.cache(tuple(less)).score < 100 - budget
            assert refused or cache(tuple(less)).score < 100 - budget


def test_a_screen_that_is_right_leaves_one_evaluation_for_all_samples():
    needs, losses = (5, 9, 7), (1, 3, 2)
    network, small = Network(needs, losses), Network(needs, losses)
    search = searching(EvaluationCache(NODES, network), network, energy_of((1, 2, 3)), 4)
    alone = search.narrowest_each(needs, (9, 9, 9), None)
    tried = len(network.evaluated)
    network.evaluated.clear()
    search = searching(EvaluationCache(NODES, network), network, energy_of((1, 2, 3)), 4)
    screened = search.narrowest_each(needs, (9, 9, 9), judge(EvaluationCache(NODES, small), 4))
    assert screened == alone
    assert network.evaluated == [alone.widths]
    assert len(small.evaluated) == tried


@examples(40)
@given(needs, works)
def test_nodes_lose_bits_in_step_with_the_overflows_they_cause(needs, works):
    network = Network(needs, (1, 1, 1))
    path = Descents((0, 2), 2, energy_of(works)).equal_shares(needs, network.share)
    assert path[0] == needs
    assert path[-1] == (2, needs[1], 2)  # the second node is not free
    for before, widths in itertools.pairwise(path):
        assert all(a >= b for a, b in zip(before, widths, strict=True)) and before != widths
        most = max(network.share(node, widths[node]) for node in (0, 2))
        for node in (0, 2):
            assert widths[node] == 2 or network.share(node, widths[node] - 1) > most


def test_a_node_whose_bits_take_no_energy_keeps_them():
    network = Network((5, 6, 7), (1, 1, 1))
    descents = Descents((0, 1, 2), 2, energy_of((1, 0, 1)))
    assert {widths[1] for widths in descents.equal_shares((5, 6, 7), network.share)} == {6}
    assert descents.descent((5, 6, 7), Asked(lambda widths: True))[-1] == (2, 6, 2)


@given(st.integers(1, 40), st.integers(0, 39))
def test_the_furthest_allowed_step_is_found(length, last):
    last = min(last, length - 1)
    path = [(bits,) for bits in range(length)]
    assert furthest(path, Asked(lambda widths: widths[0] <= last)) == last


def test_without_a_budget_each_node_gets_what_it_needs():
    network, energy = Network((5, 9, 7), (1, 1, 1)), energy_of((1, 2, 3))
    search = searching(EvaluationCache(NODES, network), network, energy, 0)
    choice = search.narrowest_each((9, 9, 9), (9, 9, 9), None)
    assert choice.widths == (5, 9, 7)
    assert choice.limiting == "a"  # named without --explain: the last round took a bit of each


def test_the_node_that_forbids_another_bit_is_named_where_that_is_to_be_explained():
    for explain, limiting, evaluations in ((False, None, 5), (True, "b", 8)):
        network = Network((5, 6, 6), (1, 5, 2))
        cache = EvaluationCache(NODES, network)
        search = searching(cache, network, energy_of((1, 1, 1)), 3.5, explain)
        choice = search.narrowest_uniform(9)
        assert (choice.widths, choice.limiting) == ((6, 6, 6), limiting)
        assert choice.overflowing == "b"  # as many as of c; a has a bit to spare
        assert len(network.evaluated) == evaluations


def test_no_width_may_be_allowed():
    network = Network((5, 6, 6), (1, 5, 2))
    cache = EvaluationCache(NODES, network)
    search = searching(cache, network, energy_of((1, 1, 1)), -1)
    assert search.narrowest_uniform(9) is None


@examples(40)
@given(needs, losses, works)
def test_the_front_holds_what_nothing_beats(needs, losses, works):
    cache, energy = EvaluationCache(NODES, Network(needs, losses)), energy_of(works)
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
    network = Network((5, 6, 7), (1, 2, 3))
    evaluated = network.evaluated
    with closing(WhatIfFile(tmp_path / "w.trace", {})) as file:
        for _ in range(2):
            cache = EvaluationCache(NODES, network, file=file, variant="v")
            search = searching(cache, network, energy_of((1, 1, 1)), 1)
            search.narrowest_each((5, 6, 7), (8, 8, 8), None)
        assert len(evaluated) == len(set(evaluated)) == len(cache)
        other = EvaluationCache(NODES, network, file=file, variant="w")
        other((8, 8, 8))
    assert len(evaluated) == len(cache) + 1


def test_counts_are_computed_where_a_file_has_only_the_score(tmp_path):
    network = Network((5, 6, 7), (1, 2, 3))
    with closing(WhatIfFile(tmp_path / "w.trace", {})) as file:

        def cache():
            return EvaluationCache(NODES, network, file=file, variant="v")

        first = cache()
        assert first((8, 8, 8)).overflows is None
        assert first.counted((8, 8, 8)).overflows == first((8, 8, 8)).overflows == {}
        assert len(network.evaluated) == 2
        # What a file holds changes the evaluations that are made, and nothing that is returned.
        assert cache()((8, 8, 8)).overflows is None
        assert cache().counted((8, 8, 8)).overflows == {}
        assert len(network.evaluated) == 2


def test_progress_counts_requests_and_resets_with_each_purpose():
    reports = []
    cache = EvaluationCache(
        NODES, Network((5, 6, 7), (1, 2, 3)), pinned={"b": 9},
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
