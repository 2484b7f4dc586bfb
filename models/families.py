"""Look up, build and load model families; a family's `<framework>_net.py` defines its network."""

from collections.abc import Mapping
from pathlib import Path

from models.recipe import RECIPES, Recipe
from tracer.errors import UsageError
from tracer.exporters.subject import load_source

FOLDER = Path(__file__).parent
FRAMEWORKS = ("torch", "chainer")


def names() -> tuple[str, ...]:
    """Returns every family, sorted."""
    return tuple(sorted(RECIPES))


def of_images() -> tuple[str, ...]:
    """Returns the families that classify images; the others are language models."""
    return tuple(name for name in names() if len(RECIPES[name].input_shape) > 1)


def recipe(family: str) -> Recipe:
    """Returns the recipe of `family`. Raises UsageError for an unknown family."""
    if family not in RECIPES:
        raise UsageError(f"no model family '{family}'", f"There are {', '.join(names())}.")
    return RECIPES[family]


def frameworks(family: str) -> tuple[str, ...]:
    """Returns the frameworks `family` is defined in."""
    return tuple(f for f in FRAMEWORKS if (FOLDER / family / f"{f}_net.py").is_file())


def shipped(family: str, framework: str) -> Path:
    """Returns the trained .onnx in the family's folder. Raises UsageError without one."""
    stem = recipe(family).shipped
    path = FOLDER / family / (f"{stem}.onnx" if framework == "torch" else f"{stem}_chainer.onnx")
    if not stem or not path.is_file():
        raise UsageError(
            f"no trained {framework} model of {family} is shipped",
            f"Train one: python -m models.train {family} --framework {framework}.",
        )
    return path


def build(family: str, framework: str, arguments: Mapping[str, object]) -> object:
    """Returns a new model of `family` with initial weights: a torch Module or a Chainer Chain.

    `arguments` go to the class. Raises UsageError for a framework without this family, and the
    errors of `load_source` for wrong arguments.
    """
    name = recipe(family).model
    if framework not in frameworks(family):
        raise UsageError(
            f"{family} is not defined in {framework}", f"Use {' or '.join(frameworks(family))}."
        )
    return load_source(f"models.{family}.{framework}_net:{name}", arguments, framework=framework)
