"""Fewer boxes: blocks of equal structure that follow each other fold, and long rows divide."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, takewhile

from analyzers.views.report.layout.box import (
    CONSECUTIVE,
    MODULE,
    NODE,
    OUTSIDE,
    REPEATED,
    Box,
    boxes,
)

MOST_CHILDREN = 400
"""Most boxes inside another one. A screen shows no more, and a browser moves these at once."""
_LONGEST_PART = 320
"""Most boxes of a part before its end moves to where few links pass, by at most an eighth."""
_FEWEST_IN_CHAIN, _FEWEST_BESIDE = 3, 8
"""Fewest equal blocks that fold. Two in a chain take no more room than a box that says so; a query,
a key and a value beside each other are worth it."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Children from `start` to before `stop`, which are to be inside `box`."""

    start: int
    stop: int
    box: Box


def fold(root: Box) -> None:
    """Folds equal blocks and divides long rows, in `root` and in all boxes inside it."""
    numbers: dict[object, int] = {}
    structure: dict[Box, int] = {}
    for box in reversed(list(boxes(root))):
        inside = [structure[child] for child in box.children]
        links = sorted(link for link in box.links if OUTSIDE not in link)
        shape = (box.op_type, tuple(inside), tuple(links))
        structure[box] = numbers.setdefault(shape, len(numbers))
        _fold_repeats(box, inside, box is root)
    for box in boxes(root):
        while len(box.children) > MOST_CHILDREN:
            _gather(box, list(_parts(box)))


def _fold_repeats(box: Box, structures: Sequence[int], is_root: bool) -> None:
    """Puts neighbours of equal structure into a box; a module of nothing else becomes one."""
    runs = list(_repeats(box, structures))
    is_one_run = [run.stop - run.start for run in runs] == [len(box.children)]
    if is_one_run and box.kind == MODULE and not is_root:
        box.kind, box.repeat = REPEATED, len(box.children)
    elif runs:
        _gather(box, runs)


def _repeats(box: Box, structures: Sequence[int]) -> Iterator[_Run]:
    """Yields runs of equal groups, each of which reads the one before, or none of which does."""
    count = len(structures)
    start = 0
    while start < count:
        is_chain = (start, start + 1) in box.links
        stop = start + 1
        while (
            stop < count
            and structures[stop] == structures[start]
            and ((stop - 1, stop) in box.links) == is_chain
        ):
            stop += 1
        first, last = box.children[start], box.children[stop - 1]
        if first.kind != NODE and stop - start >= (
            _FEWEST_IN_CHAIN if is_chain else _FEWEST_BESIDE
        ):
            label = f"{first.label}…{last.label[len(_stem(first.label, last.label)) :]}"
            yield _Run(start, stop, Box(REPEATED, label, repeat=stop - start))
            start = stop
        else:
            start = max(start + 1, stop - 1)


def _stem(first: str, last: str) -> str:
    """The beginning that two names share, without digits at its end."""
    shared = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "".join(char for char, _ in shared).rstrip("0123456789")


def _parts(box: Box) -> Iterator[_Run]:
    """Yields parts of similar length, which end where few links pass."""
    count = len(box.children)
    length = min(_LONGEST_PART, math.isqrt(count - 1) + 1)
    passing = _passing(box)
    starts = [0]
    while count - starts[-1] > length + length // 8:
        middle = starts[-1] + length
        ends = range(middle - length // 8, middle + length // 8 + 1)
        starts.append(min(ends, key=lambda end: (passing[end], abs(end - middle))))
    for number, (start, stop) in enumerate(pairwise([*starts, count]), 1):
        yield _Run(start, stop, Box(CONSECUTIVE, f"part {number}"))


def _passing(box: Box) -> list[int]:
    """Returns for each child how many links of earlier ones lead to it or past it."""
    change = [0] * (len(box.children) + 1)
    for first, second in box.links:
        if OUTSIDE not in (first, second):
            change[first + 1] += 1
            change[second + 1] -= 1
    return list(accumulate(change))


def _gather(box: Box, runs: Sequence[_Run]) -> None:
    """Moves the children of each run into its box, and the links with them."""
    run_of: list[_Run | None] = [None] * len(box.children)
    for run in runs:
        run.box.children = box.children[run.start : run.stop]
        run.box.nodes = sum(child.nodes for child in run.box.children)
        run_of[run.start : run.stop] = [run] * (run.stop - run.start)
    firsts = [run is None or run.start == at for at, run in enumerate(run_of)]
    place = [number - 1 for number in accumulate(firsts)]
    old, box.links = box.links, set()
    for link in old:
        first, second = (None if end == OUTSIDE else run_of[end] for end in link)
        if first is not None and first is second:
            first.box.links.add((link[0] - first.start, link[1] - first.start))
            continue
        if first is not None:
            first.box.links.add((link[0] - first.start, OUTSIDE))
        if second is not None:
            second.box.links.add((OUTSIDE, link[1] - second.start))
        outer = (end if end == OUTSIDE else place[end] for end in link)
        box.links.add((next(outer), next(outer)))
    children = zip(box.children, run_of, firsts, strict=True)
    box.children = [run.box if run else child for child, run, is_first in children if is_first]
