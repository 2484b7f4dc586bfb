"""`tracer count`: how much work a model is, from shapes alone."""

from __future__ import annotations

from pathlib import Path

import click

from tracer.cli import _options


@click.command()
@_options.MODEL
@click.option("--batch", type=click.IntRange(min=1), default=None, help="Batch size  [default: 1]")
@_options.dims
@_options.convention
@_options.viewing
def command(
    model: Path,
    batch: int | None,
    dims: tuple[tuple[str, int], ...],
    convention: str,
    by: str,
    top: int | None,
    threshold: float | None,
    as_json: bool,
    as_csv: bool,
    outputs: tuple[str, ...],
    force: bool,
) -> None:
    """Count the MACs, operations, parameters and bytes of MODEL without running it.

    What cannot be counted is listed and in no total; it is never taken for zero.

    \b
    Examples:
      tracer count model.onnx
      tracer count model.onnx --batch 8 --by op --json
    """
    from analyzers.views import ViewOptions
    from tracer import api
    from tracer.cli import _output

    targets = _output.targets(outputs, as_json, as_csv, force)
    trace = api.count(model, batch=batch, dims=dict(dims), convention=convention)
    _output.emit(trace, targets, ViewOptions(by, top, threshold))
