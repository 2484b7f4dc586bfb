"""What to feed a model, as it was asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

from tracer import inputs
from tracer.errors import InputError, UsageError
from tracer.graph.loading import ModelSource
from tracer.graph.model import Model
from tracer.inputs.batches import Batches, batches
from tracer.inputs.datasets import DEFAULT_FOLDER, open_dataset
from tracer.inputs.feedset import FeedSet

_Made = TypeVar("_Made")

Feeds: TypeAlias = str | Path | Sequence[str | Path] | None
"""Files and folders to read the inputs of a model from; None for random inputs."""

_TEST_DATA = "test_data_set_*"
_USUAL = 64
"""Samples of a data set at a time, where nobody says how many."""


@dataclass(frozen=True, slots=True)
class Samples:
    """The first `limit` samples, or all, of the data set `name`, whose files lie in `folder`."""

    name: str
    limit: int | None = None
    folder: Path = DEFAULT_FOLDER

    def __str__(self) -> str:
        """The name."""
        return self.name


@dataclass(frozen=True, slots=True)
class Request:
    """Files or samples to feed `model` from, or the sizes and the seed of random inputs.

    `folder` is the folder that the model was given as, if it was: the first of its data sets is
    taken where nothing else is said.
    """

    model: Model
    folder: Path | None = None
    batch: int | None = None
    dims: Mapping[str, int] | None = None
    paths: tuple[Path, ...] = ()
    seed: int = 0
    data: Samples | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for dims of inputs that have shapes of their own."""
        if self.dims and (self.paths or self.data):
            raise UsageError(
                f"{self.data or self.paths[0]}: the inputs' own shapes decide; no dim can change "
                "them",
                "Leave out the dims, or leave out the inputs.",
            )

    @property
    def random(self) -> bool:
        """Whether the inputs are random numbers, and those of another seed as good."""
        return self.data is None and not self.paths and self._beside() is None

    def feeds(self, shrink: int = 1) -> FeedSet:
        """Feeds for one inference, with the sizes that have to be assumed divided by `shrink`.

        Of a data set that is the first batch. Raises UsageError for several files, and the errors
        of `inputs.make`.
        """
        if self.data is not None:
            return next(iter(self._samples(self.data)))
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

    def batches(self) -> Iterable[FeedSet]:
        """Feeds for as many inferences as the data hold, to be gone through any number of times.

        `batch` is how many samples to take at a time. Raises the errors of `inputs.make`.
        """
        if self.data is not None:
            return self._samples(self.data)
        return batches(self.model, self.paths, self.batch) if self.paths else (self.feeds(),)

    def _samples(self, data: Samples) -> Batches:
        found = open_dataset(data.name, self.model, limit=data.limit, folder=data.folder)
        count = f"{found.samples:,} samples" if found.samples else "samples"
        told = f"inputs are {count} of {data.name}"
        return Batches(self.model, (found,), self.batch or _USUAL, told)

    def _beside(self) -> Path | None:
        if self.folder is None or self.batch is not None or self.dims:
            return None
        return next(iter(sorted(self.folder.glob(_TEST_DATA))), None)


def on_sizes_that_run(request: Request, run: Callable[[FeedSet], _Made]) -> tuple[FeedSet, _Made]:
    """Feeds and what `run` makes of them; where assumed sizes do not fit, half of them, and so on.

    A text model with a table of 64 positions does not take the 128 tokens we would assume.
    """
    shrink = 1
    while True:
        feedset = request.feeds(shrink)
        try:
            return feedset, run(feedset)
        except InputError as error:
            if all(size <= 1 for size in feedset.assumed.values()):
                raise _told_sizes(error, request.feeds()) from error
        shrink *= 2


def _told_sizes(error: InputError, feedset: FeedSet) -> InputError:
    if not feedset.assumed:
        return error
    sizes = ", ".join(f"{name}={size}" for name, size in feedset.assumed.items())
    return InputError(error.what, f"Sizes from {sizes} down were tried: set them with --dim.")


def request_for(
    source: ModelSource,
    model: Model,
    batch: int | None,
    dims: Mapping[str, int] | None,
    feeds: Feeds | Samples,
    seed: int,
) -> Request:
    """What to feed `model`, opened from `source`, as commands with these options ask for it."""
    folder = Path(source) if isinstance(source, str | Path) and Path(source).is_dir() else None
    if isinstance(feeds, Samples):
        return Request(model, folder, batch, dims, (), seed, feeds)
    given = [feeds] if isinstance(feeds, str | Path) else feeds or []
    return Request(model, folder, batch, dims, tuple(Path(path) for path in given), seed)


def feeds_for(
    source: ModelSource,
    loaded: Model,
    *,
    batch: int | None = None,
    dims: Mapping[str, int] | None = None,
    feeds: Feeds | Samples = None,
    seed: int = 0,
    shrink: int = 1,
) -> FeedSet:
    """The feeds that a command with these options runs `loaded`, opened from `source`, on.

    Sizes that have to be assumed are divided by `shrink`.
    """
    return request_for(source, loaded, batch, dims, feeds, seed).feeds(shrink)
