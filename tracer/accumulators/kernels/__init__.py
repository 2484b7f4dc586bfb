"""The compiled kernels of narrow sums; `loaded` imports one, and compiles it the first time."""

from __future__ import annotations

from types import ModuleType

from tracer.interpreter import kernel_loading


def loaded(name: str) -> ModuleType:
    """The kernels of the module `name` of this package."""
    return kernel_loading.loaded(name, __name__)
