"""`tracer interpret`: run a model in the reference interpreter and show every node."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloup

from tracer.analyzers.options import SAMPLE
from tracer.api import interpret as api
from tracer.cli import _accumulating, _options, _values
from tracer.cli._messages import tell
from tracer.errors import UsageError

if TYPE_CHECKING:
    from tracer.cli._output import Output
    from tracer.exporters.subject import ModelSource
    from tracer.limits import Limits
    from tracer.records.trace import Trace
    from tracer.support.tolerance import Tolerance


@cloup.command()
@_options.SUBJECT
@_options.declared(api.InterpretArguments)
@_options.TOLERANCE
@_options.WORKERS
@_options.RUN_LIMITS
@_values.tensor_output
@_accumulating.options
@_options.SUMS_VIEW
def command(
    model: ModelSource,
    options: dict[str, Any],
    tolerance: Tolerance,
    cluster: str | None,
    limits: Limits,
    tensors: Path | None,
    accumulating: _accumulating.AccumulatorOptions | None,
    output: Output,
) -> int:
    """Run a model in numpy and show the values of every node.

    -o FILE.npz, or -o FOLDER, writes the outputs of the model; other files are tables.

    --against ort compares every node with onnxruntime without optimisation, on the same inputs.
    A second run gives each node the values that onnxruntime has: an error is then its own, and not
    the rounding of the nodes before it. The command names the first node whose own error exceeds
    the tolerance, and exits with 1. With --rtol it does so for any error.

    A model with operators that the interpreter lacks is refused, and all of them are named. With
    --fallback ort, onnxruntime computes their nodes one at a time, and a note names them.

    --accumulator computes sums as hardware with narrow accumulators does. The table shows how
    often sums overflow and which widths suffice, over all inputs or all samples of --data. Without
    it, the model runs on the first batch alone. With --by sample, samples run one at a time, and
    the table shows which of them overflow.

    \b
    Examples:
      tracer interpret model.onnx
      tracer interpret model.onnx --against ort --rtol 1e-4 -o differences.csv
      tracer interpret model.onnx --fallback ort
      tracer interpret model.onnx --inputs test_data_set_0 -o outputs.npz
      tracer interpret int8.onnx --accumulator 16 --inputs images.npz --batch 64 -o sums.png
      tracer interpret int8.onnx --accumulator 16 --data digits --by sample -o overflow.csv
      tracer interpret int8.onnx --accumulator 24 --data digits --certificate safe.json
      tracer interpret int8.onnx --data digits --check-certificate safe.json
    """
    from tracer.cli import _progress
    from tracer.records.trace import Trace

    output.check(Trace)
    if options["against"] and accumulating is not None:
        raise UsageError("--against and --accumulator together", "Leave out one of them.")
    writer = None if tensors is None else _values.Writer(tensors)
    witness = None if accumulating is None else _accumulating.witness(accumulating)
    with _progress.progress() as report:
        trace = api.interpret(
            model,
            warmup=None,
            tolerance=tolerance,
            accumulator=None if accumulating is None else accumulating.policy,
            by_sample=output.options.by == SAMPLE,
            limits=limits,
            progress=report,
            receivers=[each for each in (writer, witness) if each is not None],
            cluster=cluster,
            note=tell,
            **options,
        )
    if writer is not None:
        writer.finish()
    output.emit(trace)
    if witness is not None:
        witness.finish(trace)
    return _verdict(trace, tolerance) if options["against"] else 0


def _verdict(trace: Trace, tolerance: Tolerance) -> int:
    """Tells whether the model agrees with the reference. Returns the exit code."""
    from tracer.analyzers.views.trace.run_tables import verdict

    (run,) = trace.runs
    text, agrees = verdict(run, tolerance)
    tell(text)
    return int(not agrees)
