"""The arrays that one inference runs on, by input name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tracer.errors import InputError
from tracer.graph import shape_inference, tensor_type
from tracer.graph.model import Model

Feeds: TypeAlias = Mapping[str, Any]
"""An array per model input by name; a list of arrays for a sequence."""


CHOSEN = "sizes chosen: "
"""Begins the note on sizes that neither model nor user set: it is shown first."""


@dataclass(frozen=True, slots=True)
class FeedSet:
    """Feeds for one batch size, with notes, and the sizes that were chosen, by dimension."""

    feeds: Feeds = field(repr=False)
    batch: int | None
    notes: tuple[str, ...] = ()
    chosen: Mapping[str, int] = field(default_factory=dict)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each array among the feeds."""
        return {n: tuple(v.shape) for n, v in self.feeds.items() if hasattr(v, "shape")}


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
