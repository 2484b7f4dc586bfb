"""Run Chainer 7.8.1 on Python >= 3.11, NumPy 2 and current onnx, without changing other modules.

Chainer is unmaintained and uses names that no longer exist: `numpy.float`, `numpy.sctypes`,
`numpy.distutils`, `pkg_resources`, `onnx.mapping`. It uses them on import and whenever its
functions run. A temporary patch of numpy would break later; a permanent patch would affect every
library in the process.

An import finder loads Chainer's modules, and no others, with two differences.

- A module looks up `import` in its `__builtins__`. Chainer's modules get an `import` that returns a
  replacement for the modules in `_REPLACEMENTS`, and the real module otherwise.
- In the modules of `_NUMPY_1_USERS` the removed attributes of numpy are compiled as names, which
  these `__builtins__` define. A replacement for numpy itself would not work: Chainer tests
  `xp is numpy` to distinguish CPU from GPU.

Replacements are not added to `sys.modules`; numpy and onnx are not modified. Once loaded, Chainer
works from any thread.

Call this before any import of Chainer:

    from tracer.exporters.chainer.compat import chainer_ready

    chainer_ready()
    import chainer
"""

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

from tracer.support.imports import not_installed

PACKAGES = ("chainer", "chainermn", "chainerx", "onnx_chainer")
_NUMPY_1_USERS = ("chainer.functions.array.as_strided", "chainer.functions.array.resize_images")
_PREFIX = "numpy_1_"


def chainer_ready() -> None:
    """Makes `import chainer` and `import onnx_chainer` work in this process; may be repeated."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    if "chainer" not in sys.modules:  # remove the parts of a failed import
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
        raise not_installed("a model of Chainer", error) from error


def _is_chainers(module: str) -> bool:
    return module.partition(".")[0] in PACKAGES


class _Finder:
    """Finds Chainer's modules and loads them by `_Loader`."""

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
    """Runs a module with its own builtins."""

    def exec_module(self, module: ModuleType) -> None:
        names: dict[str, object] = {"__import__": _import}
        if module.__name__ in _NUMPY_1_USERS:
            names |= {_PREFIX + name: value for name, value in lost_from_numpy().items()}
        module.__dict__["__builtins__"] = vars(builtins) | names
        super().exec_module(module)

    def get_code(self, fullname: str) -> CodeType | None:
        if fullname not in _NUMPY_1_USERS:
            return super().get_code(fullname)
        # bypasses the shared cache of compiled files
        tree = _Renaming(lost_from_numpy()).visit(ast.parse(self.get_data(self.path)))
        return compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)


class _Renaming(ast.NodeTransformer):
    """Replaces `numpy.float` by the name `numpy_1_float`."""

    def __init__(self, names: Container[str]) -> None:
        self._names = names

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        of_numpy = isinstance(node.value, ast.Name) and node.value.id in ("np", "numpy")
        if of_numpy and node.attr in self._names:
            return ast.copy_location(ast.Name(_PREFIX + node.attr, node.ctx), node)
        return node


def lost_from_numpy() -> dict[str, object]:
    """Returns the attributes that NumPy 1.24 and 2.0 removed and Chainer uses."""
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
    """Replaces the built-in `__import__` inside Chainer, with its signature."""
    if level == 0 and name in _REPLACEMENTS:
        return _REPLACEMENTS[name]()
    return builtins.__import__(name, globals, locals, fromlist or (), level)


class _Overlay(ModuleType):
    """A module with a few names replaced."""

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


def _onnx_mapping() -> ModuleType:
    """Returns the part of onnx 1.6's `onnx.mapping` that onnx_chainer uses."""
    types = helper.get_all_tensor_dtypes()
    return _module(
        "onnx.mapping",
        NP_TYPE_TO_TENSOR_TYPE={helper.tensor_dtype_to_np_dtype(t): t for t in types},
        # Without an entry onnx_chainer stores a constant as raw bytes, which is always valid.
        STORAGE_TENSOR_TYPE_TO_FIELD={},
    )


def _pkg_resources() -> ModuleType:
    """Returns what Chainer's environment check needs to look for CuPy and iDeep.

    No matching version exists for this Python, so an installed one conflicts. A `require` that
    accepts everything would make Chainer warn of several CuPy installations.
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


_REPLACEMENTS = {
    "numpy.distutils.system_info": lambda: _Overlay(
        np,
        {
            "distutils": _module(  # on macOS
                "numpy.distutils",
                system_info=_module("numpy.distutils.system_info", get_info=lambda name: {}),
            )
        },
    ),
    "onnx": lambda: _Overlay(onnx, {"mapping": _onnx_mapping()}),
    "onnx.mapping": _onnx_mapping,
    "pkg_resources": _pkg_resources,
}
