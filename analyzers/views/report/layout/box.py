"""The boxes of a drawing: a node, or what is drawn inside another box."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

NODE, MODULE, CONSECUTIVE, REPEATED = range(4)
"""Kinds: a node (with its body inside, if any), a module, consecutive boxes, equal blocks."""

OUTSIDE = -1
"""In a link: whatever is not inside the same box, and inputs and outputs of the model."""

Link = tuple[int, int]
"""Two boxes inside the same one, by their places in `children`: the second reads the first."""


@dataclass(slots=True, eq=False)
class Box:
    """A box, the boxes inside it, and who of them reads whom.

    `children` are sorted: a box reads earlier ones alone. `node` is the position of the node that
    the box is, and `op_type` its operator; -1 and '' if it is none. `nodes` counts those in it. A
    box that repeats has `repeat` children of equal structure.
    """

    kind: int
    label: str
    node: int = -1
    op_type: str = ""
    nodes: int = 1
    repeat: int = 1
    children: list[Box] = field(default_factory=list)
    links: set[Link] = field(default_factory=set)


def boxes(root: Box) -> Iterator[Box]:
    """Yields a box and all inside it, each before its children."""
    level = [root]
    while level:
        yield from level
        level = [child for box in level for child in box.children]
