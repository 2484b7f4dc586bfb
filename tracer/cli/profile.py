"""`tracer profile`: run a model under onnxruntime or its framework and time every node."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloup

from tracer.cli import _accumulating, _data, _framework, _limits, _options, _types
from tracer.cli._messages import tell
from tracer.cli._types import Amount, Count, Integers, PathName, Percent, Words
from tracer.executors.onnxruntime.settings import OPTIMIZATIONS
from tracer.records.providers import is_cpu
from tracer.support.arguments import BOUNDS

if TYPE_CHECKING:
    from tracer.api.framework import FrameworkOptions
    from tracer.api.profile import ProfileOptions
    from tracer.cli._output import Output
    from tracer.records.environment import Peaks


def _profile_options(
    dims: tuple[tuple[str, int], ...],
    inputs: Sequence[Path],
    data: str | None,
    limit: int | None,
    data_dir: Path,
    provider: str,
    provider_options: tuple[tuple[str, str], ...],
    roofline: bool,
    **values: Any,
) -> ProfileOptions:
    from tracer.api.profile import ProfileOptions

    feeds = _data.feeds(inputs, data, limit, data_dir)
    peaks = _peaks if roofline and is_cpu(provider) else None  # peaks of the processor
    return ProfileOptions(
        dims=dict(dims), feeds=feeds, provider=provider, provider_options=dict(provider_options),
        peaks=peaks, **values,
    )  # fmt: skip


def _peaks(threads: int) -> Peaks:
    """Returns the peak rates of this machine; announces a first measurement on stderr."""
    from tracer import host

    return host.peaks(threads, announce=tell)


@cloup.command()
@_options.MODEL
@_options.bundle(
    "options", _profile_options,
    cloup.option_group(
        "Input",
        cloup.option("--batch", type=Integers(), help="Batch sizes, e.g. 1,16,64."),
        _options.DIMS,
        cloup.option("--inputs", type=PathName(), multiple=True,
                     help="Input values: an .npz file or a test_data_set folder; any number of "
                          "them, and folders of them.  [default: random]"),
        _data.data(required=False),
        _data.FOLDER,
        _data.LIMIT,
        _options.SEED,
    ),
    cloup.option_group(
        "Runs",
        cloup.option("--runs", type=Count.of("runs"),
                     help="Inferences to measure.  [default: as many as --precision needs, in 0.5 "
                          "to 1.5 s, at least 10; fewer if these take more than 10 s]"),
        cloup.option("--precision", type=Percent(), metavar="PERCENT",
                     help="Without --runs, measure until the times of the ten slowest rows are "
                          "known to this share of each, or told from their neighbours: 10 s at "
                          "most.  [default: 5%, 1.5 s at most]"),
        cloup.option("--warmup", type=Count.of("warmup"), default=5, show_default=True,
                     help="Inferences before the measured ones; without --runs, at most 3 s of "
                          "them."),
        cloup.option("--min-time", type=Amount("seconds"), help="Shortest time to measure for."),
        cloup.option("--threads", type=Integers(*BOUNDS["threads"]), default=0,
                     help="Threads per operator, e.g. 1,2,4.  [default: all cores]"),
    ),
    _options.PHASES,
    cloup.option_group(
        "ONNX",
        cloup.option("--optimization", type=Words(OPTIMIZATIONS), default="all",
                     show_default=True,
                     help=f"Graph optimisation levels of onnxruntime: {', '.join(OPTIMIZATIONS)}."),
        cloup.option("--provider", metavar="NAME", default="cpu", show_default=True,
                     help="Execution provider of onnxruntime: cpu, cuda, tensorrt, openvino, …"),
        _options.PROVIDER_OPTIONS,
        _options.REGISTER,
        cloup.option("--replay", type=Count.of("replay"), default=0,
                     help="Re-time the kernels of the N slowest rows in isolation as a "
                          "cross-check."),
        cloup.option("--split", type=Count.of("split"), default=0,
                     help="Estimate the parts of the nodes in the N slowest fused kernels, from "
                          "runs of each node alone."),
        cloup.option("--plan", type=PathName(),
                     help="Plan that tracer tune saved: its changes and settings are used."),
        _options.CONVENTION,
        _types.energy("none"),
    ),
    cloup.option_group(
        "Roofline",
        cloup.option("--roofline/--no-roofline", default=True, show_default=True,
                     help="Compare with the peak rates of this machine, measured once (3 s)."),
    ),
)  # fmt: skip
@_limits.OF_PROCESS
@_accumulating.options
@_framework.OPTIONS
@_options.TRACE_VIEW
def command(
    model: Path,
    options: ProfileOptions,
    framework: FrameworkOptions,
    accumulating: _accumulating.AccumulatorOptions | None,
    output: Output,
) -> None:
    """Measure where the time of a model goes, node by node.

    MODEL is an .onnx or .onnx.gz file, a folder with one, - for standard input, FILE.pt2, or
    FILE.py:NAME. NAME is a class, a factory or an instance of PyTorch or Chainer, which runs in its
    framework; FILE.py is executed. Node times are corrected for
    profiler overhead. The wall time comes from runs without a profiler.

    --accumulator also counts which sums of an .onnx file overflow in narrow accumulators, over all
    inputs or all samples of --data. The first of them, --batch at a time, are timed. A row then has
    time, work, overflow and energy of a node.

    \b
    Examples:
      tracer profile model.onnx
      tracer profile model.onnx --batch 1,16,64 --by op
      tracer profile model.onnx --runs 10000 -o run.trace -o layers.png
      tracer profile llama.onnx --prefill 128 --decode 32 --past 0,512,2048
      tracer profile int8.onnx --accumulator 18 --data digits -o int8.csv
      tracer profile model.onnx --plan plan.json
      tracer profile net.py:Net --input-shape 1,3,32,32 --backward --by module
    """
    from tracer.api.profile import SumOptions, profile_target
    from tracer.cli import _progress
    from tracer.records.trace import Trace

    output.check(Trace)
    _framework.refuse_misplaced(model)
    witness = None if accumulating is None else _accumulating.Witness(accumulating)
    sums = None
    if accumulating is not None and witness is not None:
        sums = SumOptions(accumulating.policy, [witness])
    # What the code of the user prints is no data of ours.
    with _progress.progress() as report, redirect_stdout(sys.stderr):
        trace = profile_target(
            model, options, framework, sums, report, lambda kept: output.keep(kept, "trace")
        )
    if trace.is_incomplete:  # the signal that broke it off is told after this
        output.keep(trace, "trace")
        return
    output.emit(trace)
    if witness is not None:
        witness.finish(trace)
