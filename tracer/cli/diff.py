"""`tracer diff`: what changed between two graphs."""

from __future__ import annotations

from typing import Any

import cloup

from tracer.api import diff as api
from tracer.cli import _options
from tracer.cli._command import Command
from tracer.cli._messages import progress


@cloup.command(cls=Command)
@_options.subject("models", nargs=2, metavar="A B")
@_options.declared(api.DiffArguments)
@_options.PROCESS_LIMITS
@_options.view(".html .json .csv .md", _options.TOP, _options.NOTES)
def command(models: tuple[str, str], options: dict[str, Any], output: _options.Output) -> None:
    """Show what changed between two graphs, whatever their names.

    A and B are .onnx files, or modules as FILE.py:NAME. Both run on the same inputs, without
    optimisation. Nodes of one operator with equal results are the same. A change is a node with
    other weights, attributes or inputs; nodes that became others; nodes that are new or gone.

    \b
    Examples:
      tracer diff old.onnx new.onnx
      tracer diff net.onnx optimised.onnx --dim sequence=16
      tracer diff float.onnx int8.onnx --json -o changes.csv
      tracer diff old.onnx new.onnx --trace old.trace --trace new.trace -o changes.html
    """
    from tracer.analyzers.graph_diff import GraphDiff

    output.check(GraphDiff)
    _options.refuse_unread()
    with progress() as report:
        result = api.diff(*models, progress=report, **options)
    output.emit(result)
