"""The frameworks there are: every package of this folder that has an `exporter` module."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from typing import TYPE_CHECKING

import exporters
from tracer.errors import UsageError

if TYPE_CHECKING:
    from exporters.records import Exporter

_EXTRAS = {
    **{"torch": "torch", "onnxscript": "torch", "safetensors": "torch", "chainer": "chainer"},
    **{"PIL": "train", "sklearn": "train", "tensorboardX": "train"},
}


def frameworks() -> list[str]:
    """Names of the frameworks, installed or not."""
    packages = (m.name for m in pkgutil.iter_modules(exporters.__path__) if m.ispkg)
    return sorted(p for p in packages if importlib.util.find_spec(f"exporters.{p}.exporter"))


def exporters_known() -> list[Exporter]:
    """The exporter of every framework; importing one does not import its framework."""
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


def not_installed(what: str, error: ModuleNotFoundError) -> UsageError:
    """The error that names what to install for `what`, which failed by `error`.

    A name that we do not know is not recommended for installing: it may be the user's own file.
    """
    package = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(package)
    if extra:
        remedy = f"Run pip install 'tracer-onnx[{extra}]'."
        return UsageError(f"{what} needs '{package}', which is not installed", remedy)
    return UsageError(
        f"{what} imports '{package}', which is not found",
        "Install the package that has it, or name your folder that has it in PYTHONPATH.",
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
