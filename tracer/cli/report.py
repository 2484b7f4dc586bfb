"""`tracer report`: render a saved trace again, in any format."""

from __future__ import annotations

from pathlib import Path

import click

from tracer.cli import _options


@click.command()
@click.argument("trace", type=click.Path(path_type=Path))
@_options.viewing
def command(
    trace: Path,
    by: str,
    top: int | None,
    threshold: float | None,
    as_json: bool,
    as_csv: bool,
    outputs: tuple[str, ...],
    force: bool,
) -> None:
    """Render TRACE, a .trace file that another command saved.

    \b
    Examples:
      tracer report run.trace --by module
      tracer report run.trace -o layers.svg --threshold 20
    """
    from analyzers.views import ViewOptions
    from tracer import store
    from tracer.cli import _output

    targets = _output.targets(outputs, as_json, as_csv, force)
    _output.emit(store.load(trace), targets, ViewOptions(by, top, threshold))
