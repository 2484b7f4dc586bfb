"""`tracer env`: the machine and the versions, as a bug report or a paper needs them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from tracer.cli import _output

if TYPE_CHECKING:
    from tracer.environment import Environment


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
def command(as_json: bool) -> None:
    """Show the machine and the versions of packages.

    That is CPU, memory, GPU, operating system, Python, and the packages that results depend on.

    \b
    Example:
      tracer env --json
    """
    import msgspec
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from tracer import environment

    observed = environment.observe()
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
