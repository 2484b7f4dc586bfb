"""`tracer extract`: a part of a model with its real inputs, or the smallest proof of a fault."""

from __future__ import annotations

from typing import Any

import click
import cloup

from tracer.api import extract as api
from tracer.cli import _options
from tracer.cli._command import Command
from tracer.cli._messages import progress, tell, tell_written
from tracer.text import line, plural

_OF_FAULTS = {
    (): {"shrink_seconds"},
    ("wrong",): {"rtol", "atol"},
    ("slower",): {"by"},
    ("overflow",): {"accumulator"},
    ("wrong", "crash", "slower"): {"against", "ort", "optimization"},
}
"""Options by the faults that read them, () for any."""


@cloup.command(cls=Command)
@_options.SUBJECT
@_options.declared(api.ExtractArguments)
@_options.PROCESS_LIMITS
@_options.TOLERANCE
def command(
    model: _options.ModelSource, options: dict[str, Any], tolerance: _options.Tolerance
) -> None:
    """Cut out a part, or the smallest proof of a fault.

    A part is a node, a module or several. It is written as model.onnx beside test_data_set_0, which
    has its inputs and outputs in a run of MODEL, as ONNX's own tests do.

    With --fault, MODEL is shrunk while the fault stays. A script of onnx, numpy and onnxruntime
    shows what is left: it exits with 1 while the fault is there, and with 0 when it is gone.

    \b
    Examples:
      tracer extract net.onnx --node conv1 -o conv1
      tracer extract net.onnx --fault wrong -o fault.py -o report.md
      tracer extract net.onnx --fault wrong --ort 1.20.1 --against interpreter -o fault.py
      tracer extract net.onnx --fault slower --against ort==1.20.1 --by 20% -o fault.py
      tracer extract int8.onnx --fault overflow --accumulator 16 -o fault.py
    """
    from tracer.cli._output import build_fence

    fault = options["fault"]
    for only, names in _OF_FAULTS.items():
        if fault not in (only or api.FAULTS):
            why = f"is for --fault {' or '.join(only) or 'FAULT'}"
            _options.refuse_typed(names, why, "Leave out {flag}, or name that fault.")
    _options.refuse_unread()
    build_fence(click.get_current_context().params)
    with progress() as report:
        result = api.extract(model, tolerance=tolerance, progress=report, **options)
    for path in result.paths:
        tell_written(path)
    count = f"{result.nodes:,} of {plural(result.nodes_before, 'node')}"
    if not result.kind:
        tell(f"{result.model}: {count}")
    else:
        took = f"{plural(result.runs, 'run')} and {result.seconds:.0f} s"
        data = f"{result.data_bytes:,} bytes of data"
        click.echo(line(f"{result.model} · {result.kind}: {count}, {data}, in {took}"))
        click.echo(line(f"expected: {result.expects}"))
        click.echo(line(f"seen: {result.sees}"))
    for note in result.notes:
        tell(f"note: {note}")
