"""Names of the frameworks: the packages of this folder that have an `exporter` module."""

import importlib.util
import pkgutil

import tracer.exporters


def frameworks() -> list[str]:
    """Returns the names of the frameworks, installed or not, without importing anything heavy."""
    packages = (m.name for m in pkgutil.iter_modules(tracer.exporters.__path__) if m.ispkg)
    return sorted(p for p in packages if importlib.util.find_spec(f"tracer.exporters.{p}.exporter"))
