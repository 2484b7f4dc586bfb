"""`.annotated.onnx`: the model with measurements in the metadata of its nodes, for any viewer."""

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.file_formats import Format


def render(content: bytes, options: ViewOptions) -> bytes:
    """The serialised model."""
    return content


FORMATS = (Format("annotated.onnx", "annotated", render, is_binary=True),)
