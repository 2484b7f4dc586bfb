"""onnxruntime's operators that resemble a standard one, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.interpreter.models import agree, fused, normal

SQUARE = normal(2, 3, 3)
CASES = {
    "FusedGemm": ({"a": normal(3, 4), "b": normal(4, 5)}, {"activation": "Relu"}),
    "FusedConv": ({"x": normal(1, 2, 5, 5), "w": normal(3, 2, 3, 3)}, {"activation": "Tanh"}),
    "Inverse": ({"x": SQUARE}, {}),
    "Trilu": ({"x": SQUARE}, {"upper": 0}),
    "Range": ({n: np.array(v, np.float32) for n, v in (("a", 1), ("b", 9), ("c", 2))}, {}),
    "ExpandDims": ({"x": SQUARE, "axis": np.array(1, np.int32)}, {}),
    "Pad": ({"x": normal(2, 3), "pads": np.array([0, 1, 1, 2])}, {}),
    "GatherND": ({"x": SQUARE, "at": np.array([[0, 1], [1, 2]])}, {}),
    "MatMulInteger16": ({n: np.ones((3, 3), np.int16) * 7 for n in "ab"}, {}),
}


@pytest.mark.parametrize("name", list(CASES))
def test_operator(name):
    inputs, attributes = CASES[name]
    agree(fused(name, inputs, **attributes), inputs)


def test_unique_keeps_the_order():
    x = np.array([3, 1, 3, 2, 1], np.float32)
    agree(fused("Unique", {"x": x}, ("y", "at", "counts")), {"x": x})


@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 1, 1, 1]])
def test_max_pool_with_channels_last(pads):
    x = np.random.default_rng(0).integers(0, 256, (1, 7, 6, 5), np.uint8)
    agree(fused("NhwcMaxPool", {"x": x}, kernel_shape=[3, 3], pads=pads), {"x": x})


@pytest.mark.parametrize("bias", [True, False])
def test_products_of_quantised_weights(bias):
    rng = np.random.default_rng(0)
    inputs = {
        "a": normal(4, 20), "b": rng.integers(-64, 64, (20, 6), np.int8),
        "scale": np.array(0.02, np.float32), "zero": np.array(3, np.int8),
        "bias": normal(6) if bias else None,
    }  # fmt: skip
    agree(fused("DynamicQuantizeMatMul", inputs, stored=("b", "scale", "zero")),
          {"a": inputs["a"], "bias": inputs["bias"]}, rtol=1e-4)  # fmt: skip


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_dynamic_quantize_lstm(direction):
    d, rng = 1 + (direction == "bidirectional"), np.random.default_rng(0)
    inputs = {
        "x": normal(3, 1, 5),
        "w": rng.integers(-64, 64, (d, 5, 16), np.int8),
        "r": rng.integers(-64, 64, (d, 4, 16), np.int8),
        "b": normal(d, 32), "lengths": None, "h": None, "c": None, "p": None,
        "ws": np.full(d, 0.01, np.float32), "wz": np.zeros(d, np.int8),
        "rs": np.full(d, 0.01, np.float32), "rz": np.zeros(d, np.int8),
    }  # fmt: skip
    stored = [name for name in inputs if name != "x" and inputs[name] is not None]
    model = fused("DynamicQuantizeLSTM", inputs, ("y", "yh", "yc"), stored,
                  direction=direction, hidden_size=4)  # fmt: skip
    agree(model, {"x": inputs["x"]}, rtol=1e-3, atol=2e-3)
