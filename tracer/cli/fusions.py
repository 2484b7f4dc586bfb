"""`tracer fusions`: the nodes of a model that each kernel of onnxruntime contains."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import cloup

from tracer.cli import _code, _limits, _options
from tracer.cli._types import PathName

if TYPE_CHECKING:
    from tracer.cli._output import Output
    from tracer.exporters.subject import Subject


@cloup.command()
@_code.SUBJECT
@cloup.option_group(
    "Input",
    _options.batch("Batch size.  [default: 1]"),
    _options.DIMS,
    cloup.option("--inputs", type=PathName(), multiple=True,
                 help="Input values to compare on: an .npz file or a test_data_set folder. "
                 "Repeatable.  [default: random, twice]"),
    _options.SEED,
)  # fmt: skip
@cloup.option_group("ONNX", _options.OPTIMIZATION, _options.THREADS, _options.REGISTER)
@_limits.OF_PROCESS
@_options.view(".html .csv .json .md", _options.NOTES)
def command(
    model: Subject,
    optimization: str,
    batch: int | None,
    dims: tuple[tuple[str, int], ...],
    inputs: tuple[Path, ...],
    seed: int,
    threads: int,
    register: tuple[Path, ...],
    output: Output,
) -> None:
    """Show which nodes each kernel contains, checked by values.

    onnxruntime folds, fuses, removes and inserts nodes. This command runs MODEL with and without
    these optimisations and compares tensors. A kernel is confirmed if its inputs and outputs equal
    the inputs and outputs of its nodes.

    \b
    Examples:
      tracer fusions model.onnx
      tracer fusions model.onnx --optimization extended --dim sequence=16
      tracer fusions model.onnx --json -o map.csv -o map.md
    """
    from tracer.analyzers.fusions import Fusions
    from tracer.api.fusions import fusions
    from tracer.cli import _progress

    output.check(Fusions)
    with _progress.progress() as report:
        result = fusions(
            model,
            batch=batch,
            dims=dict(dims),
            feeds=inputs,
            seed=seed,
            threads=threads,
            optimization=optimization,
            register=register,
            progress=report,
        )
    output.emit(result)
