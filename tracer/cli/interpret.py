"""`tracer interpret`: run a model in the reference interpreter and look at every node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracer.cli import _accumulating, _data, _options
from tracer.cli._types import PathName
from tracer.errors import UsageError

if TYPE_CHECKING:
    from tracer.graph.model import Model
    from tracer.inputs.feedset import FeedSet
    from tracer.interpreter.inspection import Inspection
    from tracer.limits import Limits
    from tracer.support.tolerance import Tolerance


@click.command()
@_options.MODEL
@click.option("--batch", type=click.IntRange(min=1), default=None,
              help="Batch size; of --data 64 unless given.")  # fmt: skip
@_options.DIMS
@click.option(
    "--inputs",
    type=PathName(),
    multiple=True,
    help="Feeds: an .npz file or a test_data_set folder; with --accumulator any number of them, "
    "and folders of them  [default: seeded random]",
)
@_data.data(required=False)
@_data.FOLDER
@_data.LIMIT
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of random inputs.")
@click.option(
    "--threads", type=click.IntRange(min=0), default=0, help="Threads  [default: those of BLAS]"
)
@click.option("--against", type=click.Choice(["ort"]), help="Compare every node with onnxruntime.")
@click.option("--rtol", type=click.FloatRange(min=0), default=1e-3, show_default=True,
              help="Relative tolerance of --against.")  # fmt: skip
@click.option("--atol", type=click.FloatRange(min=0), default=1e-5, show_default=True,
              help="Absolute tolerance of --against.")  # fmt: skip
@_options.LIMITS
@_accumulating.options
@_options.JSON
@click.option("-o", "--output", "outputs", multiple=True, metavar="FILE",
              help="Write the model's outputs: an .npz file, or a test_data_set folder; with "
                   f"--accumulator also what was counted, by extension: {_options.FORMATS}. "
                   "Repeatable.")  # fmt: skip
@_options.FORCE
def command(
    model: Path,
    batch: int | None,
    dims: tuple[tuple[str, int], ...],
    inputs: tuple[Path, ...],
    data: str | None,
    data_dir: Path,
    limit: int | None,
    seed: int,
    threads: int,
    against: str | None,
    rtol: float,
    atol: float,
    limits: Limits,
    accumulating: _accumulating.Accumulating | None,
    as_json: bool,
    outputs: tuple[str, ...],
    force: bool,
) -> int:
    """Run MODEL node by node in numpy, and show the time and the values of every node.

    With --against ort every node is held against onnxruntime without optimisation, on the same
    inputs; the first node out of tolerance is named, and the exit code is 1.

    With --accumulator sums are made as hardware with a narrow accumulator makes them, and a
    table says how often they leave its range, and which widths would be enough; over all samples
    of --data, or all inputs. Otherwise one inference is made, on the first batch.

    \b
    Examples:
      tracer interpret model.onnx
      tracer interpret model.onnx --against ort --rtol 1e-4
      tracer interpret model.onnx --inputs test_data_set_0 -o outputs.npz
      tracer interpret int8.onnx --accumulator 16 --inputs images.npz --batch 64 -o sums.png
      tracer interpret int8.onnx --accumulator 24 --data digits --certificate safe.json
    """
    from tracer.cli import _values
    from tracer.support.tolerance import Tolerance

    given = _data.feeds(inputs, data, limit, data_dir)
    feeds = {"batch": batch, "dims": dict(dims), "feeds": given, "seed": seed}
    if accumulating is not None:
        if against:
            raise UsageError("--against and --accumulator together", "Leave out one of them.")
        accumulating.run(model, {**feeds, "limits": limits}, threads, outputs, as_json, force)
        return 0
    place = _values.place(outputs, force)
    tolerance = Tolerance(rtol, atol) if against else None
    return _inspect(model, feeds, limits, threads, tolerance, place, as_json)


def _inspect(
    path: Path,
    feeds: Mapping[str, Any],
    limits: Limits,
    threads: int,
    tolerance: Tolerance | None,
    place: Path | None,
    as_json: bool,
) -> int:
    """One inference, compared with onnxruntime's where a tolerance is given."""
    from tracer.cli import _inspection, _progress, _values
    from tracer.graph.loading import open_model
    from tracer.inputs.request import feeds_for
    from tracer.interpreter.inspection import inspect
    from tracer.interpreter.interpreter import Interpreter

    model = open_model(path)
    feedset = feeds_for(path, model, **feeds)
    with _progress.progress() as report:
        interpreter = Interpreter(model, limits=limits, threads=threads or None, progress=report)
        others = _others(model, feedset, threads) if tolerance else None
        found = inspect(interpreter, feedset.feeds, others, tolerance)
    if place is not None:
        writer = _values.Writer(place, model)
        writer.receive(feedset, [output.value for output in found.outputs])
        writer.finish()
    (_inspection.as_json if as_json else _inspection.as_tables)(model, feedset, found)
    return _verdict(found) if tolerance else 0


def _others(model: Model, feedset: FeedSet, threads: int) -> Any:
    from tracer.executors.onnxruntime.all_outputs import tensors

    return tensors(model, feedset.feeds, threads)


def _verdict(found: Inspection) -> int:
    fault = found.first_fault
    if fault is None:
        click.echo("every node is within tolerance", err=True)
        return 0
    assert fault.difference is not None
    node = fault.record.node
    click.echo(
        f"first node out of tolerance: '{node.key}' ({node.qualified_type}): "
        f"{fault.difference.fault}",
        err=True,
    )
    return 1
