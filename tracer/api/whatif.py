"""Tries a network in accumulators of other widths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tracer.api import _calls
from tracer.support import arguments
from tracer.whatif.options import SUMS, WhatIfOptions

if TYPE_CHECKING:
    from distributed import Client

    from tracer.exporters.subject import ModelSource
    from tracer.records.whatif import AccumulatorSweep, WhatIf

_WIDTHS = arguments.Rule(
    "widths, as '12:32', 'conv1=18,*=12:32' or [16, 18], or accumulators, as 'fp32,fp16'",
    arguments.either(arguments.TEXT, arguments.several(arguments.integer())).holds,
)


@dataclass(frozen=True)
class WhatIfArguments(_calls.Contained):
    """The arguments of `what_if`."""

    GROUPS = (_calls.INPUT,)

    model: ModelSource
    accumulator: str | Sequence[int] = arguments.option(
        "Widths to try, in bits: 12:32 or 12,14,16. 'conv1=18,12:32' keeps node conv1 at 18 bits. "
        "Or accumulators of any kind to compare: fp32,tc:h100,fp16.",
        group=SUMS, rule=_WIDTHS, metavar="WIDTHS|LIST", reads=(), common=True,
    )  # fmt: skip
    data: _calls.Data = _calls.data(group=_calls.INPUT)
    data_dir: str | Path = _calls.data_dir(group=_calls.INPUT)
    operands: str | None = _calls.operands(group=SUMS)
    options: WhatIfOptions | None = arguments.part(
        WhatIfOptions,
        None,
        rule=arguments.maybe(arguments.instance("tracer.whatif.options.WhatIfOptions")),
    )
    _: KW_ONLY
    threads: int = _calls.threads_of_interpreter(group="Search", common=True)
    trace: str | Path | None = None
    force: bool = False
    cluster: Client | str | None = None
    note: Callable[[str], None] | None = None


@_calls.contained(WhatIfArguments)
def what_if(call: WhatIfArguments) -> WhatIf | AccumulatorSweep:
    """Evaluates `model` on the data set `data` in accumulators of the widths `12:32` or `12,14,16`.

    `conv1=18,*=12:32` pins nodes to a width; see `tracer.whatif.variants`. A float model is
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

    >>> import tracer
    >>> model, few = "models/lenet/lenet.int8.onnx", tracer.WhatIfOptions(limit=64)
    >>> result = tracer.what_if(model, "20:24", "digits", options=few)
    >>> result.variants[0].answer.observed
    22
    """
    from tracer.scaling.pool import opened_pool

    with opened_pool(call.cluster, call.threads, call.note, ("tracer.whatif.shard_runs",)) as pool:
        from tracer.api import _whatif  # while the workers start

        return _whatif.what_if(call, pool)
