"""Options of a model that is named by its code: FILE.py:NAME."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from tracer.cli import _options
from tracer.cli._options import Decorator
from tracer.cli._types import Argument, PathName
from tracer.exporters.frameworks import frameworks

if TYPE_CHECKING:
    from tracer.exporters.subject import Subject

FRAMEWORK = cloup.option(
    "--framework", type=click.Choice(frameworks()),
    help="Framework of FILE.py:NAME.  [default: detected]",
)  # fmt: skip
ARGUMENTS = cloup.option(
    "--arg", "args", type=Argument(), multiple=True,
    help="Argument of the class or factory, e.g. --arg depth=32. Repeatable.",
)  # fmt: skip


def _weights(option: str) -> Decorator:
    return cloup.option(
        option, "weights", type=PathName(),
        help="File of weights: safetensors or a state dict (torch), .npz (Chainer).",
    )  # fmt: skip


WEIGHTS = _weights("--weights")
TRUST = cloup.option(
    "--trust", is_flag=True, help="Allow unpickling of weights. This can run any code."
)


def input_options(default_shape: str) -> tuple[Decorator, Decorator]:
    """`--input-shape` and `--input-dtype`; `default_shape` describes the shape without them."""
    return (
        cloup.option("--input-shape", "shapes", multiple=True, metavar="1,3,32,32",
                     help="Shape of an input, batch first. Repeat it for further inputs.  "
                     f"[default: {default_shape}]"),
        cloup.option("--input-dtype", "dtypes", multiple=True, metavar="DTYPE",
                     help="Element type of all inputs; repeated, one for each input.  "
                     "[default: float32]"),
    )  # fmt: skip


def input_arguments(shapes: tuple[str, ...], dtypes: tuple[str, ...]) -> dict[str, Any]:
    """Returns the arguments of `tracer.api` that the options of `input_options` set."""
    return {
        "input_shape": [_options.shape(text) for text in shapes] or None,
        "input_dtype": dtypes[0] if len(dtypes) == 1 else (dtypes or "float32"),
    }


def _subject(
    model: Path,
    args: tuple[tuple[str, Any], ...],
    weights: Path | None,
    shapes: tuple[str, ...],
    dtypes: tuple[str, ...],
    trust: bool,
    operators: Path | None,
) -> Subject:
    from tracer.exporters.subject import Code

    if not any((args, weights, shapes, dtypes, trust, operators)):
        return model
    inputs = input_arguments(shapes, dtypes)
    return Code(
        str(model), **inputs, arguments=dict(args), weights=weights, trust=trust,
        operators=operators,
    )  # fmt: skip


def subject(weights_option: str) -> Decorator:
    """Returns MODEL, of whatever kind, with an option of this name for the weights of code."""
    return _options.bundle(
        "model", _subject, _options.MODEL,
        cloup.option_group("Model of a framework (FILE.py:NAME), exported when it is read",
                           ARGUMENTS, _weights(weights_option),
                           *input_options("the model's input_shape"), TRUST),
        cloup.option_group(
            "Operators of your own",
            cloup.option("--operators", type=PathName(), metavar="FILE.py",
                         help="Python file with functions that compute and count operators of "
                              "other domains; its code is executed."),
        ),
    )  # fmt: skip


SUBJECT = subject("--weights")
"""MODEL, of whatever kind, for commands that take its ONNX graph."""
