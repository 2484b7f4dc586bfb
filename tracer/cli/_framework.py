"""The options of `tracer profile` for a model that runs in its framework."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from exporters.frameworks import frameworks
from tracer.cli import _options
from tracer.errors import UsageError
from tracer.executors.eager.settings import DEVICES, LOSSES, OPTIMIZERS

if TYPE_CHECKING:
    from tracer.records.trace import Trace

_OF_A_FILE = ("dims", "inputs", "optimization", "provider", "convention", "roofline", "replay")
"""Options of `tracer profile` that are for an .onnx file alone, by their parameters' names."""

_OPTIONS = (
    click.option("--framework", type=click.Choice(frameworks()),
                 help="Of FILE.py:NAME; told by the model unless given."),
    _options.arguments,
    click.option("--weights", type=_options.PathName(), help="Of FILE.py:NAME, as in export."),
    click.option("--input-shape", "shapes", multiple=True, metavar="1,3,32,32",
                 help="The batch first; one for each input  [default: what the model says]"),
    click.option("--input-dtype", "dtypes", multiple=True,
                 help="One, or one for each; float32 unless given."),
    click.option("--backward", is_flag=True, help="A run is a training step: backward pass, too."),
    click.option("--loss", type=click.Choice(LOSSES), help="What is minimised  [default: sum]"),
    click.option("--optimizer", type=click.Choice(OPTIMIZERS), help="Have it make its step, too."),
    click.option("--compile", "compiled", is_flag=True, help="torch: and as compiled by torch."),
    click.option("--device", type=click.Choice(DEVICES), default="cpu", show_default=True,
                 help="Where the framework runs."),
    click.option("--trust", is_flag=True, help="Unpickle --weights: this can run any code."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Framework:
    """What was asked of a framework; `given` are the options on the command line, by name."""

    settings: dict[str, Any]
    given: frozenset[str]

    def wanted(self, model: Path) -> bool:
        """Whether `model` names code to run, not a file with a graph.

        Raises UsageError where options of the one are given for the other.
        """
        from exporters.source import names_code

        code = names_code(str(model))
        wrong = self.given.intersection(_OF_A_FILE if code else self.settings)
        if wrong:
            names = ", ".join(sorted(_flag(name) for name in wrong))
            raise UsageError(
                f"{names}: not for {model}",
                f"For {'an .onnx file' if code else 'FILE.py:NAME'} alone.",
            )
        return code

    def profile(self, model: Path, **measuring: Any) -> Trace:
        """The model, run in its framework; what its own code prints goes to stderr."""
        from tracer.api.framework import profile_framework

        own = dict(self.settings)
        shapes, dtypes = own.pop("shapes"), own.pop("dtypes")
        own["args"] = dict(own["args"])
        own["input_shape"] = [_options.shape(text) for text in shapes] or None
        own["input_dtype"] = dtypes[0] if len(dtypes) == 1 else (dtypes or "float32")
        with redirect_stdout(sys.stderr):
            return profile_framework(str(model), **own, **measuring)


def options(command: Callable[..., None]) -> Callable[..., None]:
    """The options, handed to the command as one `framework`."""

    @functools.wraps(command)
    def gathered(**own: Any) -> None:
        context = click.get_current_context()
        typed = click.core.ParameterSource.COMMANDLINE
        given = {n for n in context.params if context.get_parameter_source(n) is typed}
        settings = {name: own.pop(name) for name in _NAMES}
        command(framework=Framework(settings, frozenset(given)), **own)

    for option in reversed(_OPTIONS):
        gathered = option(gathered)
    return gathered


_NAMES = (
    "framework", "args", "weights", "shapes", "dtypes", "backward", "loss", "optimizer",
    "compiled", "device", "trust",
)  # fmt: skip


def _flag(name: str) -> str:
    command = click.get_current_context().command
    return next(p.opts[0] for p in command.params if p.name == name)
