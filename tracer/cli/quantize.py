"""`tracer quantize`: a float model to an 8-bit one, and the accuracy that it loses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloup

from tracer.api import _calls
from tracer.api import quantize as api
from tracer.cli import _options
from tracer.cli._command import Command
from tracer.cli._messages import estimating, progress, tell, tell_written
from tracer.errors import UsageError
from tracer.quantization.options import WeightOptions


@dataclass(frozen=True)
class _Code(_options.Code):
    weights: Path | None = _calls.weights(group=_options.CODE, flag="--weights-file")


@cloup.command(cls=Command)
@_options.model_argument(_Code)
@_options.declared(api.QuantizeArguments)
@_options.WORKERS
@_options.PROCESS_LIMITS
@_options.view(
    ".onnx .html .json .csv .parquet .md", _options.top("10", 10), _options.NOTES,
    more="One is the quantised model, by a name that ends in .onnx. ",
)  # fmt: skip
def command(
    model: _options.ModelSource,
    options: dict[str, Any],
    cluster: str | None,
    output: _options.Output,
) -> None:
    """Quantise a model and measure the accuracy loss.

    onnxruntime's static quantisation calibrates activation ranges on the training split of DATA,
    if it has one. The reference interpreter measures accuracy before and after on the test split.
    Without labels, accuracy is the agreement of both models. Layers with the largest error come
    first.

    With --weights the weights of MatMul alone are quantised, in blocks, to MatMulNBits. Nothing is
    calibrated; --test names data for the accuracy.

    \b
    Examples:
      tracer quantize model.onnx --calibrate digits -o model.int8.onnx
      tracer quantize model.onnx --calibrate inputs.npz --format qoperator --reduce-range -o q.onnx
      tracer quantize model.onnx --calibrate digits --exclude Gemm -o q.onnx -o q.html --open
      tracer quantize llama.onnx --weights 4 --test text:book.txt -o llama.int4.onnx
    """
    from tracer.records.transformed import Quantized

    told, hint = "the quantised model goes to one .onnx file", "Name it: -o FILE.onnx."
    target, others = output.split(Quantized, "onnx", told, hint)
    if target is None:
        raise UsageError(told, hint)
    if options["test"] is None and isinstance(options["options"], WeightOptions):
        names = {"limit", "data_dir", "batch", "test_limit", "metric"}
        _options.refuse_typed(names, "is for data, and none are named", "Name some: --test DATA.")
    others.check(Quantized)
    with progress() as report:
        result = api.quantize(
            model,
            output=target,
            force=output.force,
            progress=estimating(report),
            cluster=cluster,
            note=tell,
            **options,
        )
    tell_written(target, f" ({target.stat().st_size:,} bytes)")
    others.emit(result)
