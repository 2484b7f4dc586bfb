"""`.onnx`: the model that a result holds."""

from analyzers.options import ViewOptions
from analyzers.views.format import Format


def render(model: bytes, options: ViewOptions) -> bytes:
    """The model as ONNX serialises it."""
    return model


FORMATS = (Format("onnx", "model", render, is_binary=True),)
