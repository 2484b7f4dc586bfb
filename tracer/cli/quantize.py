"""`tracer quantize`: a float model to an 8-bit one, and the accuracy that it loses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from tracer.cli import _code, _data, _limits, _options, _workers
from tracer.cli._messages import tell, tell_written
from tracer.cli._types import Count
from tracer.errors import UsageError
from tracer.quantization.options import (
    BITS,
    BLOCKS,
    FORMATS,
    LEVELS,
    METHODS,
    TYPES,
    QuantizationOptions,
    WeightOptions,
)

if TYPE_CHECKING:
    from tracer.cli._output import Output
    from tracer.exporters.subject import Subject


def _chosen_options(
    weight_bits: str | None, block: str, accuracy_level: str, **others: Any
) -> QuantizationOptions | WeightOptions:
    """Returns the options of one kind. Raises UsageError for options of both."""
    options = QuantizationOptions(**others)
    if weight_bits is None:
        if (block, accuracy_level) != ("32", "0"):
            raise UsageError("--block and --accuracy-level need --weights", "Give --weights 4.")
        return options
    own = ("symmetric", "nodes", "exclude")
    shared = {name: getattr(options, name) for name in own}
    if options != QuantizationOptions(**shared):
        raise UsageError(
            "--weights quantises weights alone: types, format, ranges and method of activations do "
            "not apply",
            "Leave them out; --symmetric, --nodes and --exclude apply.",
        )
    return WeightOptions(int(weight_bits), int(block), accuracy_level=int(accuracy_level), **shared)


@cloup.command()
@_code.subject("--weights-file")
@cloup.option_group(
    "Calibration",
    cloup.option("--calibrate", metavar="DATA",
                 help=f"Data set to calibrate with: {_data.SOURCES}. Weights alone need none."),
    cloup.option("--limit", type=Count.of("limit"), default=512, show_default=True,
                 help="Samples to calibrate with, and to measure the layers on."),
    _data.FOLDER,
    cloup.option("--batch", type=Count.of("batch"), default=32, show_default=True,
                 help="Samples per inference."),
)  # fmt: skip
@_options.bundle("options", _chosen_options, cloup.option_group(
    "Weights alone",
    cloup.option("--weights", "weight_bits", type=click.Choice(tuple(map(str, BITS))),
                 help="Quantise the weights of MatMul alone, to this many bits."),
    cloup.option("--block", type=click.Choice(tuple(map(str, BLOCKS))), default="32",
                 show_default=True, help="Weights that share a scale."),
    cloup.option("--accuracy-level", type=click.Choice(tuple(map(str, LEVELS))), default="0",
                 show_default=True,
                 help="Least precision of the sums: 1 float32, 2 float16, 3 bfloat16, 4 int8; 0: "
                      "onnxruntime chooses."),
), cloup.option_group(
    "Quantisation",
    cloup.option("--format", type=click.Choice(tuple(FORMATS)), default="qdq",
                 show_default=True,
                 help="qdq: float operators between QuantizeLinear and DequantizeLinear; "
                      "qoperator: integer operators."),
    cloup.option("--per-channel/--per-tensor", default=True, show_default=True,
                 help="Weight scales per output channel or per tensor."),
    cloup.option("--symmetric", is_flag=True,
                 help="Use the middle of the range as zero point of activations or weights."),
    cloup.option("--reduce-range", is_flag=True,
                 help="Use 7-bit weights, for processors without VNNI."),
    cloup.option("--activation-type", type=click.Choice(tuple(TYPES)), default="uint8",
                 show_default=True, help="Type of quantised activations."),
    cloup.option("--weight-type", type=click.Choice(tuple(TYPES)), default="int8",
                 show_default=True, help="Type of quantised weights."),
    cloup.option("--nodes", multiple=True, metavar="PATTERN",
                 help="Quantise only these: node, operator or module, with * and ?. Repeatable."),
    cloup.option("--exclude", multiple=True, metavar="PATTERN",
                 help="Do not quantise these: node, operator or module, with * and ?. Repeatable."),
    cloup.option("--method", type=click.Choice(tuple(METHODS)), default="minmax", show_default=True,
                 help="How activation ranges follow from the data."),
))  # fmt: skip
@cloup.option_group(
    "Accuracy",
    cloup.option("--test", metavar="DATA",
                 help="Data set for measuring accuracy.  [default: the calibration data]"),
    _data.TEST_LIMIT,
    cloup.option("--metric", metavar="NAME",
                 help="Accuracy metric: top1, top5, mse, perplexity; noise, channel-noise, "
                      "agreement (with the float model); or FILE.py:NAME.  "
                      "[default: chosen by the data]"),
)  # fmt: skip
@_workers.OPTIONS
@_limits.OF_PROCESS
@_options.view(
    ".onnx .html .json .csv .parquet .md", _options.top("10", 10), _options.NOTES,
    more="One is the .onnx of the quantised model. ",
)  # fmt: skip
def command(
    model: Subject,
    calibrate: str | None,
    output: Output,
    limit: int,
    options: QuantizationOptions | WeightOptions,
    test: str | None,
    test_limit: int | None,
    metric: str | None,
    batch: int,
    data_dir: Path,
    cluster: str | None,
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
    from tracer.api.quantize import quantize
    from tracer.cli import _progress
    from tracer.records.transformed import Quantized

    paths, others = output.split(Quantized, "onnx")
    target = paths[0] if len(paths) == 1 else None
    if target is None:
        raise UsageError("the quantised model goes to one .onnx file", "Name it: -o FILE.onnx.")
    others.check(Quantized)
    with _progress.progress() as report:
        result = quantize(
            model,
            calibrate,
            output=target,
            force=output.force,
            options=options,
            limit=limit,
            test=test,
            test_limit=test_limit,
            metric=metric,
            batch=batch,
            folder=data_dir,
            progress=_progress.estimating(report),
            cluster=cluster,
            note=tell,
        )
    tell_written(target, f" ({target.stat().st_size:,} bytes)")
    others.emit(result)
