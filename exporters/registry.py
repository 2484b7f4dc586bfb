"""The exporter of a framework and of a model, and whether weights fit a model of either."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from tracer.errors import InputError, UsageError
from tracer.exporters import frameworks
from tracer.exporters.records import Exporter

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
_SHOWN = 5


def all_exporters() -> list[Exporter]:
    """Returns the exporter of every framework; importing one does not import its framework."""
    return [_exporter(name) for name in frameworks()]


def exporter_of(model: object, framework: str | None = None) -> Exporter:
    """Returns the exporter that claims `model`; with a `framework`, only that one may.

    Raises UsageError for an unknown framework, or an object of no framework.
    """
    names = frameworks()
    if framework is not None and framework not in names:
        raise UsageError(f"no framework '{framework}'", f"There are {', '.join(names)}.")
    for name in [framework] if framework else names:
        exporter = _exporter(name)
        if exporter.claims(model):
            return exporter
    kind = f"{type(model).__module__}.{type(model).__qualname__}"
    expected = f"a {framework} model" if framework else f"a model of {' or '.join(names)}"
    raise UsageError(
        f"an object of type {kind} is not {expected}",
        "Name a torch.nn.Module, a torch.export.ExportedProgram or a chainer.Link.",
    )


def _exporter(name: str) -> Exporter:
    exporter: Exporter = importlib.import_module(f"tracer.exporters.{name}.exporter").exporter
    return exporter


def inherits(model: object, module: str, name: str) -> bool:
    """Returns whether a base class of `model` is `module`.`name`, without importing `module`."""
    return any(
        base.__name__ == name and (base.__module__ + ".").startswith(module + ".")
        for base in type(model).__mro__
    )


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
    faults = []
    of_each = (("missing", missing), ("unexpected", extra), ("of another shape", wrong))
    for fault, names in of_each:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        if names:
            faults.append(f"{len(names)} {fault}: {', '.join(names[:_SHOWN])}{more}")
    if faults:
        raise InputError(
            f"{path}: the weights do not fit the model: {'; '.join(faults)}",
            "Give the weights of this model, or its --arg values.",
        )
