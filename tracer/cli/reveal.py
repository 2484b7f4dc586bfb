"""`tracer reveal`: how a function adds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cloup

from tracer.api import reveal as api
from tracer.cli import _options
from tracer.cli._command import Command
from tracer.cli._messages import progress

if TYPE_CHECKING:
    from tracer.cli._output import Output


@cloup.command(cls=Command)
@cloup.argument("function", metavar="FILE.py:FUNCTION")
@_options.declared(api.RevealArguments)
@_options.PROCESS_LIMITS
@_options.view(".json .csv .md")
def command(function: str, options: dict[str, Any], output: Output) -> None:
    """Tell how a function adds the products of two vectors.

    FUNCTION takes two vectors of numbers and returns one number. It is called with probes, until
    they tell the order of its additions, its registers, their overflow and rounding. The rule is
    verified on 10,000 random pairs of vectors, and printed as an accumulator that 'tracer
    interpret --accumulator' takes, where it is one. A rule that does not fit is not known.

    \b
    Examples:
      tracer reveal kernels.py:dot
      tracer reveal kernels.py:dot --terms 16 --operands uint8/int8
      tracer reveal kernels.py:dot --operands bf16 --json
    """
    from tracer.arithmetic.revealed import Revealed

    output.check(Revealed)
    with progress() as report:
        result = api.reveal(function, progress=report, **options)
    output.emit(result)
