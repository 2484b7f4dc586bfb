"""`.annotated.onnx`: the model with measurements in the metadata of its nodes, for any viewer."""

from tracer.analyzers.views.file_formats import Format
from tracer.analyzers.views.file_formats.stored import render

FORMATS = (Format("annotated.onnx", "annotated", render, is_binary=True),)
