"""Feeds for a model as options request them: files, a data set, random inputs, or phases."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias, TypeVar

from numpy.typing import ArrayLike

from tracer import shapes
from tracer.containment.activity import Progress, silent
from tracer.errors import InputError, ModelError, UsageError, locate_errors
from tracer.graph.model import Model
from tracer.graph.stored_weights import overridable, with_fed_weights
from tracer.inputs.datasets import DEFAULT_FOLDER
from tracer.inputs.feedset import (
    ARRAYS,
    FeedSet,
    check_feeds,
    describe_source,
    nan_notes,
    nested_test_data_sets,
    npz_members,
    random_arrays,
    read_feeds,
)
from tracer.inputs.sizes import Sizes, batch_of, choices, choose
from tracer.support.temporary import is_temporary
from tracer.text import DECODE, PREFILL, brief

_Result = TypeVar("_Result")
InputPaths: TypeAlias = str | Path | Sequence[str | Path] | Mapping[str, ArrayLike] | None
"""Files and folders with a model's inputs; None for random inputs.

Arrays by name are in a file before a function gets them: see `tracer.api._calls`.
"""


@dataclass(frozen=True, slots=True)
class Samples:
    """The first `limit` samples (None: all) of the data set `name`, with its files in `folder`."""

    name: str
    limit: int | None = None
    folder: Path = DEFAULT_FOLDER

    def __str__(self) -> str:
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

    def further_feeds(self, first: FeedSet) -> Sequence[FeedSet]:
        """Returns random inputs from the next seed; none where inputs are not random or absent."""
        if not self.random or not first.feeds:
            return ()
        feeds = random_arrays(self.model, first.shapes, self.seed + 1)
        return (FeedSet(feeds, first.batch),)

    def _read(self) -> FeedSet:
        if self.is_cut:
            feedset = next(iter(replace(self, batch=self.batch or 1).batches()))
            if self.batch is not None and feedset.batch != self.batch:
                raise InputError(
                    f"{self.data or self.paths[0]}: the first batch has {feedset.batch} rows, not "
                    f"{self.batch}",
                    "Set a smaller batch, or name more samples.",
                )
            return feedset
        if self.data is not None:
            return next(iter(self.batches()))
        if len(self.paths) > 1:
            raise UsageError(
                f"{len(self.paths)} inputs are named for one inference",
                "Name one of them; only overflow counts take several.",
            )
        path = next(iter(self.paths), self._own_test_data())
        return make_feeds(self.model, batch=self.batch, dims=self.dims, path=path, seed=self.seed)

    def first_batch(self) -> "Request":
        """Returns the request for the first `batch` samples, if its data may hold more of them.

        A single file without a `batch` is one inference as it is.
        """
        several = self.data is not None or len(self.paths) > 1
        return replace(self, is_cut=several or (bool(self.paths) and self.batch is not None))

    def batches(self) -> Iterable[FeedSet]:
        """Returns feeds for all inferences of the data; may be iterated any number of times.

        `batch` is the number of samples per inference. Raises the errors of `make_feeds`.
        """
        if self.data is None and not self.paths:
            return (self.feeds(),)
        from tracer.inputs.datasets import opening  # with all readers of data: 0.02 s

        if self.data is not None:
            return opening.open_samples(self.model, self.data, self.batch)
        return opening.open_batches(self.model, self.paths, self.batch)

    def _own_test_data(self) -> Path | None:
        if self.folder is None or self.batch is not None or self.dims:
            return None
        return next(iter(nested_test_data_sets(self.folder)), None)


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
    return Request(model, folder, batch, dims, _paths(feeds), seed)


def _paths(feeds: InputPaths) -> tuple[Path, ...]:
    return tuple(map(Path, [feeds] if isinstance(feeds, str | Path) else feeds or ()))


_MOST_REPEATS = 4
"""A failure of the first sizes that comes again more often is none of the sizes."""


def _total(feedset: FeedSet) -> int:
    return sum(feedset.chosen.values())


def on_sizes_that_run(
    request: Request,
    run: Callable[[FeedSet], _Result],
    attempt: Callable[[FeedSet], object] | None = None,
    progress: Progress = silent,
) -> tuple[FeedSet, _Result]:
    """Returns feeds and the result of `run`, at the first sizes that it and all nodes take.

    Shapes alone do not tell everything: a text model with a table of 64 positions takes no 128
    tokens. An `attempt`, which takes less time than `run` and raises the same errors, comes before
    it at further sizes. After the first error again, as of a table that is too short, only smaller
    sizes are tried, and few. Raises the error at the first sizes, with all that may be set, if no
    sizes are taken.
    """
    failed: tuple[FeedSet, InputError | ModelError] | None = None
    repeats = 0
    for index, feedset in enumerate(request.choices()):
        if repeats and failed and _total(feedset) >= _total(failed[0]):
            continue
        try:
            shapes.check(request.model, feedset.shapes, feedset.feeds)
            if failed and attempt is not None:
                progress(index, 0, "trying sizes")
                attempt(feedset)
            return feedset, run(feedset)
        except (InputError, ModelError) as error:
            repeats += failed is not None and error.what == failed[1].what
            if not feedset.chosen or repeats > _MOST_REPEATS:
                raise  # for other reasons than the sizes
            failed = failed or (feedset, error)
    assert failed is not None  # there is always one choice
    first, refusal = failed
    tried = ", ".join(f"{called}={size}" for called, size in first.chosen.items())
    options = shlex.join(w for called in first.chosen for w in ("--dim", f"{called}=SIZE"))
    hint = f"No usual sizes fit, among them {tried}; set them: {options}"
    raise type(refusal)(refusal.what, hint) from refusal


def with_overrides(model: Model, feeds: InputPaths | Samples) -> Model:
    """Returns the model with those weights as inputs that an .npz of `feeds` has an array for.

    Only weights that the model lists among its inputs can be overridden. Raises InputError for an
    archive that cannot be read.
    """
    names = {value.name for value in overridable(model)}
    if not names:
        return model
    held = set[str]()
    for path in _paths(feeds.name if isinstance(feeds, Samples) else feeds):
        inside = sorted(path.glob("*.npz")) if path.is_dir() else [path]
        for file in inside:
            if file.suffix == ".npz" and file.is_file():
                held.update(npz_members(file))
    fed = names & held
    return with_fed_weights(model, fed) if fed else model


def make_feeds(
    model: Model,
    *,
    batch: int | None = None,
    dims: Mapping[str, int] | None = None,
    path: Path | None = None,
    seed: int = 0,
) -> FeedSet:
    """Returns feeds for `model`: read from `path`, or (default) random with `seed`.

    `batch` sets the batch dimension, `dims` other open dimensions by symbol or `INPUT:AXIS`; the
    rest is chosen. Raises InputError if a dimension is unknown or fixed, or a file does not fit the
    model; UsageError for sizes that contradict each other.
    """
    if path is None:
        return random_feeds(model, choose(model, batch, dims or {}), seed)
    if batch is not None or dims:
        raise UsageError(
            f"{path}: the inputs' own shapes decide; they cannot be changed by a batch or dim",
            "Leave out the batch and dims, or leave out the inputs.",
        )
    feeds = read_feeds(model, path)
    with locate_errors(path):
        check_feeds(model, feeds)
    batch = batch_of(model, FeedSet(feeds, None).shapes)
    where = ARRAYS if is_temporary(path) else path
    return FeedSet(feeds, batch, (describe_source([path]), *nan_notes(feeds, where)))


def random_feeds(model: Model, sizes: Sizes, seed: int) -> FeedSet:
    """Returns random feeds of these sizes. Raises the errors of `random_arrays`."""
    feeds = random_arrays(model, sizes.shapes, seed)
    absent = [f"'{brief(name)}'" for name, each in feeds.items() if each is None]
    has_floats = any(each.dtype.kind in "fV" for each in feeds.values() if each is not None)
    which = ", floats from 0 to 1" if has_floats else ""  # what happens below 0 does not show
    which += f", without the optional {', '.join(absent)}" if absent else ""
    note = f"inputs are random{which}, seed {seed}" if feeds else "the model has no inputs"
    notes = (*sizes.notes, note)
    return FeedSet(feeds, batch_of(model, sizes.shapes), notes, sizes.chosen)


@dataclass(frozen=True, slots=True)
class Step:
    """`new` tokens of each entry of a batch, after `past` tokens that are in the cache."""

    batch: int
    new: int
    past: int

    @property
    def total(self) -> int:
        """The tokens that the new ones see, and that the cache holds afterwards."""
        return self.past + self.new


@dataclass(frozen=True, slots=True)
class Phase:
    """One inference of a phase: `new` tokens of each entry after `past` tokens in the cache."""

    name: str
    new: int
    past: int

    def step(self, batch: int) -> Step:
        """Returns the step of this phase for a batch size."""
        return Step(batch, self.new, self.past)


@dataclass(frozen=True, slots=True)
class Phases:
    """Which phases to look at: `prefill` tokens, then `decode` steps; `pasts` of single steps.

    Without `pasts`, the single step is the middle one of `decode`. Raises UsageError for steps
    without a prefill before them, and for pasts without steps.
    """

    prefill: int
    decode: int | None = None
    pasts: Sequence[int] = ()

    @classmethod
    def of(
        cls, prefill: int | None, decode: int | None, past: int | Sequence[int] | None
    ) -> "Phases | None":
        """Returns the phases that arguments of a command name; None if they name none."""
        if prefill is None and decode is None and past is None:
            return None
        if prefill is None:
            raise UsageError(
                f"{'decode' if decode else 'past'} is set, and no prefill comes before it",
                "Set --prefill, the number of tokens of the prompt, as well.",
            )
        if past is not None and decode is None:
            raise UsageError(
                "past is set, and there are no decode steps", "Set --decode, their number, as well."
            )
        pasts = () if past is None else (past,) if isinstance(past, int) else tuple(past)
        return cls(prefill, decode, tuple(dict.fromkeys(pasts)))

    def in_order(self) -> tuple[Phase, ...]:
        """Returns the phases in their order: the prefill, then a decode step at each past."""
        prefill = Phase(PREFILL, self.prefill, 0)
        if self.decode is None:
            return (prefill,)
        pasts = self.pasts or (self.prefill + self.decode // 2,)
        return (prefill, *(Phase(DECODE, 1, past) for past in pasts))
