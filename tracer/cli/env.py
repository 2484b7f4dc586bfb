"""`tracer env`: the machine, package versions and peak rates, for a bug report or a paper."""

from __future__ import annotations

from dataclasses import dataclass, replace

import cloup

from tracer.cli import _options
from tracer.cli._command import Command
from tracer.cli._messages import tell
from tracer.containment import fence
from tracer.support.arguments import FLAG, option


@dataclass(frozen=True)
class _Chosen:
    packages: bool = option(
        "List all installed packages, not only those that run models.", False, rule=FLAG
    )
    measure: bool = option(
        "Measure the peak rates of this machine (3 s).", False,
        group="Peak rates", rule=FLAG, flag="--peaks",
    )  # fmt: skip
    threads: int = option(
        "Threads for the peak rates.  [default: all cores]", 0, group="Peak rates"
    )


@cloup.command(cls=Command)
@_options.declared(_Chosen, "chosen", _Chosen)
@_options.view(".json .csv .md")
def command(chosen: _Chosen, output: _options.Output) -> None:
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
    threads, anew = chosen.threads, chosen.measure
    peaks = host.peaks(threads, anew=True, announce=tell) if anew else host.stored_peaks(threads)
    compiled = host.compiled_code()
    kept_by = fence.kept_by()
    observed = replace(environment.observe(), peaks=peaks, compiled=compiled, fence=kept_by)
    installed = environment.installed() if chosen.packages else observed.packages
    output.emit(replace(observed, packages=installed))
