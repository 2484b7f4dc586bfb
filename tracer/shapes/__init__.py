"""The shapes of all tensors of a model: onnx's inference, continued through computed shapes.

Exporters compute shapes in the graph: the sizes of a tensor are sliced, multiplied and joined, and
the result shapes another tensor. Where onnx's inference stops, `inference` evaluates such small
tensors (`known`) and goes on, in the order of the graph.
"""

from tracer.shapes.inference import check, fits, infer

__all__ = ["check", "fits", "infer"]
