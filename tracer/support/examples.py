"""Finds the models and images that are installed with tracer.

In a checkout the models are links to those of `models/`, which a wheel has in full.
"""

from pathlib import Path

from tracer.errors import InputError

FOLDER = Path(__file__).parents[1] / "examples"


def example(name: str) -> Path:
    """Returns an installed file; raises InputError where it is missing."""
    path = FOLDER / name
    if not path.is_file():
        raise InputError(f"{path}: the file is missing", "Install tracer again.")
    return path
