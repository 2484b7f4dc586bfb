"""`tracer export`: a PyTorch or Chainer model to ONNX."""

import sys
from contextlib import redirect_stdout
from typing import Any

import cloup

from tracer.api import export as api
from tracer.cli import _options
from tracer.cli._command import Command
from tracer.cli._messages import tell, tell_written
from tracer.cli._next_step import show_next_step
from tracer.text import plural


@cloup.command(cls=Command)
@_options.subject("source")
@_options.declared(api.ExportArguments)
@_options.PROCESS_LIMITS
def command(source: str, options: dict[str, Any]) -> None:
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
    with redirect_stdout(sys.stderr):  # what the user's own code prints is no data of ours
        exported = api.export(source, **options)
    batches = " and ".join(str(batch) for batch in exported.batches)
    tell_written(
        exported.path,
        f" ({plural(exported.nodes, 'node')}, opset {exported.opset}, "
        f"{'any batch' if exported.dynamic_batch else f'batch {batches}'}; checked against "
        f"{exported.framework} at batch {batches}: max abs error {exported.max_abs_error:.2g})",
    )
    for note in exported.notes:
        tell(f"note: {note}")
    from rich.console import Console

    show_next_step(exported, Console(stderr=True, highlight=False))
