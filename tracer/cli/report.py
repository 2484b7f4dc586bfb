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
@_options.TRACE_VIEW
def command(trace: Path, output: Output) -> None:
    """Show a saved trace again, in any format.

    TRACE is a .trace file that another command wrote.

    \b
    Examples:
      tracer report run.trace --by module
      tracer report run.trace -o layers.svg --threshold 20
    """
    from tracer.storage import trace_file, whatif_file

    is_what_if = whatif_file.holds_what_if(trace)
    result = whatif_file.load(trace) if is_what_if else trace_file.load(trace)
    output.check(type(result))
    output.emit(result)
