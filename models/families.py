"""The model families: every folder here with a recipe is one, every `<framework>_net.py` a twin."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path

from exporters.source import load_source
from models.recipe import Recipe
from tracer.errors import UsageError

FOLDER = Path(__file__).parent
FRAMEWORKS = ("torch", "chainer")


def names() -> tuple[str, ...]:
    """Returns every family, sorted."""
    return tuple(sorted(path.parent.name for path in FOLDER.glob("*/recipe.py")))


def recipe(family: str) -> Recipe:
    """Returns how `family` is trained. Raises UsageError where there is no such family."""
    if family not in names():
        raise UsageError(f"no model family '{family}'", f"There are {', '.join(names())}.")
    found = importlib.import_module(f"models.{family}.recipe").RECIPE
    assert isinstance(found, Recipe)
    return found


def frameworks(family: str) -> tuple[str, ...]:
    """Returns the frameworks `family` is defined in."""
    return tuple(f for f in FRAMEWORKS if (FOLDER / family / f"{f}_net.py").is_file())


def shipped(family: str, framework: str) -> Path:
    """Returns the trained .onnx in the family's folder. Raises UsageError where none is shipped."""
    stem = recipe(family).shipped
    path = FOLDER / family / (f"{stem}.onnx" if framework == "torch" else f"{stem}_chainer.onnx")
    if not stem or not path.is_file():
        raise UsageError(
            f"no trained {framework} model of {family} is shipped",
            f"Train one: python -m models.train {family} --framework {framework}.",
        )
    return path


def build(family: str, framework: str, arguments: Mapping[str, object]) -> object:
    """A new model of `family` with the weights of a beginner: a torch Module or a Chainer Chain.

    `arguments` go to the class. Raises UsageError for a framework the family is not defined in,
    and what `load_source` does for arguments the class does not take or values it refuses.
    """
    name = recipe(family).model
    if framework not in frameworks(family):
        raise UsageError(
            f"{family} is not defined in {framework}", f"Use {' or '.join(frameworks(family))}."
        )
    return load_source(f"models.{family}.{framework}_net:{name}", arguments, framework=framework)
