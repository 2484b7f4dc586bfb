"""`tracer env`: the machine and the versions, as a bug report or a paper needs them."""

from __future__ import annotations

import functools

import click
import cloup

from analyzers.options import ViewOptions
from tracer.cli import _options, _output
from tracer.cli._types import Count
from tracer.executors.measuring import MOST_THREADS


@cloup.command()
@cloup.option_group(
    "Peak rates",
    cloup.option("--peaks", "measure", is_flag=True,
                 help="Measure the peak rates of this machine (3 s)."),
    cloup.option("--threads", type=Count(0, MOST_THREADS), default=0,
                 help="Threads for the peak rates.  [default: all cores]"),
)  # fmt: skip
@cloup.option_group("Output", _options.JSON)  # fmt: skip
def command(measure: bool, threads: int, as_json: bool) -> None:
    """Show the machine, package versions and peak rates.

    The machine is CPU, memory, GPU, operating system and Python. Peak rates are the fastest
    arithmetic and memory traffic that tracer measured on this machine.

    \b
    Examples:
      tracer env --json
      tracer env --peaks --threads 1
    """
    from dataclasses import replace

    from tracer import host
    from tracer.records import environment

    say = functools.partial(click.echo, err=True)
    peaks = host.peaks(threads, anew=True, announce=say) if measure else host.known(threads)
    targets = (_output.Target("json", None),) if as_json else ()
    observed = replace(environment.observe(), peaks=peaks)
    _output.Output(targets, ViewOptions()).emit(observed)
