"""`tracer fusions`: which nodes of a model each kernel of onnxruntime stands for."""

from __future__ import annotations

from pathlib import Path

import click

from tracer.cli import _options
from tracer.executors.onnxruntime.settings import OPTIMIZATIONS


@click.command()
@_options.MODEL
@click.option(
    "--optimization",
    type=click.Choice(OPTIMIZATIONS),
    default="all",
    show_default=True,
    help="How much onnxruntime may rewrite the graph.",
)
@click.option("--batch", type=click.IntRange(1, _options.LARGEST), default=None, help="Batch size.")
@_options.dims
@click.option(
    "--inputs",
    type=_options.PathName(),
    multiple=True,
    help="Feeds to compare values on: an .npz file or a test_data_set folder; repeatable  "
    "[default: random, twice]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of random inputs.")
@click.option(
    "--threads",
    type=click.IntRange(min=0),
    default=0,
    help="Threads within an operator  [default: all cores]",
)
@_options.JSON
@_options.CSV
@click.option(
    "-o", "--output", "outputs", multiple=True, metavar="FILE",
    help="Write a file, by extension: .csv .json .md; FORMAT:FILE for another name, - for stdout. "
    "Repeatable.",
)  # fmt: skip
@_options.FORCE
def command(
    model: Path,
    optimization: str,
    batch: int | None,
    dims: tuple[tuple[str, int], ...],
    inputs: tuple[Path, ...],
    seed: int,
    threads: int,
    as_json: bool,
    as_csv: bool,
    outputs: tuple[str, ...],
    force: bool,
) -> None:
    """Show which nodes of MODEL each kernel that runs stands for.

    onnxruntime folds, fuses, removes and inserts nodes. What its graph computes is held against
    what the model computes without rewriting, on two inputs: a kernel is confirmed where its
    tensors have the values of those its nodes begin from and end in.

    \b
    Examples:
      tracer fusions model.onnx
      tracer fusions model.onnx --optimization extended --dim sequence=16
      tracer fusions model.onnx --json -o map.csv -o map.md
    """
    from analyzers.fusions.views import formats, renderer, terminal
    from tracer.api.fusions import fusions
    from tracer.cli import _output, _progress

    targets = _output.targets(outputs, as_json, as_csv, force, formats())
    with _progress.progress() as report:
        found = fusions(
            model,
            batch=batch,
            dims=dict(dims),
            feeds=inputs,
            seed=seed,
            threads=threads,
            optimization=optimization,
            progress=report,
        )
    _output.write(
        [(target, renderer(target.format)(found)) for target in targets],
        lambda console: terminal.render(found, console),
    )
