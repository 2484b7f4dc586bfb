"""How much of the products of a model is added in narrow accumulators."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Coverage:
    """`nodes` of the `multiplying` nodes are narrow; they have `share` of the known MACs.

    `share` is None where the MACs of a node that multiplies are unknown.
    """

    nodes: int
    multiplying: int
    share: float | None

    @property
    def is_whole(self) -> bool:
        """Whether every node that multiplies is narrow."""
        return self.nodes == self.multiplying
