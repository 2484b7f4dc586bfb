"""`tracer whatif`: accuracy and energy of a model with narrower accumulators."""

from __future__ import annotations

from typing import Any

import cloup

from tracer.api import whatif as api
from tracer.cli import _options
from tracer.cli._command import Command
from tracer.cli._messages import estimating, progress, tell, tell_written
from tracer.support.files import check_place


@cloup.command(cls=Command)
@_options.SUBJECT
@_options.declared(api.WhatIfArguments)
@_options.WORKERS
@_options.RUN_LIMITS
@_options.view(
    _options.FORMATS, _options.TOP, _options.NOTES,
    more="A .trace keeps every evaluation, and the same command resumes from it. ",
)  # fmt: skip
def command(
    model: _options.ModelSource,
    options: dict[str, Any],
    cluster: str | None,
    limits: _options.Limits,
    output: _options.Output,
) -> None:
    """Find the narrowest accumulators that keep the accuracy.

    \b
    The answer has three parts:
      A  the narrowest width at which no sum overflows on the data
      B  the narrowest width that loses no more accuracy than --budget
      C  a width for each node: less energy than B, within the same budget

    With a list of named accumulators, it compares the accuracy in each, and names the cheapest
    within the budget. tracer interpret --list-accumulators lists the names.

    With --workers or --scheduler, processes share the data. The answer is the same, to the bit.

    \b
    Examples:
      tracer whatif int8.onnx --accumulator 12:32 --data digits
      tracer whatif int8.onnx --accumulator 16:24 --data images.npz --order sequential,tree
      tracer whatif net.onnx --accumulator 12:32 --data digits --budget 0.5 -o w.trace -o w.png
      tracer whatif int8.onnx --accumulator 'conv1=18,*=12:32' --data digits
      tracer whatif net.onnx --accumulator fp32,tc:h100,bf16,fp16,e5m7 --data digits
      tracer whatif int8.onnx --accumulator 12:32 --data images.npz --workers 4 -o w.trace
    """
    from tracer.accumulators.spec import kinds
    from tracer.records.whatif import AccumulatorSweep, WhatIf

    kind = WhatIf if kinds.listed(options["accumulator"]) is None else AccumulatorSweep
    told = "a what-if keeps its evaluations in one .trace file while it runs"
    trace, others = output.split(WhatIf, "trace", told, "Name one; copy it afterwards.")
    if trace is not None:
        check_place(trace)  # it may hold evaluations to resume from
    others.check(kind)
    with progress() as report:
        result = api.what_if(
            model,
            trace=trace,
            force=output.force,
            limits=limits,
            progress=estimating(report),
            cluster=cluster,
            note=tell,
            **options,
        )
    if trace is not None:
        tell_written(trace)
    others.emit(result)
