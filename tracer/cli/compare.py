"""`tracer compare`: differences between models or saved runs in time, work and values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from analyzers.options import DEFAULT_TOP, ViewOptions, refuse_depth
from tracer.cli import _options
from tracer.cli._types import Count, Integers, Percent
from tracer.executors.eager.settings import DEVICES

if TYPE_CHECKING:
    from analyzers.compare import Comparison
    from tracer.api.compare.sides import SideSettings
    from tracer.cli._output import Output
    from tracer.support.tolerance import Tolerance


@cloup.command()
@cloup.argument("sides", nargs=-1, required=True, metavar="A B [C …]")
@cloup.option_group(
    "Input",
    cloup.option("--batch", "batches", type=Integers(),
                 help="Batch size. Several sizes, e.g. 1,16,64, are compared with each other."),
    _options.DIMS,
    _options.INPUTS,
    _options.SEED,
)  # fmt: skip
@cloup.option_group(
    "Runs",
    cloup.option("--rounds", type=Count(2),
                 help="Turns of every side that is run.  [default: 8 to 30]"),
    cloup.option("--runs", type=Count(1),
                 help="Inferences per turn.  [default: as many as take 0.05 s]"),
    cloup.option("--warmup", type=Count(), default=2, show_default=True,
                 help="Inferences before each turn, not measured."),
    _options.THREADS,
)  # fmt: skip
@cloup.option_group("ONNX", _options.OPTIMIZATION)
@cloup.option_group(
    "Framework (FILE.py:NAME)",
    _options.ARGUMENTS,
    _options.WEIGHTS,
    cloup.option("--backward", is_flag=True,
                 help="Compare training steps: forward and backward pass."),
    cloup.option("--device", type=click.Choice(DEVICES), default="cpu", show_default=True,
                 help="Device that the framework runs on."),
)  # fmt: skip
@_options.tolerance(rtol=1e-3, atol=1e-5)
@cloup.option_group(
    "What is shown",
    cloup.option("--by", type=click.Choice(("layer", "module", "op", "model")), default="layer",
                 show_default=True, help="What a row is; model compares totals only."),
    _options.DEPTH,
    cloup.option("--numbers/--no-numbers", default=True, show_default=True,
                 help="Compare the values that the sides compute."),
    _options.top(f"{DEFAULT_TOP} on a terminal"),
)  # fmt: skip
@cloup.option_group(
    "Output",
    cloup.option("--fail-above", type=Percent(),
                 help="Exit 1 if a side is significantly slower than A by more than this, "
                      "e.g. 5%."),
    _options.JSON,
    _options.CSV,
    _options.output(".json .csv .md .png .svg"),
    _options.FORCE,
)  # fmt: skip
def command(
    sides: tuple[str, ...],
    by: str,
    depth: int | None,
    batches: tuple[int, ...] | None,
    dims: tuple[tuple[str, int], ...],
    inputs: Path | None,
    seed: int,
    rounds: int | None,
    runs: int | None,
    warmup: int,
    threads: int,
    optimization: str,
    args: tuple[tuple[str, Any], ...],
    weights: Path | None,
    backward: bool,
    device: str,
    numbers: bool,
    rtol: float,
    atol: float,
    fail_above: float | None,
    top: int | None,
    as_json: bool,
    as_csv: bool,
    outputs: tuple[str, ...],
    force: bool,
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
    from analyzers.views import formats
    from tracer.api.compare.sides import SideSettings
    from tracer.cli import _output
    from tracer.support.tolerance import Tolerance

    refuse_depth(by, depth)
    targets = _output.targets(outputs, as_json, as_csv, force, formats(Comparison))
    output = _output.Output(targets, ViewOptions(top=top))
    settings = SideSettings(
        batch=batches[0] if batches and len(batches) == 1 else None,
        dims=dict(dims),
        feeds=inputs,
        seed=seed,
        warmup=warmup,
        threads=threads,
        optimization=optimization,
        arguments=dict(args),
        weights=weights,
        backward=backward,
        device=device,
    )
    if batches and len(batches) > 1:
        return _swept(sides, batches, settings, (rounds, runs), fail_above, output)
    tolerance = Tolerance(rtol, atol) if numbers and by != "model" else None
    found = _compared(sides, (by, depth), settings, rounds, runs, tolerance)
    output.emit(found)
    return 0 if fail_above is None else _judged(found, fail_above)


def _compared(
    sides: tuple[str, ...],
    rows: tuple[str, int | None],
    settings: SideSettings,
    rounds: int | None,
    runs: int | None,
    tolerance: Tolerance | None,
) -> Comparison:
    from tracer.api import compare
    from tracer.cli import _progress

    with _progress.progress() as report:
        return compare.compare(
            sides,
            by=rows[0],
            depth=rows[1],
            settings=settings,
            rounds=rounds,
            runs=runs,
            tolerance=tolerance,
            progress=report,
        )


def _swept(
    sides: tuple[str, ...],
    batches: tuple[int, ...],
    settings: SideSettings,
    repeats: tuple[int | None, int | None],
    fail_above: float | None,
    output: Output,
) -> int:
    from tracer.api import compare
    from tracer.cli import _progress
    from tracer.errors import UsageError

    if fail_above is not None:
        raise UsageError(
            "--fail-above compares sides, and several batch sizes are compared with each other",
            "Give one --batch.",
        )
    with _progress.progress() as report:
        found = compare.sweep(
            sides,
            batches,
            settings=settings,
            rounds=repeats[0],
            runs=repeats[1],
            progress=report,
        )
    output.emit(found)
    return 0


def _judged(found: Comparison, fail_above: float) -> int:
    from tracer.api.compare import check

    verdict, failed = check(found, fail_above)
    click.echo(verdict, err=True)
    return int(failed)
