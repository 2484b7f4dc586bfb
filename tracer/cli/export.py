"""`tracer export`: a PyTorch or Chainer model to ONNX."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from tracer.cli import _limits, _options
from tracer.cli._code import (
    ARGUMENTS,
    FRAMEWORK,
    TRUST,
    WEIGHTS,
    input_arguments,
    input_options,
)
from tracer.cli._messages import tell, tell_written
from tracer.cli._types import Count, PathName

if TYPE_CHECKING:
    from tracer.exporters.records import ExportOptions


def _export_options(static_batch: bool, **values: Any) -> ExportOptions:
    from tracer.exporters.records import ExportOptions

    return ExportOptions(dynamic_batch=not static_batch, **values)


@cloup.command()
@_options.subject("source")
@_options.bundle(
    "options", _export_options,
    cloup.option_group("Model", FRAMEWORK, ARGUMENTS, WEIGHTS, TRUST),
    cloup.option_group("Input", *input_options("the model's")),
    cloup.option_group(
        "ONNX",
        cloup.option("--to", type=click.Choice(("qonnx", "qdq")),
                     help="Convert SOURCE, a quantised .onnx file: QuantizeLinear and "
                          "DequantizeLinear to Quant (qonnx), or back (qdq).  "
                          "[default: export a framework's model]"),
        cloup.option("--opset", type=Count(1),
                     help="Version of the ONNX operator set.  "
                          "[default: 20 for torch, 11 for Chainer]"),
        cloup.option("--static-batch", is_flag=True,
                     help="Fix the batch size to that of the inputs."),
        cloup.option("--keep-batchnorm", is_flag=True,
                     help="Do not fold BatchNormalization into convolutions (torch)."),
    ),
    _options.tolerance("1e-4, or 8 roundings of a narrower type", "1e-8"),
    cloup.option_group(
        "Output",
        cloup.option("-o", "--output", type=PathName(), required=True,
                     help="The .onnx file to write."),
        _options.FORCE,
        cloup.option("--seed", type=Count.of("seed"), default=0, show_default=True,
                     help="Seed of random weights, and of the inputs of the check."),
    ),
    apart=("args", "weights", "trust", "shapes", "dtypes", "output"),
)  # fmt: skip
@_limits.OF_PROCESS
def command(
    source: str,
    output: Path,
    args: tuple[tuple[str, Any], ...],
    weights: Path | None,
    shapes: tuple[str, ...],
    dtypes: tuple[str, ...],
    trust: bool,
    options: ExportOptions,
) -> None:
    """Convert a PyTorch or Chainer model to ONNX, or to QONNX.

    SOURCE is a .pt2 exported program, FILE.py:NAME or package.module:NAME. NAME is a class, a
    factory or an instance; its code is executed. Every ONNX node keeps its module and source line.
    The file is written only if onnxruntime and the framework agree on random inputs; otherwise the
    exit code is 1.

    With --to, SOURCE is a quantised .onnx file: QONNX is what FINN, hls4ml and qonnx read.

    \b
    Examples:
      tracer export net.py:Net --input-shape 1,3,32,32 -o net.onnx
      tracer export net.py:resnet --arg depth=20 --weights net.npz -o r.onnx \\
          --input-shape 1,3,32,32
      tracer export program.pt2 -o program.onnx
      tracer export net.int8.onnx --to qonnx -o net.qonnx.onnx
    """
    from tracer.api.export import export

    with redirect_stdout(sys.stderr):  # what the user's own code prints is no data of ours
        exported = export(
            source,
            output,
            args=dict(args),
            weights=weights,
            trust=trust,
            options=options,
            **input_arguments(shapes, dtypes),
        )
    batches = " and ".join(str(batch) for batch in exported.batches)
    tell_written(
        exported.path,
        f" ({exported.nodes} nodes, opset {exported.opset}, "
        f"{'any batch' if exported.dynamic_batch else f'batch {batches}'}; checked against "
        f"{exported.framework} at batch {batches}: max abs error {exported.max_abs_error:.2g})",
    )
    for note in exported.notes:
        tell(f"note: {note}")
