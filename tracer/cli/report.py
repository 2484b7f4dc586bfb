"""`tracer report`: render a saved trace again, in any format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import cloup

from tracer.cli import _options
from tracer.cli._types import PathName

if TYPE_CHECKING:
    from tracer.cli._output import Output


@cloup.command()
@cloup.argument("trace", type=PathName())
@_options.SUMS_VIEW
def command(trace: Path, output: Output) -> None:
    """Show a saved trace again, in any format.

    TRACE is a .trace file that another command wrote.

    \b
    Examples:
      tracer report run.trace --by module
      tracer report run.trace -o layers.svg --threshold 20
    """
    from tracer.api.load import load_result

    result = load_result(trace)
    output.check(type(result))
    output.emit(result)
