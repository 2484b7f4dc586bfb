"""The exporter of a framework, and of a model."""

from __future__ import annotations

import importlib

from exporters.frameworks import frameworks
from exporters.records import Exporter
from tracer.errors import UsageError


def exporters_known() -> list[Exporter]:
    """Returns the exporter of every framework; importing one does not import its framework."""
    return [_exporter(name) for name in frameworks()]


def exporter_of(model: object, framework: str | None = None) -> Exporter:
    """The exporter that claims `model`, which must be the one of `framework` where that is given.

    Raises UsageError for a framework that is not known, or an object that is nobody's.
    """
    known = frameworks()
    if framework is not None and framework not in known:
        raise UsageError(f"no framework '{framework}'", f"There are {', '.join(known)}.")
    for name in [framework] if framework else known:
        exporter = _exporter(name)
        if exporter.claims(model):
            return exporter
    kind = f"{type(model).__module__}.{type(model).__qualname__}"
    wanted = f"a {framework} model" if framework else f"a model of {' or '.join(known)}"
    raise UsageError(
        f"an object of type {kind} is not {wanted}",
        "Name a torch.nn.Module, a torch.export.ExportedProgram or a chainer.Link.",
    )


def _exporter(name: str) -> Exporter:
    exporter: Exporter = importlib.import_module(f"exporters.{name}.exporter").exporter
    return exporter


def inherits(model: object, module: str, name: str) -> bool:
    """Whether a base class of `model` is `module`'s `name`, told without importing `module`."""
    return any(
        base.__name__ == name and (base.__module__ + ".").startswith(module + ".")
        for base in type(model).__mro__
    )
