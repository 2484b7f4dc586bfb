"""Tries a network in accumulators of other widths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tracer.api._calls import by_rules as contained
from tracer.support.arguments import TEXT, Rule, either, instance, integer, maybe, several
from tracer.support.progress import Progress

if TYPE_CHECKING:
    from distributed import Client

    from tracer.exporters.subject import Subject
    from tracer.limits import Limits
    from tracer.records.whatif import AccumulatorSweep, WhatIf
    from tracer.whatif.options import WhatIfOptions

_RULES = {
    "accumulator": Rule(
        "widths, as '12:32', 'conv1=18,*=12:32' or [16, 18], or accumulators, as 'fp32,fp16'",
        either(TEXT, several(integer())).holds,
    ),
    "options": maybe(instance("tracer.whatif.options.WhatIfOptions")),
}


@contained(_RULES)
def what_if(
    model: Subject,
    accumulator: str | Sequence[int],
    data: str | Path,
    options: WhatIfOptions | None = None,
    *,
    trace: str | Path | None = None,
    force: bool = False,
    folder: str | Path = "data",
    threads: int = 0,
    limits: Limits | None = None,
    progress: Progress | None = None,
    operands: str | None = None,
    cluster: Client | str | None = None,
    note: Callable[[str], None] | None = None,
    in_process: bool = False,
) -> WhatIf | AccumulatorSweep:
    """Evaluates `model` on the data set `data` in accumulators of the widths `12:32` or `12,14,16`.

    `conv1=18,*=12:32` pins nodes to a width; see `tracer.whatif.width_plan`. A float model is
    quantised first, with ranges of its training data, unless `options.fixed` has fixed-point
    formats. Each evaluation is written to the file `trace` at once, and reused when the call is
    repeated; only the pass in wide accumulators is repeated.

    A list of accumulators with names, such as `fp32,tc:h100,two-level(16,64,32)`, is compared in an
    `AccumulatorSweep`, with `operands` in one format as `tracer.interpret` takes it. Orders,
    overflows and the search are about widths alone, and so is `trace`.

    `cluster` shares the data out to other processes: `local:4` is four on this machine, a
    `distributed.Client` or the address of its scheduler are the workers of a Dask cluster. The
    result is the same, bit for bit. `note` is called with sentences about the workers, such as the
    address of the dashboard.

    The model runs in a child process, within `limits`, or with `in_process` in this one. Raises the
    errors of `tracer.errors`; a `trace` is continued; `force` begins anew.
    """
    from tracer.scaling.pool import opened_pool

    with opened_pool(cluster, threads, note, ("tracer.whatif.shard_runs",)) as pool:
        from tracer.api import _whatif  # while the workers start

        return _whatif.what_if(
            model, accumulator, data, options, trace, force, Path(folder), limits, progress,
            operands, pool,
        )  # fmt: skip
