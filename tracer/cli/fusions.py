"""`tracer fusions`: the nodes of a model that each kernel of onnxruntime contains."""

from __future__ import annotations

from typing import Any

import cloup

from tracer.api import fusions as api
from tracer.cli import _options
from tracer.cli._command import Command
from tracer.cli._messages import progress


@cloup.command(cls=Command)
@_options.SUBJECT
@_options.declared(api.FusionsArguments)
@_options.PROCESS_LIMITS
@_options.view(".html .csv .json .md", _options.TOP, _options.NOTES)
def command(model: _options.ModelSource, options: dict[str, Any], output: _options.Output) -> None:
    """Show which nodes each kernel contains, checked by values.

    onnxruntime folds, fuses, removes and inserts nodes. This command runs MODEL with and without
    these optimisations and compares tensors. A kernel is confirmed if its inputs and outputs equal
    the inputs and outputs of its nodes.

    \b
    Examples:
      tracer fusions model.onnx
      tracer fusions model.onnx --optimization extended --dim sequence=16
      tracer fusions model.onnx --json -o map.csv -o map.md
    """
    from tracer.analyzers.fusions import Fusions

    output.check(Fusions)
    _options.refuse_unread()
    with progress() as report:
        result = api.fusions(model, progress=report, **options)
    output.emit(result)
