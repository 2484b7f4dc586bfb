"""onnxruntime's operators that resemble a standard one, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limited
from hypothesis import strategies as st

from tests.interpreter.models import agree, fused, normal, quick

few = limited(quick, max_examples=quick.max_examples // 2)

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


@quick
@given(st.integers(1, 4), st.integers(1, 12), st.integers(1, 5), st.booleans(), st.booleans(),
       st.booleans())  # fmt: skip
def test_integer_products_scaled_to_floats(rows, depth, columns, per_column, zeros, biased):
    rng = np.random.default_rng(depth)
    count = [columns] if per_column else []
    inputs = {
        "a": rng.integers(0, 256, (2, rows, depth), np.uint8),
        "b": rng.integers(-64, 64, (depth, columns), np.int8),
        "a_scale": np.array(0.03, np.float32),
        "b_scale": rng.uniform(0.01, 0.02, count).astype(np.float32),
        "a_zero": np.array(100, np.uint8) if zeros else None,
        "b_zero": np.asarray(rng.integers(-4, 4, count), np.int8) if zeros else None,
        "bias": normal(columns) if biased else None,
    }
    stored = [n for n in inputs if n not in ("a", "bias") and inputs[n] is not None]
    model = fused("MatMulIntegerToFloat", inputs, stored=stored)
    agree(model, {"a": inputs["a"], "bias": inputs["bias"]})


@quick
@given(st.integers(1, 3), st.integers(1, 3), st.sampled_from(["bilinear", "nearest", "bicubic"]),
       st.sampled_from(["zeros", "border", "reflection"]), st.booleans())  # fmt: skip
def test_grid_sample(batch, size, mode, padding, corners):
    grid = np.random.default_rng(size).uniform(-1.2, 1.2, (batch, size, size + 1, 2))
    inputs = {"x": normal(batch, 2, 4, 5), "grid": grid.astype(np.float32)}
    settings = {"mode": mode, "padding_mode": padding, "align_corners": int(corners)}
    agree(fused("GridSample", inputs, **settings), inputs)


@few
@given(
    st.sampled_from(["forward", "reverse", "bidirectional"]), st.integers(1, 3),
    st.sampled_from([None, (3, 3, 3), (4, 1, 2), (1, 3, 2)]), st.booleans(),
    st.sampled_from(["tensor", "shifted", "column"]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_dynamic_quantize_lstm(direction, batch, lengths, reads_y, scales, begun, peep):
    d, rng = 1 + (direction == "bidirectional"), np.random.default_rng(batch)
    count = (d, 16) if scales == "column" else (d,)  # onnxruntime has no zero points of columns
    zero = np.full(count, 3 if scales == "shifted" else 0, np.int8)
    inputs = {
        "x": normal(4, batch, 5),
        "w": rng.integers(-64, 64, (d, 5, 16), np.int8),
        "r": rng.integers(-64, 64, (d, 4, 16), np.int8),
        "b": normal(d, 32),
        "lengths": np.array(lengths[:batch], np.int32) if lengths else None,
        "h": normal(d, batch, 4, seed=1) if begun else None,
        "c": normal(d, batch, 4, seed=2) if begun else None,
        "p": normal(d, 12, seed=3) if peep else None,
        "ws": rng.uniform(0.01, 0.02, count).astype(np.float32), "wz": zero,
        "rs": rng.uniform(0.01, 0.02, count).astype(np.float32), "rz": zero,
    }  # fmt: skip
    fed = {name: inputs[name] for name in ("x", "lengths", "h", "c")}
    stored = [name for name in inputs if name not in fed and inputs[name] is not None]
    model = fused("DynamicQuantizeLSTM", inputs, ("y" if reads_y else "", "yh", "yc"), stored,
                  direction=direction, hidden_size=4)  # fmt: skip
    agree(model, fed)
