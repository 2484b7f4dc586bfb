"""A cache of evaluations: each is computed at most once, in this run or an earlier one."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from tracer.records.whatif import Evaluation, Widths
from tracer.storage.whatif_file import WhatIfFile
from tracer.support.progress import Progress, silent


class Evaluating(Protocol):
    """Computes evaluations at widths by node, as `evaluation.Evaluator` does."""

    def evaluate(self, bits: Mapping[str, int]) -> Evaluation:
        """Returns score and overflows."""

    def score(self, bits: Mapping[str, int], near: Mapping[str, int] | None = None) -> Evaluation:
        """Returns the score alone; the next requests are about widths `near`."""

    def ahead(self, bits: Iterable[Mapping[str, int]], counted: bool) -> None:
        """Lets idle workers begin evaluations that may be requested next."""


class EvaluationCache:
    """Evaluations of one variant by the widths of `nodes`, in the order they were requested.

    An evaluation that is in neither the cache nor `file` is computed by `evaluator`, and written to
    `file` under the key `variant`. `free` are the indices of the nodes that are not `pinned`.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        evaluator: Evaluating,
        *,
        pinned: Mapping[str, int] | None = None,
        file: WhatIfFile | None = None,
        variant: str = "",
        progress: Progress = silent,
    ) -> None:
        self.nodes = tuple(nodes)
        self.pinned = pinned or {}
        self.free = tuple(n for n, node in enumerate(self.nodes) if node not in self.pinned)
        self._evaluator = evaluator
        self._file = file
        self._variant = variant
        self._progress = progress
        self._purpose, self._requests, self._expected = "", 0, 0
        self._evaluations: dict[Widths, Evaluation] = {}

    def begin(self, purpose: str, expected: int = 0) -> None:
        """Reports the next requests as steps of `purpose`, `expected` in total (0: unknown)."""
        self._purpose, self._requests, self._expected = purpose, 0, expected

    def __call__(self, widths: Widths, near: Widths | None = None) -> Evaluation:
        """Returns the evaluation at these widths, perhaps without overflows; reports progress.

        The next requests are about widths `near`.
        """
        if widths not in self._evaluations:
            about = None if near is None else self._bits(near)
            score = partial(self._evaluator.score, near=about)
            found = self._found(widths, score, counted=False)
            # Whether an earlier run counted must not change the result of this one.
            self._evaluations[widths] = replace(found, overflows=None)
        return self._requested(widths)

    def counted(self, widths: Widths) -> Evaluation:
        """Returns the evaluation at these widths with its overflows; reports progress."""
        known = self._evaluations.get(widths)
        if known is None or known.overflows is None:
            evaluate = self._evaluator.evaluate
            self._evaluations[widths] = self._found(widths, evaluate, counted=True)
        return self._requested(widths)

    def expect(self, widths: Iterable[Widths], counted: bool = False) -> None:
        """Lets idle workers begin with requests that may come next, the likeliest first.

        They are no part of the cache until they are requested, so that no answer depends on them.
        """
        unknown = (each for each in widths if self._known(each, counted) is None)
        self._evaluator.ahead(map(self._bits, unknown), counted)

    def uniform_widths(self, bits: int) -> Widths:
        """The widths with `bits` bits in all nodes that are not pinned."""
        return tuple(self.pinned.get(node, bits) for node in self.nodes)

    def uniform(self, bits: int) -> Evaluation:
        """Returns the counted evaluation with `bits` bits in all nodes that are not pinned."""
        return self.counted(self.uniform_widths(bits))

    def __len__(self) -> int:
        return len(self._evaluations)

    def __iter__(self) -> Iterator[tuple[Widths, Evaluation]]:
        return iter(self._evaluations.items())

    def _requested(self, widths: Widths) -> Evaluation:
        self._requests += 1
        self._progress(self._requests, self._expected, self._purpose)
        return self._evaluations[widths]

    def _bits(self, widths: Widths) -> dict[str, int]:
        return dict(zip(self.nodes, widths, strict=True))

    def _found(
        self, widths: Widths, compute: Callable[[Mapping[str, int]], Evaluation], counted: bool
    ) -> Evaluation:
        """The evaluation in the file, if it has the overflows that are asked; else a new one."""
        known = self._stored(widths, counted)
        if known is not None:
            return known
        evaluation = compute(self._bits(widths))
        if self._file is not None:
            self._file.store(self._variant, evaluation)
        return evaluation

    def _stored(self, widths: Widths, counted: bool) -> Evaluation | None:
        if self._file is None:
            return None
        stored = self._file.find(self._variant, self._bits(widths))
        return stored if stored is None or stored.overflows is not None or not counted else None

    def _known(self, widths: Widths, counted: bool) -> Evaluation | None:
        cached = self._evaluations.get(widths)
        if cached is not None and (cached.overflows is not None or not counted):
            return cached
        return self._stored(widths, counted)
