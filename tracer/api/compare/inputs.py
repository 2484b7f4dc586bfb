"""The inputs that the sides of a comparison share.

ONNX models declare theirs, and feed themselves. A module of a framework declares none: it runs on
the arrays of the first ONNX model, by position. The values of all sides are compared on these.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tracer.api.compare.settings import SideSettings
from tracer.api.compare.sides import (
    FrameworkSide,
    NamedSide,
    OnnxSide,
    Recorded,
)
from tracer.errors import UsageError
from tracer.exporters.records import draw, input_specs
from tracer.exporters.source import names_code
from tracer.inputs import files, npz
from tracer.inputs.request import on_sizes_that_run

Arrays: TypeAlias = Sequence[NDArray[Any]]
"""An array for each input of a model, by position."""


def shared(sides: Sequence[NamedSide], settings: SideSettings) -> Arrays | None:
    """Returns the inputs of the first ONNX model, else those that the settings describe.

    None leaves each module its own `input_shape`. Raises UsageError for settings that contradict
    each other, and the errors of `tracer.inputs.request`.
    """
    _refuse_contradictions(sides, settings)
    models = [side for side in sides if isinstance(side, OnnxSide)]
    if models:
        return _of_model(models[0], settings)
    if all(isinstance(side, Recorded) for side in sides):
        return None
    if settings.feeds is not None:
        return list(files.read_arrays(settings.feeds).values())
    if settings.input_shape is None:
        return None
    specs = input_specs(settings.shapes(settings.batch), settings.input_dtype)
    for spec in specs:
        spec.check()
    return draw(specs, settings.seed)


def divided(
    sides: Sequence[NamedSide], settings: SideSettings, folder: Path
) -> tuple[list[NamedSide], tuple[str, ...]]:
    """Returns the sides, each ONNX model with the arrays of the file that it takes, and notes.

    The file of the settings may hold arrays that some of the models do not take; what each takes is
    written to `folder`. An array that none takes is left to the check of the first model.
    """
    models = [side for side in sides if isinstance(side, OnnxSide)]
    if settings.feeds is None or settings.feeds.suffix != ".npz" or not models:
        return list(sides), ()
    held = list(npz.members(settings.feeds))
    if not set(held) <= set().union(*map(_input_names, models)):
        return list(sides), ()
    divided_sides, notes = list[NamedSide](), list[str]()
    for side in sides:
        if not isinstance(side, OnnxSide) or _input_names(side).issuperset(held):
            divided_sides.append(side)
            continue
        taken = {
            n: a for n, a in files.read_arrays(settings.feeds).items() if n in _input_names(side)
        }
        path = folder / f"{len(divided_sides)}.npz"
        np.savez(path, allow_pickle=False, **taken)
        divided_sides.append(replace(side, feeds=path))
        left = ", ".join(name for name in held if name not in taken)
        notes.append(f"{side.label} has no input {left}, which is left out there")
    return divided_sides, tuple(notes)


def _input_names(side: OnnxSide) -> set[str]:
    return {value.name for value in side.model.inputs}


def live(sides: Sequence[NamedSide], arrays: Arrays | None) -> list[OnnxSide | FrameworkSide]:
    """Returns the sides that are run now; modules of a framework run on `arrays`."""
    return [
        replace(side, arrays=arrays) if isinstance(side, FrameworkSide) else side
        for side in sides
        if not isinstance(side, Recorded)
    ]


def _of_model(side: OnnxSide, settings: SideSettings) -> Arrays:
    request = side.request(settings)
    feedset = request.feeds()
    if feedset.chosen:
        feedset, _ = on_sizes_that_run(request, lambda feeds: side.tensors(feeds, settings))
    return list(feedset.feeds.values())


def _refuse_contradictions(sides: Sequence[NamedSide], settings: SideSettings) -> None:
    if settings.input_shape is not None and (settings.feeds or settings.dims):
        other = "--inputs" if settings.feeds else "--dim"
        raise UsageError(f"--input-shape and {other} both set sizes", "Give one of them.")
    if settings.input_dtype == SideSettings().input_dtype:
        return
    for side in sides:
        if isinstance(side, OnnxSide) and not names_code(str(side.source)):
            raise UsageError(
                f"--input-dtype would do nothing: {side.label} declares the types of its inputs",
                "Leave it out.",
            )
