"""Softmax of bytes is replayed with onnxruntime's bits."""

import numpy as np
import pytest
from onnx import helper

from tracer.arithmetic.kernel import Kernel
from tracer.arithmetic.replays import replay_of
from tracer.arithmetic.rule import reveal


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(("opset", "axis"), [(12, 1), (13, -1), (13, 1)])
@pytest.mark.parametrize("scale", [0.02, 0.4])
def test_a_softmax_of_bytes_has_the_bits_of_onnxruntime(dtype, opset, axis, scale):
    node = helper.make_node(
        "QLinearSoftmax", ["x", "xs", "xz", "ys", "yz"], ["y"], domain="com.microsoft",
        axis=axis, opset=opset,
    )  # fmt: skip
    low = np.iinfo(dtype).min
    constants = {
        "xs": np.array(scale, np.float32), "xz": np.array(3, dtype),
        "ys": np.array(1 / 256, np.float32), "yz": np.array(low, dtype),
    }  # fmt: skip
    taken = {"x": (np.dtype(dtype), (6, 17, 40))}
    kernel = Kernel(node, taken, constants, {"": opset, "com.microsoft": 1})
    assert reveal(replay_of("com.microsoft", "QLinearSoftmax"), kernel).text
