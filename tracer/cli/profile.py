"""`tracer profile`: run a model under onnxruntime or its framework and time every node."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from tracer.cli import _framework, _options
from tracer.cli._types import Amount, Count, Integers
from tracer.executors.onnxruntime.settings import is_cpu

if TYPE_CHECKING:
    from tracer.cli._framework import FrameworkOptions
    from tracer.cli._output import Output
    from tracer.records.environment import Peaks


@cloup.command()
@_options.MODEL
@cloup.option_group(
    "Input",
    cloup.option("--batch", type=Integers(), help="Batch sizes to profile, e.g. 1,16,64."),
    _options.DIMS,
    _options.INPUTS,
    _options.SEED,
)
@_options.bundle(
    "measuring",
    dict,
    cloup.option_group(
        "Runs",
        cloup.option(
            "--runs",
            type=Count(1),
            help="Inferences to measure.  [default: 1 s of them, at least 10]",
        ),
        cloup.option(
            "--warmup",
            type=Count(),
            default=5,
            show_default=True,
            help="Inferences before the measured ones.",
        ),
        cloup.option("--min-time", type=Amount("seconds"), help="Shortest time to measure for."),
        _options.THREADS,
    ),
)
@_options.bundle(
    "onnx",
    dict,
    cloup.option_group(
        "ONNX",
        _options.OPTIMIZATION,
        cloup.option(
            "--provider",
            metavar="NAME",
            default="cpu",
            show_default=True,
            help="Execution provider of onnxruntime: cpu, cuda, tensorrt, …",
        ),
        cloup.option(
            "--replay",
            type=Count(),
            default=0,
            help="Re-time the kernels of the N slowest rows in isolation as a cross-check.",
        ),
        _options.CONVENTION,
    ),
)
@cloup.option_group(
    "Roofline",
    cloup.option(
        "--roofline/--no-roofline",
        default=True,
        show_default=True,
        help="Compare with the peak rates of this machine, measured once (3 s).",
    ),
)
@_framework.OPTIONS
@_options.TRACE_VIEW  # fmt: skip
def command(
    model: Path,
    batch: tuple[int, ...] | None,
    dims: tuple[tuple[str, int], ...],
    inputs: Path | None,
    seed: int,
    measuring: dict[str, Any],
    onnx: dict[str, Any],
    roofline: bool,
    framework: FrameworkOptions,
    output: Output,
) -> None:
    """Measure where the time of a model goes, node by node.

    MODEL is an .onnx file, a folder with model.onnx, or FILE.py:NAME. NAME is a class, a factory
    or an instance of PyTorch or Chainer; FILE.py is executed. Node times are corrected for
    profiler overhead. The wall time comes from runs without a profiler.

    \b
    Examples:
      tracer profile model.onnx
      tracer profile model.onnx --batch 1,16,64 --by op
      tracer profile model.onnx --runs 10000 -o run.trace -o layers.png
      tracer profile net.py:Net --input-shape 1,3,32,32 --backward --by module
    """
    from tracer.api.profile import profile
    from tracer.cli import _progress
    from tracer.records.trace import Trace

    output.check(Trace)
    is_code = framework.apply_to(model)
    peaks = _peaks if roofline and is_cpu(onnx["provider"]) else None  # peaks of the processor
    with _progress.progress() as report:
        run = {"batch": batch, "seed": seed, **measuring, "progress": report}
        if is_code:
            trace = framework.profile(model, **run)
        else:
            trace = profile(model, dims=dict(dims), feeds=inputs, peaks=peaks, **onnx, **run)
    output.emit(trace)


def _peaks(threads: int) -> Peaks:
    """Returns the peak rates of this machine; announces a first measurement on stderr."""
    from tracer import host

    return host.peaks(threads, announce=lambda text: click.echo(text, err=True))
