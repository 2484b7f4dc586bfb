"""Products of matrices whose order of additions depends on the place in the output.

A kernel adds the last columns, or the part of another thread, in another order. Where, is found by
comparing bits: an order that fits one element is computed for all, and those with equal bits in
every sample have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tracer.arithmetic.rule import NotKnown, Rule, are_equal
from tracer.arithmetic.sums import compute_window, products
from tracer.support.types import Array

_MOST_ORDERS = 8
_MOST_CELLS = 4096


class Operands(NamedTuple):
    """Operands of G products: `a` (G, M, K), `b` (G, K, N), and a bias (G M, N) or None."""

    a: Array
    b: Array
    bias: Array | None

    def element(self, row: int, column: int) -> tuple[Array, Array, Array | None]:
        """Returns the operands of one element of the output (G M, N)."""
        group, line = divmod(row, self.a.shape[1])
        bias = None if self.bias is None else self.bias[row : row + 1, column : column + 1]
        return self.a[group, line : line + 1], self.b[group, :, column : column + 1], bias


class Sample(NamedTuple):
    """Operands, and the output (G M, N) of a kernel."""

    operands: Operands
    output: Array


def find_regions(
    samples: Sequence[Sample], candidates: Callable[[int, int], Iterator[Rule]]
) -> Rule:
    """Returns the rule of products, of which `replay_regions` takes the facts.

    `candidates` are rules that an element, by row and column, may have. Raises NotKnown if none of
    them fits an element.
    """
    rules: list[Rule] = []
    fits: list[Array] = []
    missing: Array = np.ones(samples[0].output.shape, bool)
    while missing.any():
        row, column = divmod(int(np.argmax(missing)), missing.shape[1])
        if len(rules) == _MOST_ORDERS:
            raise NotKnown(f"more than {_MOST_ORDERS} orders of additions in one output")
        rules.append(_rule_of_element(samples, row, column, candidates(row, column)))
        equal = np.ones_like(missing)
        for each in samples:
            equal &= are_equal(each.output, _compute_everywhere(rules[-1].facts, each.operands))
        fits.append(equal)
        missing &= ~equal
    labels = _labels(np.array(fits)) if fits else np.zeros(missing.shape, np.int64)
    used, places = np.unique(labels, return_inverse=True)
    return _rule_of_regions(places.reshape(labels.shape), [rules[place] for place in used])


def _labels(fits: Array) -> Array:
    """Returns which rule each element has (M, N), of those that fit it: `fits` is (rules, M, N).

    Orders that differ in one addition often agree by chance. A rule that fits a whole column is
    likelier than one that fits some elements of it; the same holds for rows.
    """
    for axis in (1, 2):
        whole = np.expand_dims(fits.all(axis), axis)
        if whole.any(0).all():
            labels: Array = np.broadcast_to(whole.argmax(0), fits.shape[1:])
            return labels
    first: Array = fits.argmax(0)
    return first


def replay_regions(facts: Mapping[str, Any], operands: Operands) -> Array:
    """Returns the products (G M, N) of operands, each cell of the output in its own order."""
    a, b, bias = operands
    out = np.empty((len(a), a.shape[1], b.shape[2]), a.dtype)
    biases = [None] * len(a) if bias is None else list(bias.reshape(out.shape))
    height = a.shape[1]
    for top, bottom, places in zip(
        [0, *facts["rows"]], facts["rows"], facts["cells"], strict=False
    ):
        for left, right, place in zip(
            [0, *facts["columns"]], facts["columns"], places, strict=False
        ):
            for group in range(top // height, (bottom - 1) // height + 1):
                low, high = max(top - group * height, 0), min(bottom - group * height, height)
                compute_window(
                    facts["sums"][place], (a[group], b[group], biases[group]), out[group],
                    (low, high, left, right),
                )  # fmt: skip
    return out.reshape(-1, b.shape[2])


def _rule_of_element(
    samples: Sequence[Sample], row: int, column: int, candidates: Iterator[Rule]
) -> Rule:
    elements = [(each.operands.element(row, column), each.output[row, column]) for each in samples]
    for rule in candidates:
        if all(are_equal(products(rule.facts, *x)[0, 0], y).all() for x, y in elements):
            return rule
    raise NotKnown(f"no order of additions fits row {row}, column {column}")


def _compute_everywhere(facts: Mapping[str, Any], operands: Operands) -> Array:
    rows, columns = len(operands.a) * operands.a.shape[1], operands.b.shape[2]
    whole = {"rows": [rows], "columns": [columns], "cells": [[0]], "sums": [facts]}
    return replay_regions(whole, operands)


def _rule_of_regions(labels: Array, rules: Sequence[Rule]) -> Rule:
    """Returns the rule of a grid of cells, in each of which all elements have one label."""
    ends = [
        [*(np.flatnonzero((np.diff(labels, axis=axis) != 0).any(axis=1 - axis)) + 1).tolist(), size]
        for axis, size in enumerate(labels.shape)
    ]
    if len(ends[0]) * len(ends[1]) > _MOST_CELLS:
        raise NotKnown("the order of additions varies without a pattern")
    cells = labels[np.ix_(*[np.array(each) - 1 for each in ends])]
    facts = {
        "rows": ends[0],
        "columns": ends[1],
        "cells": cells.tolist(),
        "sums": [rule.facts for rule in rules],
    }
    if len(rules) == 1:
        return Rule(rules[0].text, facts)
    return Rule("; ".join(_text(labels == i, rule) for i, rule in enumerate(rules)), facts)


def _text(has: Array, rule: Rule) -> str:
    rows, columns = (np.flatnonzero(has.any(axis=1 - axis)) for axis in (0, 1))
    return f"rows {_span(rows)} and columns {_span(columns)} {rule.text}"


def _span(places: Array) -> str:
    return f"{places[0]}" if len(places) == 1 else f"{places[0]} to {places[-1]}"
