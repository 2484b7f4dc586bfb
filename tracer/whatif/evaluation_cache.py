"""A cache of evaluations: each is computed at most once, in this run or an earlier one."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from tracer.records.whatif import Evaluation, Widths
from tracer.storage.whatif_file import WhatIfFile
from tracer.support.progress import Progress, silent


class EvaluationCache:
    """Evaluations of one variant by the widths of `nodes`, in the order they were requested.

    An evaluation that is in neither the cache nor `file` is computed by `evaluate`, and written to
    `file` under the key `variant`. `free` are the indices of the nodes that are not `pinned`.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        evaluate: Callable[[Mapping[str, int]], Evaluation],
        *,
        pinned: Mapping[str, int] | None = None,
        file: WhatIfFile | None = None,
        variant: str = "",
        progress: Progress = silent,
    ) -> None:
        self.nodes = tuple(nodes)
        self.pinned = pinned or {}
        self.free = tuple(n for n, node in enumerate(self.nodes) if node not in self.pinned)
        self._evaluate = evaluate
        self._file = file
        self._variant = variant
        self._progress = progress
        self._purpose, self._requests, self._expected = "", 0, 0
        self._evaluations: dict[Widths, Evaluation] = {}

    def begin(self, purpose: str, expected: int = 0) -> None:
        """Reports the next requests as steps of `purpose`, `expected` in total (0: unknown)."""
        self._purpose, self._requests, self._expected = purpose, 0, expected

    def __call__(self, widths: Widths) -> Evaluation:
        """Returns the evaluation at these widths, and reports progress."""
        if widths not in self._evaluations:
            self._evaluations[widths] = self._evaluated(widths)
        self._requests += 1
        self._progress(self._requests, self._expected, self._purpose)
        return self._evaluations[widths]

    def uniform_widths(self, bits: int) -> Widths:
        """The widths with `bits` bits in all nodes that are not pinned."""
        return tuple(self.pinned.get(node, bits) for node in self.nodes)

    def uniform(self, bits: int) -> Evaluation:
        """Returns the evaluation with `bits` bits in all nodes that are not pinned."""
        return self(self.uniform_widths(bits))

    def __len__(self) -> int:
        return len(self._evaluations)

    def __iter__(self) -> Iterator[tuple[Widths, Evaluation]]:
        return iter(self._evaluations.items())

    def _evaluated(self, widths: Widths) -> Evaluation:
        bits = dict(zip(self.nodes, widths, strict=True))
        if self._file is None:
            return self._evaluate(bits)
        evaluation = self._file.find(self._variant, bits)
        if evaluation is None:
            evaluation = self._evaluate(bits)
            self._file.store(self._variant, evaluation)
        return evaluation
