"""`tracer compare`: differences between models or saved runs in time, work and values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from analyzers.options import refuse_depth
from tracer.cli import _options
from tracer.cli._types import Count, Integers, Percent
from tracer.errors import UsageError
from tracer.executors.eager.settings import DEVICES

if TYPE_CHECKING:
    from tracer.api.compare.sides import SideSettings
    from tracer.cli._output import Output


def _side_settings(
    dims: tuple[tuple[str, int], ...],
    inputs: Path | None,
    args: tuple[tuple[str, Any], ...],
    **values: Any,
) -> SideSettings:
    from tracer.api.compare.sides import SideSettings

    return SideSettings(dims=dict(dims), feeds=inputs, arguments=dict(args), **values)


@cloup.command()
@cloup.argument("sides", nargs=-1, required=True, metavar="A B [C …]")
@_options.bundle(
    "settings", _side_settings,
    cloup.option_group(
        "Input",
        cloup.option("--batch", "batches", type=Integers(),
                     help="Batch size. Several sizes, e.g. 1,16,64, are compared with each other."),
        _options.DIMS,
        _options.INPUTS,
        _options.SEED,
    ),
    cloup.option_group(
        "Runs",
        cloup.option("--rounds", type=Count.of("rounds"),
                     help="Turns of every side that is run.  [default: 8 to 30]"),
        cloup.option("--runs", type=Count.of("runs"),
                     help="Inferences per turn.  [default: as many as take 0.02 s]"),
        cloup.option("--warmup", type=Count.of("warmup"), default=2, show_default=True,
                     help="Inferences before each turn, not measured."),
        _options.THREADS,
    ),
    cloup.option_group("ONNX", _options.OPTIMIZATION),
    cloup.option_group(
        "Framework (FILE.py:NAME)",
        _options.ARGUMENTS,
        _options.WEIGHTS,
        cloup.option("--train", is_flag=True,
                     help="Compare forward passes in training mode."),
        cloup.option("--backward", is_flag=True,
                     help="Compare training steps: forward and backward pass."),
        cloup.option("--device", type=click.Choice(DEVICES), default="cpu", show_default=True,
                     help="Device that the framework runs on."),
    ),
    apart=("batches", "rounds", "runs"),
)  # fmt: skip
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
        help="Compare the values that the sides compute.",
    ),
    cloup.option(
        "--fail-above",
        type=Percent(),
        help="Exit 1 if a side is significantly slower than A by more than this, e.g. 5%.",
    ),
)
@_options.tolerance(rtol=1e-3, atol=1e-5)
@_options.view(".json .csv .md .png .svg", _options.TOP, _options.NOTES)  # fmt: skip
def command(
    sides: tuple[str, ...],
    by: str,
    depth: int | None,
    batches: tuple[int, ...] | None,
    rounds: int | None,
    runs: int | None,
    settings: SideSettings,
    numbers: bool,
    rtol: float,
    atol: float,
    fail_above: float | None,
    output: Output,
) -> int:
    """Compare models or saved runs in time, work and values.

    Every side is compared with A. A side is one of: a .trace that `tracer profile` saved;
    FILE.onnx, run by onnxruntime (FILE.onnx@ort:none sets the optimisation level);
    FILE.onnx@interpreter; FILE.py:NAME@torch or @chainer. Sides that are run take turns.

    \b
    Examples:
      tracer compare old.trace new.onnx --fail-above 5%
      tracer compare net.onnx@ort:none net.onnx
      tracer compare torch.onnx chainer.onnx --by module -o layers.png
      tracer compare r18.onnx r50.onnx r152.onnx --by model
      tracer compare net.onnx --batch 1,16,64 -o batches.svg
    """
    from analyzers.compare import Comparison
    from analyzers.compare.sweep import Sweeps
    from tracer.api import compare
    from tracer.cli import _progress
    from tracer.support.tolerance import Tolerance

    refuse_depth(by, depth)
    several = batches if batches and len(batches) > 1 else None
    if several and fail_above is not None:
        raise UsageError(
            "--fail-above compares sides, and several batch sizes are compared with each other",
            "Give one --batch.",
        )
    output.check(Sweeps if several else Comparison)
    if batches and not several:
        settings = replace(settings, batch=batches[0])
    tolerance = Tolerance(rtol, atol) if numbers and by != "model" else None
    with _progress.progress() as report:
        turns: dict[str, Any] = {"rounds": rounds, "runs": runs, "progress": report}
        result = (
            compare.sweep(sides, several, settings=settings, **turns)
            if several
            else compare.compare(
                sides, by=by, depth=depth, settings=settings, tolerance=tolerance, **turns
            )
        )
    output.emit(result)
    if fail_above is None or isinstance(result, Sweeps):
        return 0
    verdict, failed = compare.check(result, fail_above)
    click.echo(verdict, err=True)
    return int(failed)
