"""Gives a model with QONNX's operators, which onnxruntime lacks, a stand-in that it can run."""

from tracer.graph.model import Model
from tracer.graph.operators import is_qonnx_quantizer


def runnable_form(model: Model) -> Model:
    """Returns `model` with a stand-in that onnxruntime can run, and a note; itself without QONNX.

    Raises ModelError where the opset is too old and onnx cannot convert the graph, and for nodes
    that ONNX's operators do not express.
    """
    rounding = [node for node in model.nodes if is_qonnx_quantizer(node.domain, node.op_type)]
    if not rounding or model.stand_in is not None:
        return model
    from tracer.quantization.from_qonnx import with_stand_in  # 0.01 s, and few models need it

    return with_stand_in(model, rounding)
