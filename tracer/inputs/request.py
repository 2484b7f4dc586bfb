"""Feeds for a model as options request them: files, a data set, or random inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias, TypeVar

from tracer import shapes
from tracer.errors import InputError, ModelError, UsageError
from tracer.graph.model import Model
from tracer.inputs import files
from tracer.inputs import random as drawn
from tracer.inputs.batches import FeedBatches, open_batches
from tracer.inputs.choice import choices
from tracer.inputs.datasets.labelled import DEFAULT_FOLDER
from tracer.inputs.datasets.opening import open_dataset
from tracer.inputs.feedset import FeedSet
from tracer.inputs.model_feeds import make_feeds, random_feeds

_Result = TypeVar("_Result")

InputPaths: TypeAlias = str | Path | Sequence[str | Path] | None
"""Files and folders with a model's inputs; None for random inputs."""

_DEFAULT_BATCH = 64
"""Samples of a data set per batch."""


@dataclass(frozen=True, slots=True)
class Samples:
    """The first `limit` samples (None: all) of the data set `name`, with its files in `folder`."""

    name: str
    limit: int | None = None
    folder: Path = DEFAULT_FOLDER

    def __str__(self) -> str:
        """Returns the name."""
        return self.name


@dataclass(frozen=True, slots=True)
class Request:
    """Files or samples to feed `model` from, or the sizes and the seed of random inputs.

    `folder` is the folder that holds the model, if the source is a folder: its first
    test_data_set is the default input. With `is_cut`, feeds for one inference are the first `batch`
    samples (1) of the files or the data set.
    """

    model: Model
    folder: Path | None = None
    batch: int | None = None
    dims: Mapping[str, int] | None = None
    paths: tuple[Path, ...] = ()
    seed: int = 0
    data: Samples | None = None
    is_cut: bool = False

    def __post_init__(self) -> None:
        """Raises UsageError for dims of inputs that have their own shapes."""
        if self.dims and (self.paths or self.data):
            raise UsageError(
                f"{self.data or self.paths[0]}: the inputs' own shapes decide, not dims",
                "Leave out the dims, or leave out the inputs.",
            )

    @property
    def random(self) -> bool:
        """Whether the inputs are random numbers."""
        return self.data is None and not self.paths and self._own_test_data() is None

    def feeds(self) -> FeedSet:
        """Returns feeds for one inference; a data set yields its first batch.

        Raises UsageError for several files, and the errors of `make_feeds`.
        """
        return next(self.choices())

    def choices(self) -> Iterator[FeedSet]:
        """Yields feeds for one inference, then random feeds of other sizes that were not set."""
        if self.random:
            sizes = choices(self.model, self.batch, self.dims or {})
            return (random_feeds(self.model, each, self.seed) for each in sizes)
        return iter((self._read(),))

    def others(self, first: FeedSet) -> Sequence[FeedSet]:
        """Returns random inputs from the next seed; none where inputs are not random or absent."""
        if not self.random or not first.feeds:
            return ()
        feeds = drawn.generate(self.model, first.shapes, self.seed + 1)
        return (FeedSet(feeds, first.batch),)

    def _read(self) -> FeedSet:
        if self.is_cut:
            return self._first()
        if self.data is not None:
            return next(iter(self._samples(self.data)))
        if len(self.paths) > 1:
            raise UsageError(
                f"{len(self.paths)} inputs are named for one inference",
                "Name one of them; only overflow counts take several.",
            )
        path = next(iter(self.paths), self._own_test_data())
        return make_feeds(self.model, batch=self.batch, dims=self.dims, path=path, seed=self.seed)

    def cut(self) -> Request:
        """Returns the request for the first `batch` samples, if its data may hold more of them.

        A single file without a `batch` is one inference as it is.
        """
        several = self.data is not None or len(self.paths) > 1
        return replace(self, is_cut=several or (bool(self.paths) and self.batch is not None))

    def batches(self) -> Iterable[FeedSet]:
        """Returns feeds for all inferences of the data; may be iterated any number of times.

        `batch` is the number of samples per inference. Raises the errors of `make_feeds`.
        """
        if self.data is not None:
            return self._samples(self.data)
        return open_batches(self.model, self.paths, self.batch) if self.paths else (self.feeds(),)

    def _first(self) -> FeedSet:
        feedset = next(iter(replace(self, batch=self.batch or 1).batches()))
        if self.batch is not None and feedset.batch != self.batch:
            raise InputError(
                f"{self.data or self.paths[0]}: the first batch has {feedset.batch} rows, not "
                f"{self.batch}",
                "Set a smaller batch, or name more samples.",
            )
        return feedset

    def _samples(self, data: Samples) -> FeedBatches:
        dataset = open_dataset(data.name, self.model, limit=data.limit, folder=data.folder)
        count = f"{dataset.samples:,} samples" if dataset.samples else "samples"
        description = f"inputs are {count} of {data.name}"
        return FeedBatches(self.model, (dataset,), self.batch or _DEFAULT_BATCH, description)

    def _own_test_data(self) -> Path | None:
        if self.folder is None or self.batch is not None or self.dims:
            return None
        return next(iter(files.nested_test_data_sets(self.folder)), None)


def on_sizes_that_run(
    request: Request, run: Callable[[FeedSet], _Result]
) -> tuple[FeedSet, _Result]:
    """Returns feeds and the result of `run`, at the first sizes that it and all nodes take.

    Shapes alone do not tell everything: a text model with a table of 64 positions takes no 128
    tokens. Raises the error at the first sizes, with all that may be set, if no sizes are taken.
    """
    failed: tuple[FeedSet, InputError | ModelError] | None = None
    for feedset in request.choices():
        try:
            shapes.check(request.model, feedset.shapes, feedset.feeds)
            return feedset, run(feedset)
        except (InputError, ModelError) as error:
            if not feedset.chosen or (failed and error.what == failed[1].what):
                raise  # for other reasons than the sizes
            failed = failed or (feedset, error)
    assert failed is not None  # there is always one choice
    first, refusal = failed
    options = " ".join(f"--dim {called}={size}" for called, size in first.chosen.items())
    raise type(refusal)(refusal.what, f"No usual sizes fit; set them: {options}") from refusal


def request_for(
    source: object,
    model: Model,
    batch: int | None = None,
    dims: Mapping[str, int] | None = None,
    feeds: InputPaths | Samples = None,
    seed: int = 0,
) -> Request:
    """Returns the request for feeds of `model`, opened from `source`, by a command's options."""
    folder = Path(source) if isinstance(source, str | Path) and Path(source).is_dir() else None
    if isinstance(feeds, Samples):
        return Request(model, folder, batch, dims, (), seed, feeds)
    paths = [feeds] if isinstance(feeds, str | Path) else feeds or []
    return Request(model, folder, batch, dims, tuple(Path(path) for path in paths), seed)
