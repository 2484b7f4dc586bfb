"""`tracer count`: the work of a model, from shapes alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import cloup

from tracer.cli import _options

if TYPE_CHECKING:
    from tracer.cli._output import Output


@cloup.command()
@_options.MODEL
@cloup.option_group(
    "Input", _options.batch("Batch size.  [default: 1]"), _options.DIMS, _options.CONVENTION
)
@_options.TRACE_VIEW
def command(
    model: Path,
    batch: int | None,
    dims: tuple[tuple[str, int], ...],
    convention: str,
    output: Output,
) -> None:
    """Count MACs, operations, parameters and bytes of a model.

    The counts follow from the shapes of the tensors; MODEL is not run. Nodes that cannot be
    counted are listed. They are missing from the totals, not counted as zero.

    \b
    Examples:
      tracer count model.onnx
      tracer count model.onnx --batch 8 --by op --json
    """
    from tracer.api.count import count
    from tracer.records.trace import Trace

    output.check(Trace)
    output.emit(count(model, batch=batch, dims=dict(dims), convention=convention))
