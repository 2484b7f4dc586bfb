"""`tracer demo`: write the models that ship with tracer, profile one, and write every result."""

import importlib.util
import shlex
from pathlib import Path

import cloup

from tracer.cli import _options, profile
from tracer.cli._command import Command
from tracer.cli._messages import is_quiet, tell, tell_written
from tracer.cli._next_step import show_box
from tracer.cli._output import write_screen
from tracer.cli._types import PathName
from tracer.support import files

_MODELS = ("resnet20.onnx", "resnet20.int8.onnx", "lenet.onnx", "lenet.int8.onnx")
_RESULTS = ("resnet20.csv", "resnet20.html", "resnet20.trace")
_CHART = "resnet20.png"


@cloup.command(cls=Command)
@cloup.argument("folder", type=PathName(), default="demo", required=False)
@cloup.option_group("Output", _options.OPEN, _options.FORCE)
def command(folder: Path, opened: bool, force: bool) -> None:
    """Write example models, and profile one of them.

    FOLDER receives a ResNet-20 and a LeNet, in floats and in 8 bits; and of the ResNet-20 the table
    (.csv), the report (.html), the trace, and the chart (.png) if matplotlib is installed.
    [default: demo]

    \b
    Examples:
      tracer demo
      tracer demo --open
      tracer profile demo/lenet.onnx
    """
    models = {folder / name: files.example(name) for name in _MODELS}
    results = [*_RESULTS, *([_CHART] if importlib.util.find_spec("matplotlib") else [])]
    folder.mkdir(parents=True, exist_ok=True)
    for path in (*models, *(folder / name for name in results)):
        files.check_writable(path, force)
    for path, source in models.items():
        files.write_atomically(path, source.read_bytes(), force)
        tell_written(path)
    written = [word for name in results for word in ("-o", str(folder / name))]
    flags = [flag for flag, on in (("--open", opened), ("--force", force)) if on]
    arguments = [str(folder / _MODELS[0]), *written, *flags]
    tell(f"tracer profile {shlex.join(arguments)}")
    profile.command.main(arguments, prog_name="tracer profile", standalone_mode=False)
    if is_quiet():
        return
    line = shlex.join(["tracer", "compare", *(str(folder / name) for name in _MODELS[:2])])
    why = "measures whether 8-bit arithmetic is faster here"
    write_screen(lambda console: show_box(line, why, console))
