"""The shapes of all tensors of a model: onnx's inference, continued through computed shapes.

Exporters compute shapes in the graph: the sizes of a tensor are sliced, multiplied and joined, and
the result shapes another tensor. Where onnx's inference stops, `inference` evaluates such small
tensors with the interpreter's kernels (`known_values`) and goes on, in the order of the graph.
`node_checks` refuses nodes whose inputs do not fit, before a run.
"""

from tracer.shapes.inference import fits, infer
from tracer.shapes.node_checks import check

__all__ = ["check", "fits", "infer"]
