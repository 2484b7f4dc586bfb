"""`tracer report`: render saved traces again, in any format, merged if there are several."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import cloup

from tracer.analyzers.options import format_lines
from tracer.cli import _options
from tracer.cli._command import Command
from tracer.cli._messages import reading
from tracer.cli._types import PathName
from tracer.errors import InputError
from tracer.support.arguments import option


class _Command(Command):
    """A command whose help ends with the formats of files."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes a line for each format."""
        with formatter.section("Formats of -o FILE"):
            formatter.write_dl(format_lines())
        formatter.write_paragraph()
        formatter.write_text("-o FOLDER/ writes every format that fits. See 'tracer docs formats'.")


@cloup.command(cls=_Command)
@_options.subject("traces", metavar="TRACE...", type=PathName(), nargs=-1, required=True)
@_options.single("model", option(
    "File of the model: of a profile of onnxruntime, or for .annotated.onnx.  [default: where it "
    "was when it was traced]",
    None, reads=("path",), common=True,
))  # fmt: skip
@_options.PROCESS_LIMITS
@_options.SUMS_VIEW
def command(traces: tuple[Path, ...], model: Path | None, output: _options.Output) -> None:
    """Show saved traces again, in any format, merged as one.

    TRACE is a .trace file that another command wrote. Several are merged: times, work, overflow and
    energy of a node stand in one row. Columns of a second executor are marked: time_us@reference.
    TRACE may also be the .json file that onnxruntime's or torch's profiler wrote in any program.

    \b
    Examples:
      tracer report run.trace --by module
      tracer report run.trace -o layers.svg --threshold 20
      tracer report run.trace -o run.perfetto.json -o all/
      tracer report onnxruntime_profile.json --model net.onnx
      tracer report time.trace sums.trace -o one.csv
    """
    from tracer.api.results import is_profile, load_profile, load_result, merge

    if model is not None and not model.exists():
        raise InputError(f"{model}: no such file", "Name the file of the model.")
    with reading(traces):
        if len(traces) == 1:
            result = load_result(traces[0], model)
        else:
            result = merge(
                *(load_profile(each, model) if is_profile(each) else each for each in traces)
            )
        output.check(type(result))
        replace(output, options=replace(output.options, model=model)).emit(result)
