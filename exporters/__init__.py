"""Framework models to ONNX, with the same metadata for every framework; see `tracer.api.export`."""

import importlib.util
import pkgutil

from tracer.support.imports import redirect

if __name__ == "exporters":
    redirect(__name__)


def frameworks() -> list[str]:
    """Returns the names of the frameworks, installed or not, without importing anything heavy."""
    packages = (m.name for m in pkgutil.iter_modules(__path__) if m.ispkg)
    return sorted(p for p in packages if importlib.util.find_spec(f"{__name__}.{p}.exporter"))
