"""tracer quantize: a float model to an 8-bit one, and what that costs."""

from __future__ import annotations

from pathlib import Path

import click

from tracer.cli import _options
from tracer.quantization.options import FORMATS, METHODS, TYPES, QuantizationOptions


@click.command("quantize")
@_options.MODEL
@click.option(
    "--calibrate",
    required=True,
    metavar="DATA",
    help="digits, cifar10, mnist, an .npz file, or a folder with test_data_sets.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="The .onnx file to write.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=512,
    show_default=True,
    help="Samples to calibrate with.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(tuple(FORMATS)),
    default="qdq",
    show_default=True,
    help="qdq: float operators between QuantizeLinear and DequantizeLinear; qoperator: integer "
    "operators.",
)
@click.option(
    "--per-channel/--per-tensor",
    default=True,
    show_default=True,
    help="A scale for each output channel of weights, or one for the tensor.",
)
@click.option("--symmetric", is_flag=True, help="Activations with the zero point in the middle.")
@click.option(
    "--reduce-range", is_flag=True, help="Weights in 7 bits, for processors without VNNI."
)
@click.option(
    "--method",
    type=click.Choice(tuple(METHODS)),
    default="minmax",
    show_default=True,
    help="How the range of an activation follows from the data.",
)
@click.option(
    "--activation-type", type=click.Choice(tuple(TYPES)), default="uint8", show_default=True
)
@click.option("--weight-type", type=click.Choice(tuple(TYPES)), default="int8", show_default=True)
@click.option(
    "--nodes",
    multiple=True,
    metavar="PATTERN",
    help="Quantise these alone: node, operator or module, with * and ?; repeatable.",
)
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave these; repeatable.")
@click.option("--test", metavar="DATA", help="Judge by this  [default: the data calibrated with]")
@click.option(
    "--test-limit", type=click.IntRange(min=1), help="Samples to judge by; all unless given."
)
@click.option(
    "--metric", help="top1, top5, mse, agreement (with the float model), or FILE.py:NAME."
)
@click.option("--batch", type=click.IntRange(1, _options.LARGEST), default=32, show_default=True)
@click.option(
    "--data-dir",
    type=_options.PathName(),
    default=Path("data"),
    show_default=True,
    help="Where the files of cifar10 and mnist lie.",
)
@click.option("--top", type=click.IntRange(min=0), default=10, show_default=True,
              help="Layers to show; 0 for all.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@click.option("--force", is_flag=True, help="Overwrite the file.")
def command(
    model: Path,
    calibrate: str,
    output: Path,
    limit: int,
    format_: str,
    per_channel: bool,
    symmetric: bool,
    reduce_range: bool,
    method: str,
    activation_type: str,
    weight_type: str,
    nodes: tuple[str, ...],
    exclude: tuple[str, ...],
    test: str | None,
    test_limit: int | None,
    metric: str | None,
    batch: int,
    data_dir: Path,
    top: int,
    as_json: bool,
    force: bool,
) -> None:
    """Quantise MODEL by onnxruntime's static quantisation, and tell what it costs.

    Ranges of activations are those seen on DATA, on its training split where it has one. Accuracy
    before and after is measured in the reference interpreter, on the test split; where there are
    no labels it is how often both models agree. The layers that lose most come first.

    \b
    Examples:
      tracer quantize model.onnx --calibrate digits -o model.int8.onnx
      tracer quantize model.onnx --calibrate inputs.npz --format qoperator --reduce-range -o q.onnx
      tracer quantize model.onnx --calibrate digits --exclude Gemm --method entropy -o q.onnx
    """
    from tracer.api import quantize
    from tracer.cli import _progress, _quantization

    options = QuantizationOptions(
        format=format_,
        per_channel=per_channel,
        symmetric=symmetric,
        reduce_range=reduce_range,
        method=method,
        activation_type=activation_type,
        weight_type=weight_type,
        nodes=nodes,
        exclude=exclude,
    )
    with _progress.progress() as report:
        made = quantize.quantize(
            model,
            calibrate,
            output=output,
            force=force,
            options=options,
            limit=limit,
            test=test,
            test_limit=test_limit,
            metric=metric,
            batch=batch,
            folder=data_dir,
            progress=report,
        )
    click.echo(f"wrote {output} ({output.stat().st_size:,} bytes)", err=True)
    (_quantization.as_json if as_json else _quantization.as_table)(made, top)
