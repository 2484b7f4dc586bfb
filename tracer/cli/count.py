"""`tracer count`: the work of a model, from the shapes of its tensors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import cloup

from tracer.cli import _accumulating, _code, _energy, _limits, _options
from tracer.cli._types import PathName

if TYPE_CHECKING:
    from pathlib import Path

    from tracer.accumulators.spec.policy import Policy
    from tracer.cli._output import Output
    from tracer.exporters.subject import Subject


@cloup.command()
@_code.SUBJECT
@cloup.option_group(
    "Input",
    _options.batch("Batch size.  [default: 1]"),
    _options.DIMS,
    cloup.option(
        "--inputs", type=PathName(),
        help="Run once on these values, and count with the shapes of the run: an .npz file or a "
        "test_data_set folder.",
    ),
    cloup.option(
        "--run", is_flag=True,
        help="Run once on random values, and count with the shapes of the run.",
    ),
)  # fmt: skip
@_options.PHASES
@cloup.option_group("Work", _options.CONVENTION, _energy.energy("none"))
@_accumulating.WIDTHS
@_limits.OF_PROCESS
@_options.TRACE_VIEW
def command(
    model: Subject,
    batch: int | None,
    dims: tuple[tuple[str, int], ...],
    inputs: Path | None,
    run: bool,
    prefill: int | None,
    decode: int | None,
    past: tuple[int, ...] | None,
    convention: str,
    energy: str | None,
    accumulator: Policy | None,
    output: Output,
) -> None:
    """Count MACs, operations, parameters and bytes of a model.

    The counts follow from the shapes of the tensors; MODEL is not run. Nodes that cannot be
    counted are told by their cause. They are missing from the totals, not counted as zero.

    Some shapes, branches and trip counts depend on data. With --inputs or --run, MODEL runs once
    in onnxruntime, and they are those of the run.

    --energy prices the counted operations, with the accumulators of --accumulator. Nodes without
    one, and all nodes without --accumulator, have accumulators of 32 bits.

    \b
    Examples:
      tracer count model.onnx
      tracer count model.onnx --batch 8 --by op --json
      tracer count llama.onnx --prefill 128 --decode 32
      tracer count detector.onnx --inputs image.npz
      tracer count int8.onnx --energy lab --accumulator 'conv1=18,conv2=16,*=17'
    """
    from tracer.api.count import count
    from tracer.records.trace import Trace

    output.check(Trace)
    output.emit(
        count(
            model,
            batch=batch,
            dims=dict(dims),
            convention=convention,
            energy=energy,
            accumulator=accumulator,
            feeds=inputs,
            run=run,
            prefill=prefill,
            decode=decode,
            past=past,
        )
    )
