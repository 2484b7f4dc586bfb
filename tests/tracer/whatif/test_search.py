"""Searches over made-up networks whose best widths are known, by trying all of them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracer.records.whatif import Evaluation
from tracer.whatif.evaluation_cache import Ledger
from tracer.whatif.search import narrowest_each, narrowest_uniform, pareto_front

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
    ledger = Ledger(NODES, network(needs, losses))
    allowed = lambda score: score >= 100 - budget  # noqa: E731
    found = narrowest_uniform(ledger, energy_of(works), allowed, max(needs))
    evaluate = network(needs, losses)
    least = min(b for b in range(2, 10) if allowed(evaluate(dict.fromkeys(NODES, b)).score))
    assert found.widths == (least,) * 3
    assert found.energy == least * sum(works)


@settings(max_examples=60, deadline=None)
@given(needs, losses, works, st.integers(0, 12))
def test_a_width_for_each_costs_no_more_and_cannot_lose_another_bit(needs, losses, works, budget):
    ledger, energy = Ledger(NODES, network(needs, losses)), energy_of(works)
    allowed = lambda score: score >= 100 - budget  # noqa: E731
    uniform = narrowest_uniform(ledger, energy, allowed, max(needs))
    found = narrowest_each(ledger, energy, allowed, (uniform.widths, needs))
    assert allowed(found.score)
    assert found.energy <= min(uniform.energy, energy(needs))
    for node in range(3):
        if found.widths[node] > 2:
            less = list(found.widths)
            less[node] -= 1
            assert not allowed(ledger(tuple(less)).score)


def test_without_a_budget_each_node_gets_what_it_needs():
    ledger, energy = Ledger(NODES, network((5, 9, 7), (1, 1, 1))), energy_of((1, 2, 3))
    found = narrowest_each(ledger, energy, lambda score: score >= 100, ((9, 9, 9),))
    assert found.widths == (5, 9, 7)
    assert found.limiting == "a"


def test_the_node_that_forbids_another_bit_is_named():
    ledger = Ledger(NODES, network((5, 6, 6), (1, 5, 2)))
    found = narrowest_uniform(ledger, energy_of((1, 1, 1)), lambda score: score > 96, 9)
    assert (found.widths, found.limiting) == ((6, 6, 6), "b")


def test_no_width_may_be_allowed():
    ledger = Ledger(NODES, network((5, 6, 6), (1, 5, 2)))
    assert narrowest_uniform(ledger, energy_of((1, 1, 1)), lambda score: score > 100, 9) is None


@settings(max_examples=40, deadline=None)
@given(needs, losses, works)
def test_the_front_holds_what_nothing_beats(needs, losses, works):
    ledger, energy = Ledger(NODES, network(needs, losses)), energy_of(works)
    for widths in itertools.product((4, 6, 8), repeat=3):
        ledger(widths)
    front = pareto_front(ledger, energy, lambda score: score)
    for widths, made in ledger:
        beaten = any(
            p.energy <= energy(widths) and p.score >= made.score
            and (p.energy, p.score) != (energy(widths), made.score)
            for p in front
        )  # fmt: skip
        assert beaten or (energy(widths), made.score) in {(p.energy, p.score) for p in front}
    assert [p.energy for p in front] == sorted(p.energy for p in front)
    assert all(x.score < y.score for x, y in itertools.pairwise(front))


@pytest.mark.parametrize("again", [False, True])
def test_nothing_is_evaluated_twice(again):
    made = []

    class Kept:
        def __init__(self):
            self.evaluations = {}

        def find(self, bits):
            return self.evaluations.get(tuple(bits.values()))

        def keep(self, evaluation):
            self.evaluations[tuple(evaluation.bits.values())] = evaluation

    def evaluate(bits):
        made.append(tuple(bits.values()))
        return network((5, 6, 7), (1, 2, 3))(bits)

    store = Kept()
    for _ in range(2):
        ledger = Ledger(NODES, evaluate, store)
        narrowest_each(ledger, energy_of((1, 1, 1)), lambda s: s > 98, ((8, 8, 8), (5, 6, 7)))
    assert len(made) == len(set(made)) == len(ledger)
