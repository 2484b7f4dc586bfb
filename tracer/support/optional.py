"""Checks for optional packages before they are needed, and says what to install."""

import importlib
from importlib.util import find_spec
from pathlib import Path

from tracer.errors import UsageError

_EXTRAS = {
    **{"torch": "torch", "onnxscript": "torch", "safetensors": "torch", "chainer": "chainer"},
    **{
        "PIL": "train",
        "sklearn": "train",
        "tensorboardX": "train",
        "tokenizers": "text",
        "pyarrow": "parquet",
    },
    **{"dask": "dask", "distributed": "dask"},
}


def require(feature: str, *packages: str) -> None:
    """Raises UsageError, naming what to install, if `feature` needs a missing package."""
    for package in packages:
        try:
            importlib.import_module(package)
        except ModuleNotFoundError as error:
            raise not_installed(feature, error) from error


def folder_of(feature: str, package: str) -> Path:
    """Returns the folder of an installed package without importing it.

    Raises UsageError, as `require` does.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise not_installed(feature, ModuleNotFoundError(name=package))
    return Path(spec.submodule_search_locations[0])


def not_installed(feature: str, error: ModuleNotFoundError) -> UsageError:
    """Returns the error that names what to install for `feature`, which failed with `error`.

    Installing an unknown name is not recommended: it may be a file of the user's.
    """
    package = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(package)
    if extra:
        remedy = f"Run pip install 'tracer-onnx[{extra}]'."
        return UsageError(f"{feature} needs '{package}', which is not installed", remedy)
    return UsageError(
        f"{feature} imports '{package}', which is not installed",
        "Install the package that contains it, or add its folder to PYTHONPATH.",
    )
