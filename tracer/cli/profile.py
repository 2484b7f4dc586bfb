"""`tracer profile`: run a model, under onnxruntime or its framework, and say where time goes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracer.cli import _framework, _options
from tracer.executors.onnxruntime.settings import OPTIMIZATIONS, is_cpu

if TYPE_CHECKING:
    from tracer.cli._framework import Framework
    from tracer.cli._output import Output
    from tracer.records.environment import Peaks


@click.command()
@_options.MODEL
@click.option(
    "--batch",
    type=_options.Integers(),
    default=None,
    help="Batch sizes, each profiled in turn, as in 1,16,64.",
)
@_options.dims
@click.option(
    "--inputs",
    type=_options.PathName(),
    default=None,
    help="Feeds: an .npz file or a test_data_set folder  [default: seeded random]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of random inputs.")
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    default=None,
    help="Inferences to record  [default: a second of them, at least 10]",
)
@click.option(
    "--warmup",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="Inferences before, not counted.",
)
@click.option(
    "--min-time",
    type=click.FloatRange(min=0),
    default=None,
    metavar="SECONDS",
    help="Go on until so many seconds are recorded.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=0),
    default=0,
    help="Threads within an operator  [default: all cores]",
)
@click.option(
    "--optimization",
    type=click.Choice(OPTIMIZATIONS),
    default="all",
    show_default=True,
    help="How much onnxruntime may rewrite the graph.",
)
@click.option(
    "--provider",
    default="cpu",
    show_default=True,
    help="Execution provider: cpu, cuda, tensorrt, … as onnxruntime has it.",
)
@click.option(
    "--roofline/--no-roofline",
    default=True,
    show_default=True,
    help="Compare with this machine's peaks, which are measured the first time (3 s).",
)
@click.option(
    "--replay",
    type=click.IntRange(min=0),
    default=0,
    metavar="TOP",
    help="Run the kernels of the TOP longest rows alone as well, without profiler, as a check.",
)
@_options.convention
@_framework.options
@_options.viewing
def command(
    model: Path,
    batch: tuple[int, ...] | None,
    dims: tuple[tuple[str, int], ...],
    inputs: Path | None,
    seed: int,
    runs: int | None,
    warmup: int,
    min_time: float | None,
    threads: int,
    optimization: str,
    provider: str,
    roofline: bool,
    replay: int,
    convention: str,
    framework: Framework,
    output: Output,
) -> None:
    """Show where the time of MODEL goes, node by node.

    MODEL is an .onnx file, or a folder with model.onnx; or FILE.py:NAME, a class, a factory or an
    instance of PyTorch or Chainer, whose code is run. Times are those of the runtime's profiler
    less what the profiler itself costs; beside them stands the time of undisturbed runs.

    \b
    Examples:
      tracer profile model.onnx
      tracer profile model.onnx --batch 1,16,64 --by op
      tracer profile model.onnx --runs 10000 -o run.trace -o layers.png
      tracer profile net.py:Net --input-shape 1,3,32,32 --backward --by module
    """
    from tracer.api.profile import profile
    from tracer.cli import _progress

    code = framework.wanted(model)
    compared = roofline and is_cpu(provider)  # peaks are those of the processor
    with _progress.progress() as report:
        if code:
            trace = framework.profile(
                model,
                batch=batch,
                seed=seed,
                runs=runs,
                warmup=warmup,
                min_time=min_time,
                threads=threads,
                progress=report,
            )
        else:
            trace = profile(
                model,
                batch=batch,
                dims=dict(dims),
                feeds=inputs,
                seed=seed,
                runs=runs,
                warmup=warmup,
                min_time=min_time,
                threads=threads,
                optimization=optimization,
                provider=provider,
                convention=convention,
                peaks=_peaks if compared else None,
                replay=replay,
                progress=report,
            )
    output.emit(trace)


def _peaks(threads: int) -> Peaks:
    """What this machine can do, measured if it never was, which is told."""
    from tracer import host

    return host.peaks(threads, announce=lambda text: click.echo(text, err=True))
