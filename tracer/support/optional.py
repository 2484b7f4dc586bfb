"""Packages that not every installation has, asked for before they are needed."""

from __future__ import annotations

import importlib

from tracer.errors import UsageError

_EXTRAS = {
    **{"torch": "torch", "onnxscript": "torch", "safetensors": "torch", "chainer": "chainer"},
    **{"PIL": "train", "sklearn": "train", "tensorboardX": "train"},
}


def require(what: str, *packages: str) -> None:
    """Raise UsageError, saying what to install, where `what` needs a package that is missing."""
    for package in packages:
        try:
            importlib.import_module(package)
        except ModuleNotFoundError as error:
            raise not_installed(what, error) from error


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
