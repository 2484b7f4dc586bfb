"""What results depend on beside model and data: the code here, and what it computes with."""

import hashlib
import os
from functools import cache
from importlib import metadata
from pathlib import Path

PACKAGE = "tracer-onnx"
_COMPUTING = ("numpy", "numba", "onnx", "ml_dtypes")
"""Packages whose other versions may round otherwise."""
_DIGITS = 12


@cache
def version() -> str:
    """Returns the versions of the package and of what it computes with, and a hash of its code."""
    digest = hashlib.sha256()
    folder = Path(__file__).parents[1]
    walk = os.walk(folder, followlinks=True)  # in a checkout, analyzers and exporters are links
    files = (Path(root, name) for root, _, names in walk for name in names)
    for file in sorted(file for file in files if file.suffix == ".py"):
        digest.update(f"{file.relative_to(folder)}\0".encode())
        digest.update(file.read_bytes())
    others = ", ".join(f"{name} {metadata.version(name)}" for name in _COMPUTING)
    code = digest.hexdigest()[:_DIGITS]
    return f"{metadata.version(PACKAGE)} (code {code}, {others})"
