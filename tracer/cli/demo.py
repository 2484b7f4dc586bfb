"""`tracer demo`: profile a model that ships with tracer, and write every kind of result."""

import importlib.util
import shlex
from pathlib import Path

import cloup

from tracer.cli import _options, profile
from tracer.cli._messages import tell
from tracer.cli._types import PathName
from tracer.errors import InputError

_MODEL = Path("models", "resnet_cifar", "resnet20.onnx")
_FILES = ("resnet20.csv", "resnet20.html", "resnet20.trace")
_CHART = "resnet20.png"


@cloup.command()
@cloup.argument("folder", type=PathName(), default="demo", required=False)
@cloup.option_group("Output", _options.OPEN, _options.FORCE)
def command(folder: Path, opened: bool, force: bool) -> None:
    """Profile a ResNet-20, and write all kinds of results.

    FOLDER receives the table (.csv), the report (.html), the trace, and the chart (.png) if
    matplotlib is installed.  [default: demo]

    \b
    Examples:
      tracer demo
      tracer demo --open
    """
    root = Path(__file__).parents[2]
    model = root / _MODEL
    if not model.is_file():
        raise InputError(
            f"{model}: the models are not installed with the package",
            "Clone the repository for them, or run: tracer profile MODEL.onnx -o report.html.",
        )
    if root == Path.cwd():
        model = _MODEL
    folder.mkdir(parents=True, exist_ok=True)
    files = [*_FILES, *([_CHART] if importlib.util.find_spec("matplotlib") else [])]
    written = [word for name in files for word in ("-o", str(folder / name))]
    flags = [flag for flag, on in (("--open", opened), ("--force", force)) if on]
    arguments = [str(model), *written, *flags]
    tell(f"tracer profile {shlex.join(arguments)}")
    profile.command.main(arguments, prog_name="tracer profile", standalone_mode=False)
