"""`tracer bisect`: the first release, file or revision in which a model is slower or broken."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import Any

import cloup

from tracer.api import bisect as api
from tracer.cli import _options
from tracer.cli._command import Command
from tracer.cli._messages import progress


@cloup.command(cls=Command)
@_options.subject("sides", nargs=-1, required=True, metavar="MODEL [MODEL …]")
@_options.declared(api.BisectArguments)
@_options.PROCESS_LIMITS
@_options.TOLERANCE
@_options.view(".json .csv .md .junit.xml", _options.TOP, _options.NOTES)
def command(
    sides: tuple[str, ...],
    options: dict[str, Any],
    tolerance: _options.Tolerance,
    output: _options.Output,
) -> int:
    """Find the release in which a model became slower or broke.

    MODEL runs in each release of onnxruntime that --ort names. Of several models, which are in
    order, or of the exports of FILE.py:NAME at each git revision from --good on, the first is found
    that is slower than the one before, computes something else than the first, or does not run.
    Each has a process of its own; they take turns. Of more than 8, some are measured first, and
    then those around a change. The exit code is 1 if a fault is found.

    \b
    Examples:
      tracer bisect net.onnx --ort 1.17:1.31 --threads 1
      tracer bisect net.onnx --ort 1.20.1:1.21 --every --fault slower
      tracer bisect net.onnx --ort 1.17.3,1.20.1,1.22.1 -o history.md
      tracer bisect export1.onnx export2.onnx export3.onnx --fail-above 5%
      tracer bisect net.py:Net --input-shape 1,3,32,32 --good v1.0
    """
    from tracer.analyzers.compare.bisection import Bisection

    output.check(Bisection)
    with progress() as report, redirect_stdout(sys.stderr):  # what a user's code prints
        result = api.bisect(sides, progress=report, tolerance=tolerance, **options)
    if result.is_incomplete:  # the signal that broke it off is told after this
        output.keep(result, "json", "md")
        output.show(result)
        return 0
    output.emit(result)
    return int(bool(result.faults))
