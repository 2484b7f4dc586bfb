"""Options that limit what a command may take: seconds, memory, tensors, trips of loops."""

from typing import Any

import click
import cloup
from click.core import ParameterSource

from tracer.cli._options import bundle
from tracer.cli._types import Amount, Count
from tracer.containment import activity, memory, signals

_MEBI = 1 << 20
_LEAST_MEMORY = 512
"""MiB. The libraries alone take 300; with less, some of them hang or end the process."""


def limit_seconds(
    ctx: click.Context, param: click.Parameter, seconds: float | None
) -> float | None:
    is_set = ctx.get_parameter_source(param.name or "") is not ParameterSource.DEFAULT
    if seconds is not None and is_set and not ctx.resilient_parsing:
        signals.limit_seconds(seconds)
    return seconds


def _limit_memory(ctx: click.Context, param: click.Parameter, mebi: int | None) -> int | None:
    """Limits the process, unless it is not a child: then it is not only this command's."""
    if mebi is not None and not ctx.resilient_parsing and activity.page() is not None:
        memory.limit(mebi * _MEBI)
    return mebi


def _limits(
    max_seconds: float | None, max_tensor: int | None, max_live: int | None, max_trips: int
) -> Any:
    from tracer.limits import Limits

    mebis = {"tensor_bytes": max_tensor, "live_bytes": max_live}
    chosen = {name: mebi * _MEBI for name, mebi in mebis.items() if mebi is not None}
    return Limits(**chosen, loop_trips=max_trips, seconds=max_seconds)


MEMORY = cloup.option(
    "--max-memory", type=Count(_LEAST_MEMORY), metavar="MIB", expose_value=False,
    callback=_limit_memory,
    help="Memory that the command may allocate, in MiB, at least 512.  "
    "[default: 75% of what is free; for onnxruntime 640, and 512 times weights and inputs]",
)  # fmt: skip
OF_PROCESS = cloup.option_group(
    "Limits",
    cloup.option("--max-seconds", type=Amount("seconds"), expose_value=False,
                 callback=limit_seconds, help="Longest time for the command.  "
                 "[default: 10 minutes for a step]"),
    MEMORY,
)  # fmt: skip
"""Limits of a command as a whole. The values are not passed to the command."""

OF_RUNS = bundle(
    "limits", _limits,
    cloup.option_group(
        "Limits",
        cloup.option("--max-seconds", type=Amount("seconds"), callback=limit_seconds,
                     help="Longest time for the command.  [default: 10 minutes for a loop]"),
        cloup.option("--max-tensor", type=Count(1), metavar="MIB",
                     help="Largest tensor, in MiB.  [default: --max-live, at most 4096]"),
        cloup.option("--max-live", type=Count(1), metavar="MIB",
                     help="Memory of all live tensors, in MiB.  [default: 512, and 512 times "
                          "weights and inputs, at most half of the free memory]"),
        cloup.option("--max-trips", type=Count(1), default=1_000_000, show_default=True,
                     help="Most iterations of a loop."),
        MEMORY,
    ),
)  # fmt: skip
