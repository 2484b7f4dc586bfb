"""`tracer env`: the machine and the versions, as a bug report or a paper needs them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import cloup

from tracer.cli import _options, _output
from tracer.cli._types import Count
from tracer.executors.measuring import MOST_THREADS

if TYPE_CHECKING:
    from tracer.records.environment import Environment, Peaks


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

    import msgspec
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from tracer import host
    from tracer.records import environment

    say = functools.partial(click.echo, err=True)
    peaks = host.peaks(threads, anew=True, announce=say) if measure else host.known(threads)
    observed = replace(environment.observe(), peaks=peaks)
    if as_json:
        _output.write_stdout(msgspec.json.format(msgspec.json.encode(observed), indent=1) + b"\n")
        return
    table = Table("", "value", box=SIMPLE_HEAD, pad_edge=False)
    for name, value in _rows(observed):
        table.add_row(name, Text(value))
    _output.write_screen(lambda console: console.print(table))


def _rows(observed: Environment) -> Iterator[tuple[str, str]]:
    yield "CPU", f"{observed.cpu} ({observed.cpu_count} available)"
    yield "instructions", " ".join(observed.cpu_flags) or "not known"
    memory = observed.memory_bytes
    yield "memory", f"{memory / 2**30:.1f} GiB" if memory else "not known"
    yield "GPU", ", ".join(observed.gpus) or "none"
    yield "CUDA", observed.cuda or "none"
    yield "OS", observed.os
    yield "Python", observed.python
    yield from observed.packages.items()
    if observed.peaks is None:
        yield "peaks", "not measured: tracer env --peaks"
    else:
        yield from _peaks(observed.peaks)


def _peaks(peaks: Peaks) -> Iterator[tuple[str, str]]:
    threads = f"{peaks.threads} threads" if peaks.threads != 1 else "1 thread"
    yield "float32 peak", f"{_giga(peaks.float32.rate)} GFLOP/s with {threads} ({peaks.float32.by})"
    if peaks.int8 is not None:
        yield "int8 peak", f"{_giga(peaks.int8.rate)} GOP/s ({peaks.int8.by})"
    yield "memory peak", f"{_giga(peaks.memory.rate)} GB/s ({peaks.memory.by})"
    if peaks.is_busy:
        yield "", f"measured while other programs took {1 - peaks.cpu_share:.0%} of the CPU"


def _giga(rate: float) -> str:
    return f"{rate / 1e9:.3g}"
