"""Softmax and averages of bytes are replayed with onnxruntime's bits."""

import numpy as np
import pytest
from onnx import helper

from tracer.arithmetic.kernel import Kernel, reveal
from tracer.arithmetic.replays import replay_of


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


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize(("scale", "zero"), [(0.02, 0), (0.03, 5)])
def test_an_average_of_whole_images_has_the_bits_of_onnxruntime(dtype, last, scale, zero):
    node = helper.make_node(
        "QLinearAveragePool", ["x", "xs", "xz", "ys", "yz"], ["y"], domain="com.microsoft",
        kernel_shape=[8, 6], channels_last=last,
    )  # fmt: skip
    constants = {
        "xs": np.array(scale, np.float32), "xz": np.array(zero, dtype),
        "ys": np.array(0.02, np.float32), "yz": np.array(3, dtype),
    }  # fmt: skip
    shape = (2, 8, 6, 40) if last else (2, 40, 8, 6)
    kernel = Kernel(node, {"x": (np.dtype(dtype), shape)}, constants, {"com.microsoft": 1})
    assert reveal(replay_of("com.microsoft", "QLinearAveragePool"), kernel).text
