"""The exporter of a framework, and of a model."""

import importlib

from tracer.errors import UsageError
from tracer.exporters.frameworks import frameworks
from tracer.exporters.records import Exporter


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
