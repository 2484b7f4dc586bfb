"""Every evaluation that was made, so that none is made twice, in this run or a later one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from tracer.whatif.evaluation import Evaluation

Widths = tuple[int, ...]
"""Bits of the narrow nodes, in the order of the model."""


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

    `told` is called after each.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        evaluate: Callable[[Mapping[str, int]], Evaluation],
        store: Store | None = None,
        told: Callable[[], None] | None = None,
    ) -> None:
        self.nodes = tuple(nodes)
        self._evaluate = evaluate
        self._store = store or Forgetful()
        self._told = told or (lambda: None)
        self._made: dict[Widths, Evaluation] = {}

    def __call__(self, widths: Widths) -> Evaluation:
        """The evaluation at these widths."""
        if widths not in self._made:
            bits = dict(zip(self.nodes, widths, strict=True))
            found = self._store.find(bits)
            if found is None:
                found = self._evaluate(bits)
                self._store.keep(found)
            self._made[widths] = found
            self._told()
        return self._made[widths]

    def uniform(self, bits: int) -> Evaluation:
        """The evaluation with one width for all."""
        return self((bits,) * len(self.nodes))

    def __len__(self) -> int:
        """How many evaluations were asked for."""
        return len(self._made)

    def __iter__(self) -> Iterator[tuple[Widths, Evaluation]]:
        """All of them, in the order they were made."""
        return iter(self._made.items())
