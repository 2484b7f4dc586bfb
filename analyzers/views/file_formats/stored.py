"""`.trace`, and `.onnx` of an export: what a result holds, to show or to run again.

`tracer report` renders a `.trace` again; it is an SQLite file with everything that was measured.
`.qonnx.onnx` is a narrowed model for FINN and hls4ml.
`.certificate.json` states which sums of a narrowed model no input makes overflow.
"""

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.file_formats import Format


def render(content: bytes, options: ViewOptions) -> bytes:
    """The content of the file."""
    return content


FORMATS = (
    Format("trace", "stored", render, is_binary=True),
    Format("onnx", "model", render, is_binary=True),
    Format("qonnx.onnx", "qonnx", render, is_binary=True),
    Format("certificate.json", "certificate", render),
)
