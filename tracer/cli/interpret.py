"""`tracer interpret`: run a model in the reference interpreter and look at every node."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracer.cli import _options

if TYPE_CHECKING:
    from tracer.inputs import FeedSet
    from tracer.interpreter.inspection import Inspection
    from tracer.limits import Limits
    from tracer.model import Model

_MEBI = 1 << 20


@click.command()
@_options.MODEL
@click.option("--batch", type=click.IntRange(min=1), default=None, help="Batch size.")
@_options.dims
@click.option(
    "--inputs",
    type=click.Path(path_type=Path),
    default=None,
    help="Feeds: an .npz file or a test_data_set folder  [default: seeded random]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of random inputs.")
@click.option(
    "--threads", type=click.IntRange(min=0), default=0, help="Threads  [default: those of BLAS]"
)
@click.option("--against", type=click.Choice(["ort"]), help="Compare every node with onnxruntime.")
@click.option("--rtol", type=click.FloatRange(min=0), default=1e-3, show_default=True,
              help="Relative tolerance of --against.")  # fmt: skip
@click.option("--atol", type=click.FloatRange(min=0), default=1e-5, show_default=True,
              help="Absolute tolerance of --against.")  # fmt: skip
@click.option("--max-seconds", type=click.FloatRange(min=0), default=None, help="Longest run.")
@click.option("--max-tensor", type=click.IntRange(min=1), default=None, metavar="MIB",
              help="Largest tensor  [default: 4096]")  # fmt: skip
@click.option("--max-live", type=click.IntRange(min=1), default=None, metavar="MIB",
              help="Most memory of live tensors  [default: 16384]")  # fmt: skip
@click.option("--max-trips", type=click.IntRange(min=1), default=None,
              help="Most trips of a loop  [default: 1000000]")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the tables.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=None, metavar="FILE",
              help="Write the outputs: an .npz file, or a test_data_set folder.")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
def command(
    model: Path,
    batch: int | None,
    dims: tuple[tuple[str, int], ...],
    inputs: Path | None,
    seed: int,
    threads: int,
    against: str | None,
    rtol: float,
    atol: float,
    max_seconds: float | None,
    max_tensor: int | None,
    max_live: int | None,
    max_trips: int | None,
    as_json: bool,
    output: Path | None,
    force: bool,
) -> int:
    """Run MODEL node by node in numpy, and show the time and the values of every node.

    With --against ort every node is held against onnxruntime without optimisation, on the same
    inputs; the first node out of tolerance is named, and the exit code is 1.

    \b
    Examples:
      tracer interpret model.onnx
      tracer interpret model.onnx --against ort --rtol 1e-4
      tracer interpret model.onnx --inputs test_data_set_0 -o outputs.npz
    """
    from tracer import api
    from tracer.cli import _inspection, _progress, _values
    from tracer.interpreter.comparison import Tolerance
    from tracer.interpreter.inspection import inspect
    from tracer.interpreter.interpreter import Interpreter

    if output is not None:
        _values.check(output, force)
    loaded = api.open_model(model)
    feedset = api.feeds_for(model, loaded, batch=batch, dims=dict(dims), feeds=inputs, seed=seed)
    with _progress.progress() as report:
        interpreter = Interpreter(
            loaded,
            limits=_limits(max_seconds, max_tensor, max_live, max_trips),
            threads=threads or None,
            progress=report,
        )
        others = _others(loaded, feedset, threads) if against else None
        found = inspect(interpreter, feedset.feeds, others, Tolerance(rtol, atol))
    if output is not None:
        _values.write(output, loaded, feedset, found.outputs)
        click.echo(f"wrote {output}", err=True)
    (_inspection.as_json if as_json else _inspection.as_tables)(loaded, feedset, found)
    return _verdict(found) if against else 0


def _limits(
    seconds: float | None, tensor: int | None, live: int | None, trips: int | None
) -> Limits:
    from dataclasses import replace

    from tracer.limits import Limits

    given = {
        "seconds": seconds,
        "tensor_bytes": None if tensor is None else tensor * _MEBI,
        "live_bytes": None if live is None else live * _MEBI,
        "loop_trips": trips,
    }
    return replace(Limits(), **{k: v for k, v in given.items() if v is not None})  # type: ignore[arg-type]


def _others(model: Model, feedset: FeedSet, threads: int) -> Any:
    from tracer.executors.onnxruntime.tensors import tensors

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
