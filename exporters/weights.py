"""Whether weights fit a model: the same question and the same answer for every framework."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from tracer.errors import InputError

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
_SHOWN = 5


def check_exists(path: Path) -> None:
    """Raises InputError where there is no such file."""
    if not path.is_file():
        raise InputError(f"{path}: no such file of weights")


def check_fit(path: Path, given: Shapes, wanted: Shapes) -> None:
    """Raises InputError that lists what is missing, what is unexpected, and shapes that differ."""
    missing = [f"{name} {list(shape)}" for name, shape in wanted.items() if name not in given]
    extra = [f"{name} {list(shape)}" for name, shape in given.items() if name not in wanted]
    wrong = [
        f"{name} is {list(given[name])}, the model has {list(shape)}"
        for name, shape in wanted.items()
        if name in given and given[name] != shape
    ]
    faults = [
        f"{len(names)} {what}: {_listed(names)}"
        for what, names in (
            ("missing", missing),
            ("unexpected", extra),
            ("of another shape", wrong),
        )
        if names
    ]
    if faults:
        raise InputError(
            f"{path}: the weights do not fit the model: {'; '.join(faults)}",
            "Give the weights of this very model, or its --arg values.",
        )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
