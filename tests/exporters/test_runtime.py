import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

from tracer.errors import ModelError
from tracer.exporters import pipeline


def relu(ir, opset):
    text = f'<ir_version: {ir}, opset_import: ["": {opset}]> g (float[2] x) => (float[2] y)'
    return onnx.parser.parse_model(text + " { a = Relu (x)  y = Neg (a) }")


def loads(proto):
    try:
        onnxruntime.InferenceSession(proto.SerializeToString())
    except Exception:
        return False
    return True


def test_the_newest_versions_load_and_the_next_do_not():
    ir, opset = pipeline.newest_ir(), pipeline.newest_opset()
    assert loads(relu(ir, opset))
    if ir < onnx.IR_VERSION:
        assert not loads(relu(ir + 1, 13))
    if opset < onnx.defs.onnx_opset_version():
        assert not loads(relu(ir, opset + 1))


@pytest.mark.parametrize(("opset", "wanted"), [(11, 10), (21, 10), (23, 11), (24, 12)])
def test_the_ir_version_is_the_oldest_for_the_opset_and_for_metadata(opset, wanted):
    proto = relu(onnx.IR_VERSION, opset)
    pipeline.fit_ir_version(proto)
    assert proto.ir_version == wanted


def test_any_tensor_can_be_asked_for():
    x = np.array([-1, 2], np.float32)
    y, a = pipeline.run(relu(10, 18), [x], ["y", "a"])
    assert (y.tolist(), a.tolist()) == ([0, -2], [0, 2])


def test_what_onnxruntime_refuses_is_told_in_one_line():
    proto = relu(10, 18)
    proto.graph.node[0].op_type = "Nonsense"
    with pytest.raises(ModelError, match="onnxruntime does not run the exported model") as caught:
        pipeline.run(proto, [np.ones(2, np.float32)])
    assert "\n" not in str(caught.value)
