"""Packages under the names that they had before: `exporters` is `tracer.exporters` now."""

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def redirect(package: str) -> None:
    """Makes imports of `package` and its modules give those of `tracer.<package>`, and warns.

    A folder of that name is on the path in a checkout alone: installed, there is no such package.
    """
    now = f"tracer.{package}"
    warnings.warn(f"{package} is {now} now", DeprecationWarning, stacklevel=3)
    sys.meta_path.insert(0, _FormerNames(package))
    sys.modules[package] = importlib.import_module(now)


class _FormerNames(MetaPathFinder, Loader):
    """Finds a module of the package by its name of today: there is never a second copy of it."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(f"{self._package}."):
            return None
        return importlib.util.spec_from_loader(name, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(f"tracer.{spec.name}")
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has set one of the former name
