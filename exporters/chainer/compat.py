"""Chainer 7.8.1 on Python >= 3.11, NumPy 2 and a current onnx, changing nobody else's modules.

Chainer is unmaintained and asks for names that are gone: `numpy.float`, `numpy.sctypes`,
`numpy.distutils`, `pkg_resources`, `onnx.mapping`. They are asked for while Chainer's modules are
imported and again whenever its functions run, so neither patching numpy for a moment nor patching
it for good would do: the one breaks later, the other shows to every library in the process.

A finder that sees Chainer's modules alone has them loaded with two differences.

- A module finds `import` through its own `__builtins__`. Chainer's have one that hands out a
  stand-in where `_STAND_INS` names one, and the real module otherwise.
- In the modules of `_NUMPY_1_USERS` the lost attributes of numpy are compiled as names, which
  those `__builtins__` define too. A stand-in for numpy itself would not do: `xp is numpy` is how
  Chainer tells the CPU from a GPU.

No entry of `sys.modules` is added for a stand-in, numpy and onnx keep their dictionaries, and once
loaded Chainer simply works, from any thread, for good.

Before anything that imports Chainer:

    from exporters.chainer.compat import chainer_ready

    chainer_ready()
    import chainer
"""

from __future__ import annotations

import ast
import builtins
import importlib
import sys
from collections.abc import Container, Mapping, Sequence
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tracer.errors import UsageError

PACKAGES = ("chainer", "chainermn", "chainerx", "onnx_chainer")
_NUMPY_1_USERS = (
    "chainer.functions.array.as_strided",
    "chainer.functions.array.resize_images",
)
_PREFIX = "numpy_1_"


def chainer_ready() -> None:
    """Make `import chainer` and `import onnx_chainer` work in this process; may be called again."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    if "chainer" not in sys.modules:  # an import that failed leaves the parts that succeeded
        for name in [name for name in sys.modules if _is_chainers(name)]:
            del sys.modules[name]
    sys.meta_path.insert(0, _Finder())


def load() -> ModuleType:
    """Returns the usable `chainer` module. Raises UsageError where Chainer is not installed."""
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
    """Runs a module with builtins of its own."""

    def exec_module(self, module: ModuleType) -> None:
        own: dict[str, object] = {"__import__": _import}
        if module.__name__ in _NUMPY_1_USERS:
            own |= {_PREFIX + name: value for name, value in lost_from_numpy().items()}
        module.__dict__["__builtins__"] = vars(builtins) | own
        super().exec_module(module)

    def get_code(self, fullname: str) -> CodeType | None:
        if fullname not in _NUMPY_1_USERS:
            return super().get_code(fullname)
        # not by way of the cache of compiled files, which others read and write
        tree = _Renaming(lost_from_numpy()).visit(ast.parse(self.get_data(self.path)))
        return compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)


class _Renaming(ast.NodeTransformer):
    """`numpy.float` becomes the name `numpy_1_float`."""

    def __init__(self, names: Container[str]) -> None:
        self._names = names

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        of_numpy = isinstance(node.value, ast.Name) and node.value.id in ("np", "numpy")
        if of_numpy and node.attr in self._names:
            return ast.copy_location(ast.Name(_PREFIX + node.attr, node.ctx), node)
        return node


def lost_from_numpy() -> dict[str, object]:
    """What NumPy 1.24 and 2.0 removed, as far as Chainer uses it."""
    return {
        "float": float,
        "sctypes": {
            "int": [np.int8, np.int16, np.int32, np.int64],
            "float": [np.float16, np.float32, np.float64, np.longdouble],
        },
    }


def _import(
    name: str,
    globals: Mapping[str, object] | None = None,
    locals: Mapping[str, object] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """What `import` means inside Chainer; the signature is that of the built-in `__import__`."""
    if level == 0 and name in _STAND_INS:
        return _STAND_INS[name]()
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


def _numpy_with_distutils() -> ModuleType:
    """For `import numpy.distutils.system_info`, which binds numpy.

    Asked on macOS alone, for the BLAS that NumPy was built with.
    """
    system_info = _module("numpy.distutils.system_info", get_info=lambda name: {})
    return _Overlay(np, {"distutils": _module("numpy.distutils", system_info=system_info)})


def _onnx() -> ModuleType:
    return _Overlay(onnx, {"mapping": _onnx_mapping()})


def _onnx_mapping() -> ModuleType:
    """`onnx.mapping` as onnx 1.6 had it, as far as onnx_chainer uses it."""
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
    "numpy.distutils.system_info": _numpy_with_distutils,
    "onnx": _onnx,
    "onnx.mapping": _onnx_mapping,
    "pkg_resources": _pkg_resources,
}
