"""`tracer env`: the machine, package versions and peak rates, for a bug report or a paper."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import cloup

from tracer.cli import _options
from tracer.cli._messages import tell
from tracer.cli._types import Count
from tracer.containment import fence

if TYPE_CHECKING:
    from tracer.cli._output import Output


@cloup.command()
@cloup.option(
    "--packages", is_flag=True, help="List all installed packages, not only those that run models."
)
@cloup.option_group(
    "Peak rates",
    cloup.option("--peaks", "measure", is_flag=True,
                 help="Measure the peak rates of this machine (3 s)."),
    cloup.option("--threads", type=Count.of("threads"), default=0,
                 help="Threads for the peak rates.  [default: all cores]"),
)  # fmt: skip
@_options.view(".json .csv .md")
def command(packages: bool, measure: bool, threads: int, output: Output) -> None:
    """Show the machine, package versions and peak rates.

    The machine is CPU, memory, GPUs, CUDA, operating system and Python. Narrow sums have the vector
    instructions and the threads that tracer's own code uses here. Peak rates are the fastest
    arithmetic and memory traffic that tracer measured on this machine.

    \b
    Examples:
      tracer env --packages --json
      tracer env --peaks --threads 1
    """
    from tracer import host
    from tracer.records import environment

    output.check(environment.Environment)
    peaks = host.peaks(threads, anew=True, announce=tell) if measure else host.stored_peaks(threads)
    compiled = host.compiled_code()
    kept_by = fence.kept_by()
    observed = replace(environment.observe(), peaks=peaks, compiled=compiled, fence=kept_by)
    output.emit(replace(observed, packages=environment.installed()) if packages else observed)
