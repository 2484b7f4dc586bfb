"""Feeds for a model: read from a file or test folder, or random with a seed."""

from collections.abc import Mapping
from pathlib import Path

from tracer.errors import InputError, UsageError
from tracer.graph import shape_inference, tensor_type
from tracer.graph.model import Model
from tracer.inputs import files, random
from tracer.inputs.choice import Sizes, choose
from tracer.inputs.dims import batch_of
from tracer.inputs.feedset import Feeds, FeedSet


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
    feeds = files.read(model, path)
    check_feeds(model, feeds)
    batch = batch_of(model, FeedSet(feeds, None).shapes)
    return FeedSet(feeds, batch, (f"inputs are those of {path}",))


def random_feeds(model: Model, sizes: Sizes, seed: int) -> FeedSet:
    """Returns random feeds of these sizes. Raises the errors of `random.generate`."""
    feeds = random.generate(model, sizes.shapes, seed)
    note = f"inputs are random, seed {seed}" if feeds else "the model has no inputs"
    notes = (*sizes.notes, note)
    return FeedSet(feeds, batch_of(model, sizes.shapes), notes, sizes.chosen)


def check_feeds(model: Model, feeds: Feeds) -> None:
    """Raises InputError, naming the input, if `feeds` do not fit the model's declaration."""
    names = [value.name for value in model.inputs]
    missing = [name for name in names if name not in feeds]
    unknown = [name for name in feeds if name not in names]
    if missing or unknown:
        problem = f"{', '.join(missing)} missing" if missing else f"{', '.join(unknown)} unknown"
        raise InputError(
            f"the inputs do not fit {model.name}: {problem}",
            f"The model's inputs are {', '.join(names) or 'none'}.",
        )
    for value in model.inputs:
        declared = tensor_type.from_type_proto(value.type)
        dtype = getattr(feeds[value.name], "dtype", None)
        if declared is None or dtype is None:
            continue
        name = "string" if dtype.kind in "OUST" else dtype.name
        if name != declared.dtype:
            raise InputError(
                f"input '{value.name}' of {model.name} is {declared}, but {name} was fed",
                f"Convert it, for example with array.astype('{declared.dtype}').",
            )
    shape_inference.symbol_sizes(model, FeedSet(feeds, None).shapes)
