"""Sums whose order of additions depends on the place in the output.

A kernel adds the last columns, or the part of another thread, in another order. Where, is found by
comparing bits: an order that fits one element is computed for all, and those with equal bits in
every sample have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from tracer.arithmetic.rule import Facts, NotKnown, Rule, are_equal
from tracer.arithmetic.sums import Operands, compute_window
from tracer.support.types import Array

_MOST_ORDERS = 16
_MOST_CELLS = 4096
_MOST_TOLD = 4


class Run(Protocol):
    """A run of a kernel, whose sums have their orders by place in a grid."""

    @property
    def output(self) -> Array:
        """The results, (…, rows, columns) of the grid."""
        ...

    def element(self, row: int, column: int) -> tuple[Operands, Array]:
        """Returns the operands and the results, (G, M, N), of an element of the grid."""
        ...

    def compute(self, facts: Facts) -> Array:
        """Returns what takes the place of `output`, with the facts of `replay_regions`."""
        ...


class Sample(NamedTuple):
    """Operands, and the output (G M, N) of a kernel of products."""

    operands: Operands
    output: Array

    def element(self, row: int, column: int) -> tuple[Operands, Array]:
        """Returns the operands and the result of an element of the output."""
        a, b, beside = self.operands
        group, line = divmod(row, a.shape[1])
        at = slice(group, group + 1), slice(line, line + 1), slice(column, column + 1)
        own = Operands(a[at[:2]], b[at[0], :, at[2]], None if beside is None else beside[at])
        return own, self.output[row, column].reshape(1, 1, 1)

    def compute(self, facts: Facts) -> Array:
        """Returns the products (G M, N), each cell of the output in its own order."""
        return replay_regions(facts, self.operands).reshape(self.output.shape)


def find_regions(
    runs: Sequence[Run],
    candidates: Callable[[int, int], Iterator[Rule]],
    names: Sequence[str] = ("rows", "columns"),
) -> Rule:
    """Returns the rule of sums, of which `replay_regions` takes the facts.

    `candidates` are rules that an element, by row and column, may have; `names` are what these are
    called. Raises NotKnown if none of them fits an element.
    """
    rules: list[Rule] = []
    fits: list[Array] = []
    missing: Array = np.ones(runs[0].output.shape[-2:], bool)
    while missing.any():
        places = np.flatnonzero(missing)
        row, column = divmod(int(places[len(places) // 2]), missing.shape[1])
        if len(rules) == _MOST_ORDERS:
            raise NotKnown(f"more than {_MOST_ORDERS} orders of additions in one output")
        elements = [run.element(row, column) for run in runs]
        for rule in candidates(row, column):
            facts = _facts_of_grid(np.zeros((1, 1), int), [rule])
            if all(are_equal(replay_regions(facts, x), y).all() for x, y in elements):
                rules.append(rule)
                break
        else:
            raise NotKnown(f"no order of additions fits row {row}, column {column}")
        facts = _facts_of_grid(np.zeros_like(missing, int), rules[-1:])
        fits.append(np.ones_like(missing))
        for run in runs:
            equal = are_equal(run.output, run.compute(facts))
            fits[-1] &= equal.reshape(-1, *missing.shape).all(0)
        missing &= ~fits[-1]
    labels = _labels(np.array(fits)) if fits else np.zeros(missing.shape, np.int64)
    used, places = np.unique(labels, return_inverse=True)
    labels, rules = places.reshape(labels.shape), [rules[place] for place in used]
    text = rules[0].text
    if len(rules) > 1:
        told = enumerate(rules[:_MOST_TOLD])
        text = "; ".join(f"{_place(labels == n, names)} {rule.text}" for n, rule in told)
    return Rule(text, _facts_of_grid(labels, rules))


def _labels(fits: Array) -> Array:
    """Returns which rule each element has (M, N), of those that fit it: `fits` is (rules, M, N).

    Orders that differ in one addition often agree by chance. A rule that fits a whole column is
    likelier than one that fits some elements of it; the same holds for rows. Of several, the
    likeliest is the one that fits most elements.
    """
    ranks = np.argsort(-fits.sum((1, 2)), kind="stable")
    ordered = fits[ranks]
    for axis in (1, 2):
        whole = np.expand_dims(ordered.all(axis), axis)
        if whole.any(0).all():
            labels: Array = np.broadcast_to(ranks[whole.argmax(0)], fits.shape[1:])
            return labels
    first: Array = ranks[ordered.argmax(0)]
    return first


def replay_regions(facts: Facts, operands: Operands, first: int = 0) -> Array:
    """Returns the products (G, M, N) of operands, each cell of the output in its own order.

    `sums` are the facts of each order, `cells` its number by row and column of cells, and `rows`
    and `columns` the ends of these; a single row or column is all of them. Several rows are those
    of all products, or of each. The operands may begin at the column `first` of the output.
    """
    a, b, beside = operands  # which are copied once, not for each cell
    given = Operands(np.ascontiguousarray(a), np.ascontiguousarray(b), beside)
    out = np.empty((len(a), a.shape[1], b.shape[2]), a.dtype)
    for line, *rows in _row_windows(facts["rows"], *a.shape[:2]):
        left = -first
        for end, place in zip(facts["columns"], facts["cells"][line], strict=True):
            is_single = len(facts["columns"]) == 1
            right = b.shape[2] if is_single else min(end - first, b.shape[2])
            if max(left, 0) < right:
                window = (*rows, max(left, 0), right)
                compute_window(facts["sums"][place], given, out, window)
            left = end - first
    return out


def _row_windows(
    ends: Sequence[int], groups: int, height: int
) -> Iterator[tuple[int, int, int, int, int]]:
    """Yields the number of a row of cells, and products and rows that are in it: from, below."""
    for line, (top, bottom) in enumerate(zip([0, *ends], ends, strict=False)):
        if len(ends) == 1:
            yield line, 0, groups, 0, height
        elif ends[-1] == height:
            yield line, 0, groups, top, bottom
        else:
            for group in range(top // height, (bottom - 1) // height + 1):
                above = group * height
                yield line, group, group + 1, max(top - above, 0), min(bottom - above, height)


def _facts_of_grid(labels: Array, rules: Sequence[Rule]) -> dict[str, Any]:
    """Returns the facts of a grid of cells, in each of which all elements have one label."""
    ends = [
        [*(np.flatnonzero((np.diff(labels, axis=axis) != 0).any(axis=1 - axis)) + 1).tolist(), size]
        for axis, size in enumerate(labels.shape)
    ]
    if len(ends[0]) * len(ends[1]) > _MOST_CELLS:
        raise NotKnown("the order of additions varies without a pattern")
    cells = labels[np.ix_(*[np.array(each) - 1 for each in ends])].tolist()
    sums = [rule.facts for rule in rules]
    return {"rows": ends[0], "columns": ends[1], "cells": cells, "sums": sums}


def _place(has: Array, names: Sequence[str]) -> str:
    spans = []
    for axis, name in enumerate(names):
        places = np.flatnonzero(has.any(axis=1 - axis))
        if has.shape[axis] > 1:
            span = f"{places[0]}" if len(places) == 1 else f"{places[0]} to {places[-1]}"
            spans.append(f"{name} {span}")
    return " and ".join(spans)
