"""Chooses sizes for the dimensions of inputs that neither the model nor the user has set.

What every command runs or counts at is chosen here: sizes that such inputs usually have, as far as
the shapes inside the model fit together at them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tracer import shapes
from tracer.errors import InputError, ModelError, UsageError
from tracer.graph import shape_inference
from tracer.graph.model import Model
from tracer.inputs import dims as dimensions
from tracer.inputs.dims import Declared, label, open_places
from tracer.inputs.feedset import CHOSEN
from tracer.inputs.ranks import ranked
from tracer.inputs.usual_sizes import Usual, usual_sizes

_MOST_NODES = 5_000
"""Inference on a larger model takes seconds: its usual sizes are not tried out."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """A shape of each input, and the chosen sizes in it, by what the dimensions are called.

    `notes` says what was chosen.
    """

    shapes: Mapping[str, tuple[int, ...]]
    chosen: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Freedom:
    """What the model and the user leave free, by what the dimensions are called.

    `fixed` are sizes, `summed` are the terms of a dimension called `past + sequence`.
    """

    declared: Declared
    fixed: Mapping[str, int]
    free: Mapping[str, Usual]
    summed: Mapping[str, Sequence[str]]

    def at(self, chosen: Mapping[str, int]) -> Sizes:
        """Returns all sizes where those of the free dimensions are `chosen`."""
        known = {**self.fixed, **chosen}
        for called, terms in self.summed.items():
            known[called] = sum(known[term] if term in known else int(term) for term in terms)
        shapes = {
            name: tuple(
                dim if isinstance(dim, int) else known[label(self.declared, name, axis)]
                for axis, dim in enumerate(shape)
            )
            for name, shape in self.declared.items()
        }
        return Sizes(shapes, chosen, (self._note(shapes, chosen),) if chosen else ())

    def candidates(self) -> Iterator[dict[str, int]]:
        """Yields sizes of the free dimensions: the usual ones, then all of them larger, smaller."""
        for turn in range(max((len(usual.sizes) for usual in self.free.values()), default=1)):
            yield {
                called: usual.sizes[min(turn, len(usual.sizes) - 1)]
                for called, usual in self.free.items()
            }

    def _note(self, shapes: Mapping[str, tuple[int, ...]], chosen: Mapping[str, int]) -> str:
        parts = []
        for name, shape in self.declared.items():
            labels = [label(self.declared, name, axis) for axis in range(len(shape))]
            kinds = dict.fromkeys(self.free[each].what for each in labels if each in self.free)
            if kinds:
                shape_text = ",".join(map(str, shapes[name]))
                parts.append(f"{name}[{shape_text}] ({', '.join(kinds)})")
        options = " ".join(f"--dim {called}={size}" for called, size in chosen.items())
        return f"{CHOSEN}{', '.join(parts)}; change them with {options}"


def choose(model: Model, batch: int | None, dims: Mapping[str, int]) -> Sizes:
    """Returns the first of `choices`."""
    return next(choices(model, batch, dims))


def choices(model: Model, batch: int | None, dims: Mapping[str, int]) -> Iterator[Sizes]:
    """Yields sizes in the order to try them; there is always one.

    `dims` are sizes by symbol or `INPUT:AXIS`. Raises InputError for a name in `dims` that no
    dimension has, a batch if none is open, or an input whose rank nothing tells; UsageError if
    `dims` sizes the batch as well.
    """
    freedom = _freedom(model, batch, dims)
    if not freedom.free or len(model.nodes) > _MOST_NODES:
        return (freedom.at(chosen) for chosen in freedom.candidates())
    return _fitting(model, freedom)


def _fitting(model: Model, freedom: _Freedom) -> Iterator[Sizes]:
    """Yields the candidates at which the shapes in the model fit; all of them if none does.

    Before each comes one with as many dimensions at their usual size as fit.
    """
    trial = shape_inference.Trial(model)

    def fits(at: Sizes) -> bool:  # the first finds most of what does not fit, and takes less time
        return trial.fits(at.shapes) and shapes.fits(model, at.shapes) and _passes(model, at)

    seen: list[Mapping[str, int]] = []
    for chosen in freedom.candidates():
        if not fits(freedom.at(chosen)):
            continue
        usual = dict(chosen)
        for called in reversed(chosen):
            changed = usual | {called: freedom.free[called].sizes[0]}
            if changed != usual and fits(freedom.at(changed)):
                usual = changed
        for each in (usual, chosen):
            if each not in seen:
                seen.append(each)
                yield freedom.at(each)
    if not seen:
        yield from map(freedom.at, freedom.candidates())


def _passes(model: Model, at: Sizes) -> bool:
    """Whether inputs of these sizes fit the nodes that take them."""
    try:
        shapes.check(model, at.shapes)
    except ModelError:
        return False
    return True


def _freedom(model: Model, batch: int | None, dims: Mapping[str, int]) -> _Freedom:
    declared = ranked(model, dims)
    fixed = dimensions.given_sizes(model, declared, dims)
    axes = dimensions.batch_axes(declared)
    batches = {label(declared, name, axis) for name, axis in axes.items()}
    if batch is not None:
        _refuse_fixed(model, declared, axes, batch)
        if batches & set(fixed):
            twice = min(batches & set(fixed))
            raise UsageError(f"'{twice}' is the batch: set the batch or the dim, not both")
    given = next((fixed[each] for each in batches if each in fixed), 1)
    fixed |= dict.fromkeys(batches - set(fixed), batch or given)
    places = open_places(declared)
    rest = [called for called in places if called not in fixed]
    summed = {called: terms for called in rest if (terms := _terms(called, {*rest, *fixed}))}
    free = {
        called: usual_sizes(model, declared, *places[called])
        for called in rest
        if called not in summed
    }
    return _Freedom(declared, fixed, free, summed)


def _terms(called: str, known: Iterable[str]) -> Sequence[str]:
    """Returns the terms of a dimension called `past + sequence`; none of any other."""
    terms = [term.strip() for term in called.split("+")]
    if len(terms) > 1 and all(term.isdecimal() or term in known for term in terms):
        return terms
    return ()


def _refuse_fixed(model: Model, declared: Declared, axes: Mapping[str, int], batch: int) -> None:
    if axes:
        return
    fixed = {shape[0] for shape in declared.values() if len(shape) > 1}
    if fixed != {batch}:
        sizes = ", ".join(str(size) for size in fixed) or "absent"
        raise InputError(
            f"{model.name}: the batch is {sizes}, not {batch}, and it is not symbolic",
            "Export the model with a dynamic batch dimension.",
        )
