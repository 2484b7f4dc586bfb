"""Weights of a model that the arrays of its inputs override."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from tracer.graph.model import Model
from tracer.graph.stored_weights import overridable, with_fed_weights
from tracer.inputs import npz
from tracer.inputs.request import InputPaths, Samples


def with_overrides(model: Model, feeds: InputPaths | Samples) -> Model:
    """Returns the model with those weights as inputs that an .npz of `feeds` has an array for.

    Only weights that the model lists among its inputs can be overridden. Raises InputError for an
    archive that cannot be read.
    """
    names = {value.name for value in overridable(model)}
    if not names:
        return model
    held = {name for path in _archives(feeds) for name in npz.members(path)}
    fed = names & held
    return with_fed_weights(model, fed) if fed else model


def _archives(feeds: InputPaths | Samples) -> Iterator[Path]:
    sources: Sequence[str | Path]
    if isinstance(feeds, Samples):
        sources = [feeds.name]
    else:
        sources = [feeds] if isinstance(feeds, str | Path) else feeds or ()
    for path in map(Path, sources):
        yield from sorted(path.glob("*.npz")) if path.is_dir() else ()
        if path.suffix == ".npz" and path.is_file():
            yield path
