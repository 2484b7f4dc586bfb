"""What to feed a model, as it was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tracer import inputs
from tracer.errors import UsageError
from tracer.inputs import FeedSet
from tracer.inputs.batches import Batches, batches
from tracer.model import Model

_TEST_DATA = "test_data_set_*"


@dataclass(frozen=True, slots=True)
class Request:
    """Files to feed `model` from, or the sizes and the seed of random inputs.

    `folder` is the folder that the model was given as, if it was: the first of its data sets is
    taken where nothing else is said.
    """

    model: Model
    folder: Path | None = None
    batch: int | None = None
    dims: Mapping[str, int] | None = None
    paths: tuple[Path, ...] = ()
    seed: int = 0

    def feeds(self, shrink: int = 1) -> FeedSet:
        """Feeds for one inference, with the sizes that have to be assumed divided by `shrink`.

        Raises UsageError for several files, and the errors of `inputs.make`.
        """
        if len(self.paths) > 1:
            raise UsageError(
                f"{len(self.paths)} inputs are given for one inference",
                "Give one of them; sums in narrow accumulators are counted over many.",
            )
        return inputs.make(
            self.model,
            batch=self.batch,
            dims=self.dims,
            path=next(iter(self.paths), self._beside()),
            seed=self.seed,
            shrink=shrink,
        )

    def batches(self) -> Batches | Sequence[FeedSet]:
        """Feeds for as many inferences as the files hold; `batch` is how many rows to take of them.

        Raises UsageError for sizes of files' inputs, and the errors of `inputs.make`.
        """
        if not self.paths:
            return (self.feeds(),)
        if self.dims:
            raise UsageError(
                f"{self.paths[0]}: the inputs' own shapes decide; no dim can change them",
                "Leave out the dims, or leave out the inputs.",
            )
        return batches(self.model, self.paths, self.batch)

    def _beside(self) -> Path | None:
        if self.folder is None or self.batch is not None or self.dims:
            return None
        return next(iter(sorted(self.folder.glob(_TEST_DATA))), None)
