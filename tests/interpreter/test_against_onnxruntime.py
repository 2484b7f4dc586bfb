"""Random shapes and attributes; onnxruntime is the oracle."""

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.interpreter.models import agree, normal, quick, single
from tracer.interpreter.interpreter import Interpreter

SEVEN_BITS = -64, 64
"""Weights whose products with bytes onnxruntime adds exactly on every processor: without VNNI it
adds them in pairs that saturate at 16 bits (PMADDUBSW)."""


@quick
@given(
    st.lists(st.integers(1, 3), max_size=2),
    st.lists(st.booleans(), min_size=4, max_size=4),
    st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)),
)
def test_matrix_products_broadcast(batch, ones, sizes):
    rows, depth, columns = sizes
    left = [1 if one else n for n, one in zip(batch, ones, strict=False)]
    right = [1 if one else n for n, one in zip(batch, ones[2:], strict=False)]
    feeds = {"a": normal(*left, rows, depth), "b": normal(*right[1:], depth, columns, seed=1)}
    agree(single("MatMul", feeds), feeds)


@pytest.mark.parametrize("shapes", [((5,), (5,)), ((5,), (2, 5, 3)), ((2, 4, 5), (5,))])
def test_matrix_products_of_vectors(shapes):
    feeds = {"a": normal(*shapes[0]), "b": normal(*shapes[1], seed=1)}
    agree(single("MatMul", feeds), feeds)


@settings(quick, max_examples=12)
@given(st.integers(4, 90), st.integers(1, 700), st.integers(40, 200), st.sampled_from([1, 3]))
def test_large_matrix_products(rows, depth, columns, batch):
    feeds = {"a": normal(batch, rows, depth), "b": normal(depth, columns, seed=1)}
    agree(single("MatMul", feeds), feeds, rtol=1e-3, atol=1e-4)


@quick
@given(st.booleans(), st.booleans(), st.sampled_from([None, (1,), (5,), (4, 1), (4, 5)]))
def test_gemm(trans_a, trans_b, bias):
    feeds = {
        "a": normal(*((3, 4) if trans_a else (4, 3))),
        "b": normal(*((5, 3) if trans_b else (3, 5)), seed=1),
        "c": None if bias is None else normal(*bias, seed=2),
    }
    model = single("Gemm", feeds, alpha=0.5, beta=2.0, transA=int(trans_a), transB=int(trans_b))
    agree(model, feeds)


@quick
@given(
    st.sampled_from(["nearest", "linear", "cubic"]),
    st.sampled_from(
        ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"]
    ),
    st.sampled_from(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]),
    st.tuples(st.integers(2, 7), st.integers(2, 7)),
    st.tuples(st.integers(1, 15), st.integers(1, 15)),
    st.booleans(),
)
def test_resize(mode, coordinates, nearest, size, wanted, exclude):
    places = [n * i / m for n, m in zip(size, wanted, strict=True) for i in range(2 * m)]
    # onnxruntime computes places in float32: at a tie either neighbour may win
    assume(mode != "nearest" or all(min(2 * p % 1, 1 - 2 * p % 1) > 1e-3 for p in places if p % 1))
    assume(mode != "nearest" or coordinates in ("half_pixel", "asymmetric"))
    feeds = {
        "x": normal(1, 2, *size),
        "roi": None,
        "scales": None,
        "sizes": np.array([1, 2, *wanted]),
    }
    attributes = {"exclude_outside": int(exclude)} if mode == "cubic" else {}
    model = single(
        "Resize", feeds, mode=mode, coordinate_transformation_mode=coordinates,
        nearest_mode=nearest, **attributes,
    )  # fmt: skip
    agree(model, feeds, atol=1e-4)


@quick
@given(st.sampled_from(["linear", "cubic"]), st.integers(3, 9), st.integers(2, 9))
def test_resize_without_aliasing(mode, size, wanted):
    feeds = {
        "x": normal(1, 1, size, size),
        "roi": None,
        "scales": None,
        "sizes": np.array([1, 1, wanted, wanted]),
    }
    agree(single("Resize", feeds, mode=mode, antialias=1), feeds, atol=1e-4)


@quick
@given(st.data(), st.integers(-3, 2))
def test_gather(data, axis):
    x = normal(3, 4, 5)
    size = x.shape[axis]
    shape = data.draw(st.sampled_from([(), (2,), (2, 3)]))
    indices = np.random.default_rng(1).integers(-size, size, shape)
    feeds = {"x": x, "i": indices}
    agree(single("Gather", feeds, axis=axis), feeds)


@quick
@given(st.integers(-3, 2), st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 5)))
def test_gather_and_scatter_elements(axis, shape):
    x = normal(3, 4, 5)
    indices = np.random.default_rng(1).permuted(
        np.broadcast_to(
            np.arange(shape[axis]).reshape([-1 if i == axis % 3 else 1 for i in range(3)]), shape
        ),
        axis=axis,
    )
    feeds = {"x": x, "i": indices}
    agree(single("GatherElements", feeds, axis=axis), feeds)
    feeds |= {"u": normal(*shape, seed=2)}
    for reduction in ("none", "add", "max"):
        agree(single("ScatterElements", feeds, axis=axis, reduction=reduction), feeds)


@quick
@given(st.integers(0, 1), st.integers(1, 2))
def test_gather_and_scatter_by_tuples(batch_dims, depth):
    x = normal(2, 3, 4, 5)
    sizes = np.array(x.shape[batch_dims : batch_dims + depth])
    indices = np.random.default_rng(3).integers(-sizes, sizes, (2, 3, depth))
    feeds = {"x": x, "i": indices}
    agree(single("GatherND", feeds, batch_dims=batch_dims), feeds)
    if not batch_dims:
        updates = normal(*indices.shape[:-1], *x.shape[depth:], seed=2)
        feeds |= {"u": updates}
        agree(single("ScatterND", feeds, reduction="add"), feeds)


@settings(quick, max_examples=examples(150).max_examples)
@given(
    st.lists(
        st.tuples(
            st.integers(-9, 9), st.integers(-9, 9), st.integers(-3, 3).filter(lambda step: step)
        ),
        min_size=1,
        max_size=3,
    )
)
def test_slice_with_negative_steps_and_far_bounds(ranges):
    feeds = {"x": normal(3, 4, 5)}
    for place, name in enumerate(("starts", "ends")):
        feeds[name] = np.array([r[place] for r in ranges], np.int64)
    feeds["axes"] = np.arange(len(ranges), dtype=np.int64)
    feeds["steps"] = np.array([r[2] for r in ranges], np.int64)
    agree(single("Slice", feeds), feeds)


@quick
@given(
    st.sampled_from(["forward", "reverse", "bidirectional"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["RNN", "GRU", "LSTM"]),
    st.booleans(),
)
def test_recurrent_networks(direction, lengths, initial, op_type, flag):
    directions = 2 if direction == "bidirectional" else 1
    gates, states = {"RNN": (1, 1), "GRU": (3, 1), "LSTM": (4, 2)}[op_type]
    steps, batch, inputs, hidden = 5, 3, 2, 4
    feeds = {
        "x": normal(steps, batch, inputs),
        "w": normal(directions, gates * hidden, inputs, seed=1),
        "r": normal(directions, gates * hidden, hidden, seed=2),
        "b": normal(directions, 2 * gates * hidden, seed=3),
        "l": np.array([5, 2, 4], np.int32) if lengths else None,
        "h": normal(directions, batch, hidden, seed=4) if initial else None,
    }
    attributes = {}
    if op_type == "LSTM":
        feeds["c"] = normal(directions, batch, hidden, seed=5) if initial else None
        feeds["p"] = normal(directions, 3 * hidden, seed=6) if flag else None
    if op_type == "GRU":
        attributes["linear_before_reset"] = int(flag)
    model = single(
        op_type, feeds, outputs=1 + states, opset=14, hidden_size=hidden, direction=direction,
        **attributes,
    )  # fmt: skip
    agree(model, feeds)


@quick
@given(st.integers(-2, 2), st.integers(0, 255), st.integers(1, 2), st.booleans())
def test_quantized_convolution(shift, zero, group, per_channel):
    rng = np.random.default_rng(5)
    maps = 2 * group
    feeds = {
        "x": rng.integers(0, 256, (1, 2 * group, 6, 7), np.uint8),
        "xs": np.array(0.02, np.float32),
        "xz": np.array(zero, np.uint8),
        "w": rng.integers(*SEVEN_BITS, (maps, 2, 3, 3), np.int8),
        "ws": np.linspace(0.01, 0.03, maps if per_channel else 1, dtype=np.float32),
        "wz": np.zeros(maps if per_channel else 1, np.int8),
        "ys": np.array(0.5, np.float32),
        "yz": np.array(100 + shift, np.uint8),
        "b": rng.integers(-500, 500, maps).astype(np.int32),
    }
    agree(single("QLinearConv", feeds, group=group, pads=[1, 1, 0, 0]), feeds, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("op_type", "feeds"),
    [
        ("QuantizeLinear", {"x": 3.3, "scale": 0.1, "zero": np.uint8(3)}),
        ("DequantizeLinear", {"x": np.int8(-9), "scale": 0.1, "zero": np.int8(3)}),
        ("DynamicQuantizeLinear", {"x": 0.7}),
        ("GatherND", {"x": [1.5, 2.5], "indices": np.array([1])}),
    ],
)
def test_results_without_axes(op_type, feeds):
    kinds = {float: np.float32, list: np.float32}
    arrays = {name: np.array(v, kinds.get(type(v))) for name, v in feeds.items()}
    outputs = 3 if op_type == "DynamicQuantizeLinear" else 1
    agree(single(op_type, arrays, outputs=outputs), arrays)


@quick
@given(st.integers(0, 255), st.integers(1, 40))
def test_integer_products_are_exact(zero, depth):
    rng = np.random.default_rng(6)
    feeds = {
        "a": rng.integers(0, 256, (3, depth), np.uint8),
        "b": rng.integers(*SEVEN_BITS, (depth, 4), np.int8),
        "az": np.array(zero, np.uint8),
    }
    agree(single("MatMulInteger", feeds), feeds, rtol=0, atol=0)
    exact = (feeds["a"].astype(int) - zero) @ feeds["b"].astype(int)
    result = Interpreter(single("MatMulInteger", feeds)).run(None, feeds)[0]
    assert (result == exact).all()


@pytest.mark.parametrize("opset", [7, 9, 10, 11, 12, 13])
def test_the_mask_of_dropout_in_inference(opset):
    mask = "float" if opset < 10 else "bool"
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}]>'
        f"g (float[2,3] x) => (float[2,3] y, {mask}[2,3] m) {{ y, m = Dropout (x) }}"
    )
    agree(model, {"x": normal(2, 3)})


@pytest.mark.parametrize("opset", [7, 11, 13])
@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_of_every_age(op_type, opset, axis):
    if opset < 11 and axis < 0:
        axis = 2
    feeds = {"x": normal(2, 3, 4)}
    agree(single(op_type, feeds, opset=opset, axis=axis), feeds)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
@pytest.mark.parametrize("pads", [[1, 2, 0, 1], [-1, 1, 1, -2], [0, 0, 0, 0]])
def test_padding_and_cropping(mode, pads):
    feeds = {"x": normal(3, 4), "pads": np.array(pads)}
    agree(single("Pad", feeds, mode=mode), feeds)


@pytest.mark.parametrize("size", [31, 300_000])
@pytest.mark.parametrize(
    "op_type",
    ["Erf", "Gelu", "Sigmoid", "Tanh", "Elu", "Selu", "Softplus", "HardSwish", "Relu", "Mish"],
)
def test_activations_in_one_block_and_in_many(op_type, size):
    feeds = {"x": normal(3, size) * 4}
    agree(single(op_type, feeds), feeds, rtol=2e-5, atol=2e-6)


@quick
@given(st.integers(-7, 7), st.integers(1, 5), st.booleans())
def test_integer_division_and_remainder(numerator, divisor, negative):
    signed = -divisor if negative else divisor
    feeds = {"a": np.array([numerator], np.int32), "b": np.array([signed], np.int32)}
    agree(single("Div", feeds), feeds)
    agree(single("Mod", feeds, fmod=0), feeds)


@pytest.mark.parametrize("op_type", ["Sum", "Mean", "Max", "Min"])
@pytest.mark.parametrize("count", [33, 70])
def test_operators_of_many_inputs(op_type, count):
    shapes = [(3, 1), (1, 4)]
    feeds = {f"x{i}": normal(*shapes[i % 2], seed=i) for i in range(count)}
    agree(single(op_type, feeds), feeds)
