"""The compiled kernels of narrow sums; `loaded` imports one, and compiles it the first time."""

from __future__ import annotations

from types import ModuleType

from tracer.interpreter import compiled


def loaded(name: str) -> ModuleType:
    """The kernels of the module `name` of this package."""
    return compiled.loaded(name, __name__)
