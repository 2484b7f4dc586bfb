"""`tracer whatif`: a network in accumulators of other widths, and the narrowest that will do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracer.cli import _accumulating, _data, _options
from tracer.errors import UsageError

if TYPE_CHECKING:
    from tracer.cli._output import Target
    from tracer.limits import Limits


@click.command()
@_options.MODEL
@click.option("--accumulator", required=True, metavar="WIDTHS|RULES",
              help="Widths to try: 12:32, or 12,14,16; with nodes at a width of their own: "
                   "'conv1=18,12:32'.")  # fmt: skip
@_data.data(required=True)
@_data.FOLDER
@click.option("--metric", default=None,
              help="top1, top5, mse, agreement (with wide accumulators), or FILE.py:NAME  "
                   "[default: what fits]")  # fmt: skip
@_data.LIMIT
@click.option("--batch", type=click.IntRange(1, _options.LARGEST), default=64, show_default=True,
              help="Samples at a time.")  # fmt: skip
@click.option("--order", "orders", type=_options.Words(), default=("sequential",),
              help="In which order terms are added, one or more: sequential, channelwise, tree, "
                   "chunked(32), lanes(8), sorted, maddubs  [default: sequential]")  # fmt: skip
@click.option("--overflow", "overflows", type=_options.Words(_accumulating.OVERFLOWS[:-1]),
              default=("saturate",),
              help="What a sum beyond the range becomes, one or more: saturate, symmetric, wrap, "
                   "zero  [default: saturate]")  # fmt: skip
@click.option("--bias", "biases", type=_options.Words(_accumulating.BIASES), default=("first",),
              help="When the bias is added: first, last  [default: first]")  # fmt: skip
@click.option("--product-bits", type=int, default=None, metavar="BITS",
              help="Bring products into this width first  [default: exact]")  # fmt: skip
@click.option("--magnitude", is_flag=True,
              help="Widths do not count the sign: B bits hold -2^B to 2^B - 1.")  # fmt: skip
@click.option("--weight-bits", type=_options.Integers(), default=None,
              help="Bring weights to so few bits, one or more  [default: as they are]")  # fmt: skip
@click.option("--activation-bits", type=_options.Integers(), default=None,
              help="The same for activations.")  # fmt: skip
@click.option("--fixed", default=None, metavar="FORMATS",
              help="Fixed-point numbers for the floats of a graph, instead of quantising it: "
                   "8:5/8:7.")  # fmt: skip
@click.option("--budget", "accuracy_budget", type=click.FloatRange(min=0), default=1.0,
              show_default=True,
              help="What the metric may lose, in percentage points or its unit.")  # fmt: skip
@click.option("--search/--no-search", default=True, show_default=True,
              help="Look for a width for each node as well.")  # fmt: skip
@click.option("--energy", default="lab", show_default=True, metavar="MODEL",
              help="lab, horowitz45, qtools, or FILE.toml.")  # fmt: skip
@click.option("--convention", "addition_convention",
              type=click.Choice(("plain", "channelwise")), default=None,
              help="How additions are counted  [default: as the order makes them]")  # fmt: skip
@click.option("--threads", type=click.IntRange(min=0), default=0,
              help="Threads  [default: those of BLAS]")  # fmt: skip
@_options.limits
@click.option("--top", type=click.IntRange(min=0), default=None,
              help="Nodes to show; 0 for all  [default: 20 on a terminal]")  # fmt: skip
@_options.JSON
@_options.CSV
@click.option("-o", "--output", "outputs", multiple=True, metavar="FILE",
              help=f"Write a file, by extension: {_options.FORMATS}. A .trace has every evaluation "
                   "at once, and the same command goes on from it. Repeatable.")  # fmt: skip
@_options.FORCE
def command(
    model: Path,
    accumulator: str,
    data: str,
    data_dir: Path,
    magnitude: bool,
    weight_bits: tuple[int, ...] | None,
    activation_bits: tuple[int, ...] | None,
    threads: int,
    limits: Limits,
    top: int | None,
    as_json: bool,
    as_csv: bool,
    outputs: tuple[str, ...],
    force: bool,
    **asked: Any,
) -> None:
    """Find how narrow the accumulators of MODEL could be.

    A is the least width at which nothing overflows on the data, B the least within the budget, C
    widths for each node that take less energy than B within the same budget.

    \b
    Examples:
      tracer whatif int8.onnx --accumulator 12:32 --data digits
      tracer whatif int8.onnx --accumulator 16:24 --data images.npz --order sequential,tree
      tracer whatif net.onnx --accumulator 12:32 --data digits --budget 0.5 -o w.trace -o w.png
      tracer whatif int8.onnx --accumulator 'conv1=18,*=12:32' --data digits
    """
    from tracer.api.whatif import what_if
    from tracer.cli import _output, _progress
    from tracer.whatif.options import WhatIfOptions

    options = WhatIfOptions(
        range_convention="magnitude" if magnitude else "twos-complement",
        weight_bits=weight_bits or (None,),
        activation_bits=activation_bits or (None,),
        **asked,
    )
    trace, targets = _targets(outputs, as_json, as_csv, force)
    with _progress.progress() as report:
        found = what_if(
            model,
            accumulator,
            data,
            options,
            trace=trace,
            force=force,
            folder=data_dir,
            threads=threads,
            limits=limits,
            progress=report,
        )
    if trace is not None:
        click.echo(f"wrote {trace}", err=True)
    _output.show_what_if(found, targets, top)


def _targets(
    outputs: tuple[str, ...], as_json: bool, as_csv: bool, force: bool
) -> tuple[Path | None, tuple[Target, ...]]:
    """The trace, which may be there already, and what is rendered; all checked before any work."""
    from analyzers.whatif.views import formats
    from tracer.cli import _output
    from tracer.support.files import check_writable

    parsed = [(output, _output.parse(output, formats())) for output in outputs]
    traces = [target.path for _, target in parsed if target.format == "trace"]
    if len(traces) > 1 or None in traces:
        raise UsageError(
            "a what-if keeps its evaluations in one .trace file while it runs",
            "Name one; copy it afterwards.",
        )
    for path in traces:
        assert path is not None
        check_writable(path, force=True)
    rest = [output for output, target in parsed if target.format != "trace"]
    return next(iter(traces), None), _output.targets(rest, as_json, as_csv, force, formats())
