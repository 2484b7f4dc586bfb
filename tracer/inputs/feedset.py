"""The arrays that one inference runs on, by input name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Feeds: TypeAlias = Mapping[str, Any]
"""An array per model input by name; a list of arrays for a sequence."""


CHOSEN = "sizes chosen: "
"""Begins the note on sizes that neither model nor user set: it is shown first."""


@dataclass(frozen=True, slots=True)
class FeedSet:
    """Feeds for one batch size, with notes, and the sizes that were chosen, by dimension."""

    feeds: Feeds = field(repr=False)
    batch: int | None
    notes: tuple[str, ...] = ()
    chosen: Mapping[str, int] = field(default_factory=dict)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each array among the feeds."""
        return {n: tuple(v.shape) for n, v in self.feeds.items() if hasattr(v, "shape")}
