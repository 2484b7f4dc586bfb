"""`tracer whatif`: accuracy and energy of a model with narrower accumulators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from tracer.analyzers.options import ADDITION_CONVENTIONS, DEFAULT_ENERGY_MODEL
from tracer.cli import _accumulating, _code, _data, _limits, _options, _types, _workers
from tracer.cli._messages import tell, tell_written
from tracer.cli._types import Amount, Count, Integers, Words
from tracer.errors import UsageError
from tracer.support.files import check_place

if TYPE_CHECKING:
    from tracer.cli._output import Output
    from tracer.exporters.subject import Subject
    from tracer.limits import Limits
    from tracer.whatif.options import WhatIfOptions

_SWEPT_OVERFLOWS = tuple(mode for mode in _accumulating.OVERFLOWS if mode != "error")


def _what_if_options(
    magnitude: bool,
    weight_bits: tuple[int, ...] | None,
    activation_bits: tuple[int, ...] | None,
    **values: Any,
) -> WhatIfOptions:
    from tracer.whatif.options import WhatIfOptions

    return WhatIfOptions(
        range_convention="magnitude" if magnitude else "twos-complement",
        weight_bits=weight_bits or (None,),
        activation_bits=activation_bits or (None,),
        **values,
    )


@cloup.command()
@_code.SUBJECT
@_options.bundle(
    "options", _what_if_options,
    cloup.option_group(
        "Input",
        _data.data(required=True),
        _data.FOLDER,
        _data.LIMIT,
        cloup.option("--batch", type=Count.of("batch"), default=64, show_default=True,
                     help="Samples per inference."),
    ),
    cloup.option_group(
        "Accumulators",
        cloup.option("--accumulator", required=True, metavar="WIDTHS|LIST",
                     help="Widths to try, in bits: 12:32 or 12,14,16. 'conv1=18,12:32' keeps node "
                          "conv1 at 18 bits. Or accumulators of any kind to compare: "
                          "fp32,tc:h100,fp16."),
        _accumulating.OPERANDS,
        cloup.option("--order", "orders", type=Words(), default=("sequential",),
                     help="Orders of addition: sequential, channelwise, tree, chunked(32), "
                          "lanes(8), sorted, maddubs.  [default: sequential]"),
        cloup.option("--overflow", "overflows", type=Words(_SWEPT_OVERFLOWS),
                     default=("saturate",),
                     help="What happens to a sum outside the range: saturate, symmetric, wrap, "
                          "zero.  [default: saturate]"),
        cloup.option("--bias", "biases", type=Words(_accumulating.BIASES), default=("first",),
                     help="When the bias is added: first, last.  [default: first]"),
        cloup.option("--product-bits", type=int, metavar="BITS",
                     help="Width that products are reduced to before addition.  [default: exact]"),
        cloup.option("--magnitude", is_flag=True,
                     help="Do not count the sign bit: B bits hold -2^B to 2^B - 1."),
    ),
    cloup.option_group(
        "Quantisation",
        cloup.option("--weight-bits", type=Integers(),
                     help="Widths that weights are reduced to.  [default: unchanged]"),
        cloup.option("--activation-bits", type=Integers(),
                     help="Widths that activations are reduced to.  [default: unchanged]"),
        cloup.option("--fixed", metavar="FORMATS",
                     help="Fixed-point formats of float tensors, instead of quantisation: "
                          "bits:fraction bits of activations/weights, e.g. 8:5/8:7."),
    ),
    cloup.option_group(
        "Search",
        cloup.option("--metric", metavar="NAME",
                     help="Accuracy metric: top1, top5, mse, perplexity; noise, channel-noise, "
                          "agreement (with wide accumulators); or FILE.py:NAME.  "
                          "[default: chosen by the data]"),
        cloup.option("--budget", "accuracy_budget", type=Amount("points"),
                     help="Accuracy that may be lost, in percentage points or the metric's unit.  "
                          "[default: 1 point; 0.05 bits of perplexity]"),
        cloup.option("--search/--no-search", default=True, show_default=True,
                     help="Also search a width for each node."),
        cloup.option("--explain", is_flag=True,
                     help="Take a bit from each node of B in turn, and name the node whose bit "
                          "costs most. One evaluation for each node."),
        cloup.option("--energy", type=_types.EnergyModelName(), default=DEFAULT_ENERGY_MODEL,
                     show_default=True, help="Energy model; see docs/energy.md."),
        cloup.option("--convention", "addition_convention",
                     type=click.Choice(ADDITION_CONVENTIONS),
                     help="How additions are counted; see docs/counting.md.  "
                          "[default: by --order]"),
        cloup.option("--threads", type=Count.of("threads"), default=0,
                     help="Threads per operator, at most one for each CPU.  [default: as BLAS "
                          "is set]"),
    ),
    apart=("accumulator", "operands", "data", "data_dir", "threads"),
)  # fmt: skip
@_workers.OPTIONS
@_limits.OF_RUNS
@_options.view(
    _options.FORMATS, _options.TOP, _options.NOTES,
    more="A .trace keeps every evaluation, and the same command resumes from it. ",
)  # fmt: skip
def command(
    model: Subject,
    accumulator: str,
    operands: str | None,
    data: str,
    data_dir: Path,
    threads: int,
    options: WhatIfOptions,
    cluster: str | None,
    limits: Limits,
    output: Output,
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
    from tracer.api.whatif import what_if
    from tracer.cli import _progress
    from tracer.records.whatif import AccumulatorSweep, WhatIf

    kind = WhatIf if kinds.listed(accumulator) is None else AccumulatorSweep
    traces, others = output.split(WhatIf, "trace")
    trace = traces[0] if traces else None
    if len(traces) > 1 or None in traces:
        raise UsageError(
            "a what-if keeps its evaluations in one .trace file while it runs",
            "Name one; copy it afterwards.",
        )
    if trace is not None:
        check_place(trace)  # it may hold evaluations to resume from
    others.check(kind)
    with _progress.progress() as report:
        result = what_if(
            model,
            accumulator,
            data,
            options,
            trace=trace,
            force=output.force,
            folder=data_dir,
            threads=threads,
            limits=limits,
            progress=_progress.estimating(report),
            operands=operands,
            cluster=cluster,
            note=tell,
        )
    if trace is not None:
        tell_written(trace)
    others.emit(result)
