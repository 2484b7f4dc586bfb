"""The tree of an order of additions: of accumulators, of a program, drawn, and back to an order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from tracer.accumulators.spec import Bias
from tracer.accumulators.spec.nests import positionwise
from tracer.accumulators.spec.orders import (
    Chunked,
    Lanes,
    Level,
    Order,
    Sequential,
    Terms,
    Tiles,
    Tree,
)
from tracer.arithmetic.trees import ADD, BEGIN, Program

_DRAWN = 32
"""Terms of the largest sum that is drawn."""
Branch = list[Any]
"""What a register adds, in its order: numbers of terms, and further branches."""


def tree_of(order: Order, terms: Terms, bias: Bias | None = None) -> Branch:
    """Returns the tree of an order; the term after the last one is a bias, if it has a place."""
    sums: list[Any] = list(range(terms.count))
    stages = order.stages(terms)
    for number, stage in enumerate(stages):
        joined = [[sums[k] for k in row if k >= 0] for row in stage.groups.tolist()]
        if bias == "first" and number == len(stages) - 1:
            joined[0].insert(0, terms.count)
        sums = [each[0] if number and len(each) == 1 else each for each in joined]
    whole = [sums[0], terms.count] if bias == "last" else sums[0]
    return canonical(whole, terms.count, terms.count)


def canonical(branch: Branch, count: int, bias: int | None = None) -> Branch:
    """Returns a tree of the first `count` terms, and of the `bias`, which becomes the next term.

    Others are a residual, and channels that fill up a block. A sum that begins with a sum is one,
    and a bias that a sum is added to is added to this sum.
    """
    parts: Branch = []
    for each in branch:
        if isinstance(each, list):
            parts += [part] if (part := canonical(each, count, bias)) else []
        elif each < count or each == bias:
            parts.append(min(each, count))
    if len(parts) > 1 and parts[0] == count and isinstance(parts[1], list):
        parts = [*parts[1:2], count, *parts[2:]]
    while parts and isinstance(parts[0], list):
        parts = [*parts[0], *parts[1:]]
    return parts


def order_of_tree(branches: Branch, terms: Terms) -> Order | None:
    """Returns an order that adds terms as a tree does, which may have others; None without one."""
    tree = canonical(branches, terms.count)
    return next((each for each in _likely(tree, terms) if tree_of(each, terms) == tree), None)


def _likely(tree: Branch, terms: Terms) -> Iterator[Order]:
    """Yields orders that may have a tree."""
    yield from _of_levels(tree, terms.count)
    if terms.window > 1 and terms.channels > 1:
        block = 1
        while block < len(tree) and tree[block] == tree[block - 1] + terms.window:
            block += 1
        blocks = 0 if block >= terms.channels else block
        (order,) = positionwise(Sequential(), blocks).stages(terms)[0].groups
        for inner in _of_levels(_renumbered(tree, np.argsort(order).tolist()), terms.count):
            yield positionwise(inner, blocks)


def _of_levels(tree: Branch, count: int) -> Iterator[Order]:
    """Yields orders that may have a tree: what is added to the sum of term 0 tells its levels."""
    yield Sequential()
    levels: list[Level] = []
    sums, at, size = np.arange(count), 1, 1  # the sum that a term is in
    while at < len(tree):
        sizes = [len(_leaves(part)) for part in tree[at:]]
        alike = next((n for n, each in enumerate(sizes) if each > size), len(sizes))
        stride, many = int(sums[_leaves(tree[at])[0]]), int(sums.max()) + 1
        if not (alike and stride):
            break
        reaches = (alike + 1) * stride >= many
        levels.append(Level(None if reaches else alike + 1, stride=stride))
        places = np.empty(many, np.intp)
        for number, group in enumerate(levels[-1].groups(many)):
            places[group[group >= 0]] = number
        sums = places[sums]
        at, size = at + alike, size + sum(sizes[:alike])
    if levels and levels[-1] == Level(None):
        levels.pop()  # which is the last sum of any order
    match levels:
        case [Level(None, None, stride)]:
            yield Lanes(stride)
        case [Level(int(size), None, 1)]:
            yield Chunked(size)
        case _:
            yield Tree()
            if levels:
                yield Tiles(tuple(levels))


def _leaves(part: Any) -> list[int]:
    return [part] if isinstance(part, int) else [leaf for each in part for leaf in _leaves(each)]


def _renumbered(part: Any, numbers: list[int]) -> Any:
    """Returns a tree whose term k becomes `numbers[k]`."""
    if isinstance(part, int):
        return numbers[part]
    return [_renumbered(each, numbers) for each in part]


def branches_of(order: Order, terms: Terms) -> Branch:
    """Returns the tree of an order of terms."""
    sums: list[Any] = list(range(terms.count))
    for stage in order.stages(terms):
        joined = [[sums[k] for k in row if k >= 0] for row in stage.groups.tolist()]
        sums = [each[0] if len(each) == 1 else each for each in joined]
    return sums[0] if isinstance(sums[0], list) else sums


def tree_of_program(program: Program) -> Branch:
    """Returns the tree of a program: all terms and registers that its last register adds."""
    return canonical(branches_of_program(program), 1 + max(program) // 4)


def branches_of_program(program: Program) -> Branch:
    """Returns the tree of a program of `trees`."""
    held: list[Branch] = []
    for step in program:
        term, kind = divmod(step, 4)
        if kind == BEGIN:
            held.append([term])
        elif kind == ADD:
            held[-1].append(term)
        else:
            last = held.pop()
            held[-1] = [held[-1], last]
    return held[0]


def drawn(branch: Branch, count: int) -> str:
    """Returns a tree as text; nothing for one of more than 32 terms."""
    return "\n".join(_lines(branch)) if count <= _DRAWN else ""


def _lines(branch: Branch) -> Iterator[str]:
    runs: list[Any] = []
    for is_branch, group in groupby(branch, lambda each: isinstance(each, list)):
        same = list(group)
        runs += same if is_branch else [" + ".join(map(str, same))]
    if len(runs) == 1:
        yield str(runs[0])
        return
    yield "+"
    for index, run in enumerate(runs):
        is_last = index == len(runs) - 1
        lines: Sequence[str] = list(_lines(run)) if isinstance(run, list) else [run]
        yield f"{'└─' if is_last else '├─'} {lines[0]}"
        yield from (f"{'  ' if is_last else '│ '} {line}" for line in lines[1:])
