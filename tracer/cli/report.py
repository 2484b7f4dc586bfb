"""`tracer report`: render saved traces again, in any format, merged if there are several."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import cloup

from tracer.cli import _options
from tracer.cli._types import PathName

if TYPE_CHECKING:
    from tracer.cli._output import Output


@cloup.command()
@_options.subject("traces", metavar="TRACE...", type=PathName(), nargs=-1, required=True)
@cloup.option(
    "--model", type=PathName(),
    help="File of the model, for .annotated.onnx.  [default: where it was when it was traced]",
)  # fmt: skip
@_options.SUMS_VIEW
def command(traces: tuple[Path, ...], model: Path | None, output: Output) -> None:
    """Show saved traces again, in any format, merged as one.

    TRACE is a .trace file that another command wrote. Several are merged: times, work, overflow and
    energy of a node stand in one row. Columns of a second executor are marked: time_us@reference.

    \b
    Examples:
      tracer report run.trace --by module
      tracer report run.trace -o layers.svg --threshold 20
      tracer report time.trace sums.trace -o one.csv
    """
    from tracer.api.load import load_result
    from tracer.api.merge import merge

    result = load_result(traces[0]) if len(traces) == 1 else merge(*traces)
    output.check(type(result))
    replace(output, options=replace(output.options, model=model)).emit(result)
