"""tracer export: a PyTorch or Chainer model to ONNX."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click

from exporters.frameworks import frameworks
from tracer.cli import _options


@click.command("export")
@click.argument("source")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="The .onnx file to write.",
)
@_options.arguments
@click.option(
    "--weights",
    type=click.Path(path_type=Path),
    help="torch: safetensors or state dict; Chainer: npz.",
)
@click.option(
    "--input-shape",
    "shapes",
    multiple=True,
    metavar="1,3,32,32",
    help="The batch first; one for each input.",
)
@click.option(
    "--input-dtype", "dtypes", multiple=True, help="One, or one for each; float32 unless given."
)
@click.option(
    "--framework", type=click.Choice(frameworks()), help="Told by the model unless given."
)
@click.option("--opset", type=int, help="torch writes 20 and Chainer 11 unless given.")
@click.option("--static-batch", is_flag=True, help="Fix the batch at that of --input-shape.")
@click.option("--keep-batchnorm", is_flag=True, help="torch: leave BatchNormalization unfolded.")
@click.option(
    "--atol",
    type=click.FloatRange(min=0),
    default=None,
    help="Absolute tolerance of every element  [default: rtol of the tensor's largest value]",
)
@click.option(
    "--rtol",
    type=click.FloatRange(min=0),
    default=1e-4,
    show_default=True,
    help="Relative tolerance of every element.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the random inputs.",
)
@click.option("--trust", is_flag=True, help="Unpickle what is given: this can run any code.")
@click.option("--force", is_flag=True, help="Overwrite the file.")
def command(
    source: str,
    output: Path,
    args: tuple[tuple[str, Any], ...],
    weights: Path | None,
    shapes: tuple[str, ...],
    dtypes: tuple[str, ...],
    framework: str | None,
    opset: int | None,
    static_batch: bool,
    keep_batchnorm: bool,
    atol: float | None,
    rtol: float,
    seed: int,
    trust: bool,
    force: bool,
) -> None:
    """Write a PyTorch or Chainer model as ONNX, with module and source line on every node.

    SOURCE is FILE.py:NAME or package.module:NAME, where NAME is a class, a factory or an instance;
    or a .pt2 exported program. The code named is run. The result is run under onnxruntime and
    compared with the framework on random input; exit 1 and no file where they differ.

    Examples:

    \b
      tracer export net.py:Net --input-shape 1,3,32,32 -o net.onnx
      tracer export net.py:resnet --arg depth=20 --weights net.npz -o r.onnx \\
          --input-shape 1,3,32,32
      tracer export program.pt2 -o program.onnx
    """
    from exporters.records import ExportOptions
    from tracer.api.export import export

    options = ExportOptions(
        framework=framework,
        opset=opset,
        dynamic_batch=not static_batch,
        keep_batchnorm=keep_batchnorm,
        atol=atol,
        rtol=rtol,
        seed=seed,
        force=force,
    )
    with redirect_stdout(sys.stderr):  # what the user's own code prints is no data of ours
        exported = export(
            source,
            output,
            args=dict(args),
            weights=weights,
            trust=trust,
            input_shape=[_options.shape(text) for text in shapes] or None,
            input_dtype=dtypes[0] if len(dtypes) == 1 else (dtypes or "float32"),
            options=options,
        )
    batches = " and ".join(str(batch) for batch in exported.batches)
    click.echo(
        f"wrote {exported.path} ({exported.nodes} nodes, opset {exported.opset}, "
        f"{'any batch' if exported.dynamic_batch else f'batch {batches}'}; checked against "
        f"{exported.framework} at batch {batches}: max abs error {exported.max_abs_error:.2g})",
        err=True,
    )
