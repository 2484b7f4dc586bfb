"""`tracer count`: how much work a model is, from shapes alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracer.cli import _options

if TYPE_CHECKING:
    from tracer.cli._output import Output


@click.command()
@_options.MODEL
@click.option(
    "--batch",
    type=click.IntRange(1, _options.LARGEST),
    default=None,
    help="Batch size, as in --batch 8  [default: 1]",
)
@_options.dims
@_options.convention
@_options.viewing
def command(
    model: Path,
    batch: int | None,
    dims: tuple[tuple[str, int], ...],
    convention: str,
    output: Output,
) -> None:
    """Count the work of MODEL without running it.

    MACs, operations, parameters and bytes follow from the shapes of its tensors. What cannot be
    counted is listed and in no total; it is never taken for zero.

    \b
    Examples:
      tracer count model.onnx
      tracer count model.onnx --batch 8 --by op --json
    """
    from tracer.api.count import count

    trace = count(model, batch=batch, dims=dict(dims), convention=convention)
    output.emit(trace)
