"""Chainer 7.8.1 on Python >= 3.11, NumPy 2 and a current onnx, changing nobody else's modules.

Chainer is unmaintained and asks for names that are gone: `numpy.float`, `numpy.sctypes`,
`numpy.distutils`, `pkg_resources`, `onnx.mapping`. They are asked for while Chainer's modules are
imported and again whenever its functions run, so neither patching numpy for a moment nor patching
it for good would do: the one breaks later, the other shows to every library in the process.

A module finds `import` through its own `__builtins__`. So a finder that sees Chainer's modules
alone gives each of them builtins whose `__import__` hands out a stand-in where `_STAND_INS` names
one, and the real module otherwise. No entry of `sys.modules` is added for a stand-in, numpy and
onnx keep their dictionaries, and once loaded Chainer simply works, from any thread, for good.
Only the modules that ask for a lost name are given the stand-in for numpy, so that `xp is numpy`
stays true elsewhere.

Before anything that imports Chainer:

    from exporters.chainer.compat import chainer_ready

    chainer_ready()
    import chainer
"""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

from tracer.errors import UsageError

PACKAGES = ("chainer", "chainermn", "chainerx", "onnx_chainer")
_NUMPY_1_USERS = (
    "chainer._environment_check",
    "chainer.functions.array.as_strided",
    "chainer.functions.array.resize_images",
)


def chainer_ready() -> None:
    """Make `import chainer` and `import onnx_chainer` work in this process; may be called again."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    if "chainer" not in sys.modules:  # an import that failed leaves the parts that succeeded
        for name in [name for name in sys.modules if _is_chainers(name)]:
            del sys.modules[name]
    sys.meta_path.insert(0, _Finder())


def load() -> ModuleType:
    """The usable `chainer` module. Raises UsageError where Chainer is not installed."""
    chainer_ready()
    try:
        return importlib.import_module("chainer")
    except ModuleNotFoundError as error:
        if error.name != "chainer":
            raise
        raise UsageError(
            "Chainer is not installed", "Install it: pip install 'tracer-onnx[chainer]'."
        ) from error


def _is_chainers(module: str) -> bool:
    return module.partition(".")[0] in PACKAGES


class _Finder:
    """Finds Chainer's modules where they are and has them loaded by `_Loader`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not _is_chainers(name):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Runs a module with an `import` of its own."""

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import}
        super().exec_module(module)


def _import(
    name: str,
    globals: Mapping[str, object] | None = None,
    locals: Mapping[str, object] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """What `import` means inside Chainer; the signature is that of the built-in `__import__`."""
    importer = str(globals["__name__"]) if globals else ""
    if level == 0:
        maker = _STAND_INS.get(name)
        if maker is not None and (name != "numpy" or importer in _NUMPY_1_USERS):
            return maker()
    return builtins.__import__(name, globals, locals, fromlist or (), level)


class _Overlay(ModuleType):
    """A module seen through a few names of our own."""

    def __init__(self, below: ModuleType, names: Mapping[str, object]) -> None:
        super().__init__(below.__name__, below.__doc__)
        self.__dict__.update(names)
        self._below = below

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)


def _module(name: str, **names: object) -> ModuleType:
    module = ModuleType(name)
    module.__dict__.update(names)
    return module


def _numpy() -> ModuleType:
    """NumPy with the aliases that NumPy 1.24 and 2.0 removed, as far as Chainer uses them."""
    import numpy as np

    system_info = _module("numpy.distutils.system_info", get_info=lambda name: {})
    return _Overlay(
        np,
        {
            "float": float,
            "sctypes": {
                "int": [np.int8, np.int16, np.int32, np.int64],
                "float": [np.float16, np.float32, np.float64, np.longdouble],
            },
            # asked on macOS alone, for the BLAS that NumPy was built with
            "distutils": _module("numpy.distutils", system_info=system_info),
        },
    )


def _onnx() -> ModuleType:
    import onnx

    return _Overlay(onnx, {"mapping": _onnx_mapping()})


def _onnx_mapping() -> ModuleType:
    """`onnx.mapping` as onnx 1.6 had it, as far as onnx_chainer uses it."""
    from onnx import helper

    types = helper.get_all_tensor_dtypes()
    return _module(
        "onnx.mapping",
        NP_TYPE_TO_TENSOR_TYPE={helper.tensor_dtype_to_np_dtype(t): t for t in types},
        # Where a type is missing here, onnx_chainer leaves the constant in raw bytes: always right.
        STORAGE_TENSOR_TYPE_TO_FIELD={},
    )


def _pkg_resources() -> ModuleType:
    """What Chainer's check of its environment asks: is CuPy or iDeep of a matching version there?

    None that matches can be installed on a Python this new, so one that is there conflicts. A
    `require` that finds everything would have Chainer warn of several CuPy installations.
    """
    from importlib import metadata

    class VersionConflict(Exception):  # noqa: N818 - Chainer's name for it
        pass

    def require(requirement: str) -> None:
        name = requirement.partition(">")[0]
        raise VersionConflict(metadata.distribution(name))

    return _module(
        "pkg_resources",
        DistributionNotFound=metadata.PackageNotFoundError,
        VersionConflict=VersionConflict,
        get_distribution=metadata.distribution,
        require=require,
    )


_STAND_INS = {
    "numpy": _numpy,
    "numpy.distutils.system_info": _numpy,  # `import a.b.c` binds a
    "onnx": _onnx,
    "onnx.mapping": _onnx_mapping,
    "pkg_resources": _pkg_resources,
}
