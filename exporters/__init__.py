"""Framework models to ONNX, with the same metadata for every framework; see `tracer.api.export`."""

from tracer.support.imports import redirect

if __name__ == "exporters":
    redirect(__name__)
