"""`tracer compare`: differences between models or saved runs in time, work and values."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from tracer.analyzers.options import refuse_depth
from tracer.cli import _data, _limits, _options
from tracer.cli._code import ARGUMENTS, input_arguments, input_options
from tracer.cli._messages import reading, tell
from tracer.cli._types import Count, Integers, Percent
from tracer.errors import UsageError
from tracer.executors.settings import DEVICES
from tracer.exporters.frameworks import frameworks
from tracer.support.arguments import BOUNDS

if TYPE_CHECKING:
    from tracer.api.compare import SideSettings
    from tracer.cli._output import Output


def _side_settings(
    dims: tuple[tuple[str, int], ...],
    inputs: Path | None,
    args: tuple[tuple[str, Any], ...],
    weights: tuple[str, ...],
    shapes: tuple[str, ...],
    dtypes: tuple[str, ...],
    provider_options: tuple[tuple[str, str], ...],
    **values: Any,
) -> SideSettings:
    from tracer.api.compare import SideSettings

    return SideSettings(
        dims=dict(dims),
        feeds=inputs,
        arguments=dict(args),
        weights=_weights(weights),
        provider_options=dict(provider_options),
        **input_arguments(shapes, dtypes),
        **values,
    )


def _weights(texts: tuple[str, ...]) -> Path | dict[str, Path] | None:
    """Returns a file for all frameworks, or a file for each that `torch=FILE` names."""
    named: dict[str, Path] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or name not in frameworks():
            if len(texts) == 1:
                return Path(text)
            forms = " ".join(f"--weights {framework}=FILE" for framework in frameworks())
            raise UsageError(f"--weights {text} names no framework", f"Give {forms}.")
        if name in named:
            raise UsageError(f"--weights names two files for {name}", "Give one.")
        named[name] = Path(path)
    return named or None


@cloup.command()
@_options.subject("sides", nargs=-1, required=True, metavar="A B [C …]")
@_options.bundle(
    "settings", _side_settings,
    cloup.option_group(
        "Input",
        cloup.option("--batch", "batches", type=Integers(),
                     help="Batch size. Several sizes, e.g. 1,16,64, are compared with each other."),
        _options.DIMS,
        _options.INPUTS,
        *input_options("those of the first ONNX model, else the model's"),
        _options.SEED,
    ),
    cloup.option_group(
        "Runs",
        cloup.option("--precision", type=Percent(), default="1%", show_default=True,
                     help="Compare whole runs until the ratio is known to this, either way."),
        cloup.option("--sessions", type=Count.of("sessions"), default=24, show_default=True,
                     help="Sessions of every side for layers, and the least number of them for "
                          "whole runs: there are more until the precision is reached."),
        cloup.option("--threads", type=Integers(*BOUNDS["threads"]),
                     help="Threads per operator. At several numbers, e.g. 1,2, each side is "
                          "compared at each of them.  [default: all cores]"),
    ),
    cloup.option_group("ONNX", _options.OPTIMIZATION, _options.PROVIDER_OPTIONS, _options.REGISTER),
    cloup.option_group(
        "Framework (FILE.py:NAME)",
        ARGUMENTS,
        cloup.option("--weights", multiple=True, metavar="[torch=|chainer=]FILE",
                     help="File of weights: safetensors or a state dict (torch), .npz (Chainer). "
                          "Repeatable for models of both frameworks."),
        cloup.option("--train", is_flag=True,
                     help="Compare forward passes in training mode."),
        cloup.option("--backward", is_flag=True,
                     help="Compare training steps: forward and backward pass."),
        cloup.option("--device", type=click.Choice(DEVICES), default="cpu", show_default=True,
                     help="Device that the framework runs on."),
    ),
    apart=("batches", "threads"),
)  # fmt: skip
@cloup.option_group(
    "Accuracy",
    _data.data(required=False),
    _data.FOLDER,
    _data.LIMIT,
    cloup.option(
        "--metric",
        "metrics",
        multiple=True,
        metavar="NAME",
        help="Accuracy metric: top1, top5, mse, perplexity; agreement, noise, channel-noise (with "
        "A); or FILE.py:NAME. Repeatable.  [default: chosen by the data, and agreement]",
    ),
)
@cloup.option_group(
    "Comparison",
    cloup.option(
        "--by",
        type=click.Choice(("layer", "module", "op", "model")),
        default="layer",
        show_default=True,
        help="What a row is; model compares totals only.",
    ),
    _options.DEPTH,
    cloup.option(
        "--numbers/--no-numbers",
        default=True,
        show_default=True,
        help="Compare the values that the sides compute; exit 1 if they differ.",
    ),
    cloup.option(
        "--fail-above",
        type=Percent(),
        help="Exit 1 if a side is significantly slower than A by more than this, e.g. 5%.",
    ),
    cloup.option(
        "--fail-unless-within",
        type=Percent(),
        help="Exit 1 unless every side is shown to be as fast as A, within this, e.g. 2%.",
    ),
)
@_limits.OF_PROCESS
@_options.TOLERANCE
@_options.view(
    ".html .json .csv .md .junit.xml .png .svg", _options.TOP, _options.NOTES
)  # fmt: skip
def command(
    sides: tuple[str, ...],
    by: str,
    depth: int | None,
    batches: tuple[int, ...] | None,
    threads: tuple[int, ...] | None,
    settings: SideSettings,
    data: str | None,
    data_dir: Path,
    limit: int | None,
    metrics: tuple[str, ...],
    numbers: bool,
    rtol: float | None,
    atol: float | None,
    fail_above: float | None,
    fail_unless_within: float | None,
    output: Output,
) -> int:
    """Compare models or saved runs in time, work and values.

    Every side is compared with A. A side is one of: a .trace that `tracer profile` saved;
    FILE.onnx, run by onnxruntime (FILE.onnx@ort:none sets the optimisation level,
    FILE.onnx@ort:openvino the execution provider); FILE.onnx@interpreter; FILE.py:NAME, any module
    in its framework, which runs on the inputs of the first ONNX model; FILE.py:NAME@ort, its
    export. Sides that are run take turns. The exit code is 1 if computed values differ.

    With --data, ONNX models are also scored on a data set.

    \b
    Examples:
      tracer compare old.onnx new.onnx --fail-above 5% -o speed.junit.xml
      tracer compare net.onnx@ort:none net.onnx
      tracer compare net.onnx net.onnx@ort:openvino --provider-option device_type=CPU
      tracer compare net.onnx net.py:Net@torch --weights net.safetensors
      tracer compare torch.onnx chainer.onnx --by module -o layers.png
      tracer compare r18.onnx r50.onnx r152.onnx --by model
      tracer compare net.onnx --batch 1,16,64 -o batches.svg
      tracer compare net.onnx --threads 1,2,4 --by model
      tracer compare llama.onnx llama.int4.onnx --data text:book.txt
    """
    from tracer.analyzers.compare import Comparison
    from tracer.analyzers.compare.sweep import Sweeps
    from tracer.api import compare
    from tracer.cli import _progress
    from tracer.support.tolerance import Tolerance

    refuse_depth(by, depth)
    several = batches if batches and len(batches) > 1 else None
    swept_threads = threads if threads and len(threads) > 1 else None
    if several:
        _refuse_gates(fail_above, fail_unless_within)
        _refuse_two_sweeps(swept_threads)
        _refuse_data(data)
    output.check(Sweeps if several else Comparison)
    if batches and not several:
        settings = replace(settings, batch=batches[0])
    if threads and not swept_threads:
        settings = replace(settings, threads=threads[0])
    tolerance = Tolerance(rtol, atol) if numbers and by != "model" else None
    # What the code of the user prints is no data of ours.
    with _reading(sides), _progress.progress() as report, redirect_stdout(sys.stderr):
        result = (
            compare.sweep(sides, several, settings=settings, progress=report)
            if several
            else compare.compare(
                sides,
                by=by,
                depth=depth,
                settings=settings,
                tolerance=tolerance,
                fail_above=fail_above,
                fail_unless_within=fail_unless_within,
                threads=swept_threads,
                test=data,
                test_limit=limit,
                metrics=metrics or None,
                folder=data_dir,
                progress=report,
            )
        )
    if result.is_incomplete:  # the signal that broke it off is told after this
        output.keep(result, "json")
        output.keep(result, "md")
        output.show(result)
        return 0
    with _reading(sides):
        output.emit(result)
    if isinstance(result, Sweeps):
        return 0
    for verdict in result.verdicts:
        tell(verdict.line)
    return int(not result.passed)


def _reading(sides: Sequence[str]) -> AbstractContextManager[None]:
    """Refuses traces that hold what cannot be compared, where there is nothing but traces."""
    return reading(sides) if all(side.endswith(".trace") for side in sides) else nullcontext()


def _refuse_two_sweeps(threads: tuple[int, ...] | None) -> None:
    if threads:
        raise UsageError(
            "several batch sizes and several numbers of threads together",
            "Give one --batch, or one --threads.",
        )


def _refuse_data(data: str | None) -> None:
    if data is not None:
        raise UsageError(
            "--data scores sides, and several batch sizes are compared with each other",
            "Give one --batch.",
        )


def _refuse_gates(fail_above: float | None, fail_unless_within: float | None) -> None:
    """Raises UsageError where a gate is set, for a comparison of batch sizes."""
    for option, share in (
        ("--fail-above", fail_above),
        ("--fail-unless-within", fail_unless_within),
    ):
        if share is not None:
            raise UsageError(
                f"{option} compares sides, and several batch sizes are compared with each other",
                "Give one --batch.",
            )
