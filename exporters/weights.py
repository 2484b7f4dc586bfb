"""Check that weights fit a model, with the same errors for every framework."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from tracer.errors import InputError

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
_SHOWN = 5


def check_exists(path: Path) -> None:
    """Raises InputError if there is no such file."""
    if not path.is_file():
        raise InputError(f"{path}: no such file of weights")


def check_fit(path: Path, stored: Shapes, expected: Shapes) -> None:
    """Raises InputError that lists missing and unexpected weights, and shapes that differ."""
    missing = [f"{name} {list(shape)}" for name, shape in expected.items() if name not in stored]
    extra = [f"{name} {list(shape)}" for name, shape in stored.items() if name not in expected]
    wrong = [
        f"{name} is {list(stored[name])}, the model has {list(shape)}"
        for name, shape in expected.items()
        if name in stored and stored[name] != shape
    ]
    faults = [
        f"{len(names)} {fault}: {_listed(names)}"
        for fault, names in (
            ("missing", missing),
            ("unexpected", extra),
            ("of another shape", wrong),
        )
        if names
    ]
    if faults:
        raise InputError(
            f"{path}: the weights do not fit the model: {'; '.join(faults)}",
            "Give the weights of this model, or its --arg values.",
        )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
