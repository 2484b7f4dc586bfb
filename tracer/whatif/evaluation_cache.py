"""Every evaluation that was made, so that none is made twice, in this run or a later one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from tracer.records.whatif import Evaluation, Widths
from tracer.storage.whatif_file import WhatIfFile

Told = Callable[[str, int, int], None]
"""What evaluations are made for, how many of them were, and of how many; 0 if nobody knows."""


class Store(Protocol):
    """Where evaluations outlive the run."""

    def find(self, bits: Mapping[str, int]) -> Evaluation | None:
        """The evaluation at these widths, if it was made before."""

    def keep(self, evaluation: Evaluation) -> None:
        """Put an evaluation where a crash does not reach it."""


class Forgetful:
    """A store that keeps nothing."""

    def find(self, bits: Mapping[str, int]) -> Evaluation | None:
        """None."""
        return None

    def keep(self, evaluation: Evaluation) -> None:
        """Nothing is kept."""


class Ledger:
    """Evaluations by the widths of `nodes`, made by `evaluate` where `store` has none.

    `told` is called after each that is asked for. `free` are the places of the nodes that are not
    `pinned`.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        evaluate: Callable[[Mapping[str, int]], Evaluation],
        store: Store | None = None,
        told: Told | None = None,
        pinned: Mapping[str, int] | None = None,
    ) -> None:
        self.nodes = tuple(nodes)
        self._pinned = pinned or {}
        self.free = tuple(n for n, node in enumerate(self.nodes) if node not in self._pinned)
        self._evaluate = evaluate
        self._store = store or Forgetful()
        self._told = told or (lambda what, done, total: None)
        self._phase, self._asked, self._of = "", 0, 0
        self._made: dict[Widths, Evaluation] = {}

    def begin(self, what: str, count: int = 0) -> None:
        """Say what the next evaluations, `count` of them if that is known, are for."""
        self._phase, self._asked, self._of = what, 0, count

    def __call__(self, widths: Widths) -> Evaluation:
        """The evaluation at these widths."""
        if widths not in self._made:
            bits = dict(zip(self.nodes, widths, strict=True))
            found = self._store.find(bits)
            if found is None:
                found = self._evaluate(bits)
                self._store.keep(found)
            self._made[widths] = found
        self._asked += 1
        self._told(self._phase, self._asked, self._of)
        return self._made[widths]

    def widths(self, bits: int) -> Widths:
        """One width for all nodes that are free."""
        return tuple(self._pinned.get(node, bits) for node in self.nodes)

    def uniform(self, bits: int) -> Evaluation:
        """The evaluation with one width for all nodes that are free."""
        return self(self.widths(bits))

    def __len__(self) -> int:
        """How many evaluations were asked for."""
        return len(self._made)

    def __iter__(self) -> Iterator[tuple[Widths, Evaluation]]:
        """All of them, in the order they were made."""
        return iter(self._made.items())


class Page:
    """The part of a file that is one variant's: a `Store`."""

    def __init__(self, journal: WhatIfFile, variant: str) -> None:
        self._journal = journal
        self._variant = variant

    def find(self, bits: Mapping[str, int]) -> Evaluation | None:
        """The evaluation at these widths, if it was made before."""
        return self._journal.find(self._variant, bits)

    def keep(self, evaluation: Evaluation) -> None:
        """Put an evaluation on the disk."""
        self._journal.store(self._variant, evaluation)
