"""`.annotated.onnx`: the model with measurements in the metadata of its nodes, for any viewer."""

from analyzers.options import ViewOptions
from analyzers.views.format import Format


def render(content: bytes, options: ViewOptions) -> bytes:
    """The serialised model."""
    return content


FORMATS = (Format("annotated.onnx", "annotated", render, is_binary=True),)
