"""`tracer compare`: what differs between models or runs in time, work and numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analyzers.options import refuse_depth
from tracer.cli import _options

if TYPE_CHECKING:
    from analyzers.compare import Comparison
    from analyzers.compare.views import Result
    from tracer.api.compare.sides import SideSettings
    from tracer.cli._output import Target
    from tracer.support.tolerance import Tolerance


@click.command()
@click.argument("sides", nargs=-1, required=True, metavar="A B [C …]")
@click.option("--by", type=click.Choice(("layer", "module", "op", "model")), default="layer",
              show_default=True, help="What a row is; model compares totals alone.")  # fmt: skip
@_options.DEPTH
@click.option("--batch", "batches", type=_options.Integers(), default=None,
              help="Batch size; several, as in 1,16,64, compare batch sizes.")  # fmt: skip
@_options.dims
@click.option("--inputs", type=_options.PathName(), default=None,
              help="Feeds: an .npz file or a test_data_set folder  [default: random]")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of random inputs.")
@click.option("--rounds", type=click.IntRange(min=2), default=None,
              help="Turns of each side that is run now  [default: 8 to 30]")  # fmt: skip
@click.option("--runs", type=click.IntRange(min=1), default=None,
              help="Inferences of a turn  [default: as many as take 0.05 s]")  # fmt: skip
@click.option("--warmup", type=click.IntRange(min=0), default=2, show_default=True,
              help="Inferences before each turn, not counted.")  # fmt: skip
@click.option("--threads", type=click.IntRange(min=0), default=0,
              help="Threads within an operator  [default: all cores]")  # fmt: skip
@click.option("--optimization", default="all", show_default=True,
              help="How much onnxruntime may rewrite a graph; FILE.onnx@ort:none for one.",
              type=click.Choice(("none", "basic", "extended", "all")))  # fmt: skip
@_options.arguments
@click.option("--weights", type=_options.PathName(), default=None,
              help="Weights of the frameworks' models.")  # fmt: skip
@click.option("--backward", is_flag=True, help="Frameworks: the backward pass, too.")
@click.option("--device", default="cpu", show_default=True, help="Frameworks: where to run.")
@click.option("--numbers/--no-numbers", default=True, show_default=True,
              help="Compare what the sides compute, too.")  # fmt: skip
@click.option("--rtol", type=click.FloatRange(min=0), default=1e-3, show_default=True,
              help="Relative tolerance of numbers.")  # fmt: skip
@click.option("--atol", type=click.FloatRange(min=0), default=1e-5, show_default=True,
              help="Absolute tolerance of numbers.")  # fmt: skip
@click.option("--fail-above", type=_options.Percent(), default=None, metavar="PERCENT",
              help="Exit 1 where a side is slower than A by more, for certain: 5%.")  # fmt: skip
@click.option("--top", type=click.IntRange(min=0), default=None,
              help="Rows to show; 0 for all  [default: 20 on a terminal]")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the tables.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV instead of the tables.")
@click.option("-o", "--output", "outputs", multiple=True, metavar="FILE",
              help="Write a file, by extension: .json .csv .md .png .svg; FORMAT:FILE for "
                   "another name, - for stdout. Repeatable.")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
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
    """Say what differs between A and B (and C …) in time, in work and in what they compute.

    A side is a .trace that `tracer profile` saved, or is run now: an .onnx file under onnxruntime
    (FILE.onnx@ort:none sets its optimisation), FILE.onnx@interpreter, or a framework's own model,
    FILE.py:NAME@torch or @chainer. Sides that are run now take turns. Each is compared with A.

    \b
    Examples:
      tracer compare old.trace new.onnx --fail-above 5%
      tracer compare net.onnx@ort:none net.onnx
      tracer compare torch.onnx chainer.onnx --by module -o layers.png
      tracer compare r18.onnx r50.onnx r152.onnx --by model
      tracer compare net.onnx --batch 1,16,64 -o batches.svg
    """
    from analyzers.compare.views import formats
    from tracer.api.compare.sides import SideSettings
    from tracer.cli import _output
    from tracer.support.tolerance import Tolerance

    refuse_depth(by, depth)
    targets = _output.targets(outputs, as_json, as_csv, force, formats())
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
        return _swept(sides, batches, settings, (rounds, runs), fail_above, targets, top)
    tolerance = Tolerance(rtol, atol) if numbers and by != "model" else None
    found = _compared(sides, (by, depth), settings, rounds, runs, tolerance)
    _show(found, targets, top)
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
    targets: tuple[Target, ...],
    top: int | None,
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
    _show(found, targets, top)
    return 0


def _show(found: Result, targets: tuple[Target, ...], top: int | None) -> None:
    from analyzers.compare.views import renderer, terminal
    from tracer.cli import _output

    _output.write(
        [(target, renderer(target.format)(found, top)) for target in targets],
        lambda console: terminal.render(found, top, console),
    )


def _judged(found: Comparison, fail_above: float) -> int:
    from tracer.api.compare import check

    verdict, failed = check(found, fail_above)
    click.echo(verdict, err=True)
    return int(failed)
