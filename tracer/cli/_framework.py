"""Options of `tracer profile` for a model that runs in its framework."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from exporters.frameworks import frameworks
from tracer.cli import _options
from tracer.cli._options import Decorator, bundle
from tracer.errors import UsageError
from tracer.executors.eager.settings import DEVICES, LOSSES, OPTIMIZERS

if TYPE_CHECKING:
    from tracer.records.trace import Trace

_ONNX_ONLY = ("dims", "inputs", "optimization", "provider", "convention", "roofline", "replay")
"""Parameters of `tracer profile` that apply to an .onnx file only."""

FRAMEWORK = cloup.option(
    "--framework", type=click.Choice(frameworks()),
    help="Framework of FILE.py:NAME.  [default: detected]",
)  # fmt: skip
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


@dataclass(frozen=True, slots=True)
class FrameworkOptions:
    """Settings of a run in a framework; `typed` are the options on the command line, by name."""

    settings: dict[str, Any]
    typed: frozenset[str]

    def apply_to(self, model: Path) -> bool:
        """Whether `model` names code to run instead of an .onnx file.

        Raises UsageError where options for one of the two are set for the other.
        """
        from exporters.source import names_code

        is_code = names_code(str(model))
        wrong = self.typed.intersection(_ONNX_ONLY if is_code else self.settings)
        if wrong:
            names = ", ".join(sorted(_flag(name) for name in wrong))
            only = "an .onnx file" if is_code else "FILE.py:NAME"
            raise UsageError(f"{names}: not for {model}", f"For {only} alone.")
        return is_code

    def profile(self, model: Path, **measuring: Any) -> Trace:
        """Profiles the model in its framework; what its code prints goes to stderr."""
        from tracer.api.framework import profile_framework

        own = dict(self.settings)
        inputs = input_arguments(own.pop("shapes"), own.pop("dtypes"))
        own["args"] = dict(own["args"])
        with redirect_stdout(sys.stderr):
            return profile_framework(str(model), **own, **inputs, **measuring)


def _framework_options(**settings: Any) -> FrameworkOptions:
    context = click.get_current_context()
    typed = click.core.ParameterSource.COMMANDLINE
    names = {name for name in context.params if context.get_parameter_source(name) is typed}
    return FrameworkOptions(settings, frozenset(names))


def _flag(name: str) -> str:
    command = click.get_current_context().command
    return next(param.opts[0] for param in command.params if param.name == name)


OPTIONS = bundle(
    "framework", _framework_options,
    cloup.option_group(
        "Framework (FILE.py:NAME)",
        FRAMEWORK,
        _options.ARGUMENTS,
        _options.WEIGHTS,
        *input_options("the model's"),
        cloup.option("--backward", is_flag=True,
                     help="Measure training steps: forward and backward pass."),
        cloup.option("--loss", type=click.Choice(LOSSES),
                     help="Loss of a training step.  [default: sum]"),
        cloup.option("--optimizer", type=click.Choice(OPTIMIZERS),
                     help="Include an optimizer step in every run.  [default: none]"),
        cloup.option("--compile", "compiled", is_flag=True,
                     help="Also measure the model compiled by torch.compile."),
        cloup.option("--device", type=click.Choice(DEVICES), default="cpu", show_default=True,
                     help="Device that the framework runs on."),
        TRUST,
    ),
)  # fmt: skip
