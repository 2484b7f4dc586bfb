"""Options of `tracer profile` for a model that runs in its framework."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from tracer.cli import _accumulating
from tracer.cli._code import (
    ARGUMENTS,
    FRAMEWORK,
    TRUST,
    WEIGHTS,
    input_arguments,
    input_options,
)
from tracer.cli._options import bundle
from tracer.errors import UsageError
from tracer.executors.settings import DEVICES, LOSSES, OPTIMIZERS

if TYPE_CHECKING:
    from tracer.api.framework import FrameworkOptions

_ONNX_ONLY = (
    "dims", "inputs", "data", "data_dir", "limit", "optimization", "provider",
    "provider_options", "register", "convention", "energy", "roofline", "replay", "split",
    *_accumulating.NAMES,
)  # fmt: skip
_FRAMEWORK_ONLY = (
    "framework", "args", "weights", "shapes", "dtypes", "train", "backward", "loss", "optimizer",
    "compiled", "device", "trust",
)  # fmt: skip
"""Parameters of `tracer profile` that apply to an .onnx file, or to FILE.py:NAME, only."""


def refuse_misplaced(model: Path) -> None:
    """Raises UsageError for options of an .onnx file where code is named, and vice versa."""
    from tracer.exporters.source import runs_in_framework

    context = click.get_current_context()
    typed = {
        name
        for name in context.params
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    }
    is_code = runs_in_framework(str(model))
    wrong = typed.intersection(_ONNX_ONLY if is_code else _FRAMEWORK_ONLY)
    if wrong:
        names = ", ".join(sorted(_flag(name) for name in wrong))
        only = "an .onnx file" if is_code else "FILE.py:NAME"
        raise UsageError(f"{names}: not for {model}", f"For {only} alone.")


def _framework_options(
    args: tuple[tuple[str, Any], ...],
    shapes: tuple[str, ...],
    dtypes: tuple[str, ...],
    **values: Any,
) -> FrameworkOptions:
    from tracer.api.framework import FrameworkOptions

    return FrameworkOptions(args=dict(args), **input_arguments(shapes, dtypes), **values)


def _flag(name: str) -> str:
    command = click.get_current_context().command
    return next(param.opts[0] for param in command.params if param.name == name)


OPTIONS = bundle(
    "framework", _framework_options,
    cloup.option_group(
        "Framework (FILE.py:NAME)",
        FRAMEWORK,
        ARGUMENTS,
        WEIGHTS,
        *input_options("the model's"),
        cloup.option("--train", is_flag=True,
                     help="Measure the forward pass in training mode, recorded for gradients."),
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
