"""Numbers at the ends of their range, in operators that leave it early: as in onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.interpreter.models import agree, onnxruntime, single
from tracer.interpreter.interpreter import Interpreter

NUMBERS = (
    0, -0.0, 1e-45, 1e-30, 1e-7, 0.5, 1, 3, 17, 88.7, 89, 104, 128.5, 709, 745, 1e4, 65504, 1e20,
    1e38, 3.4e38,
)  # fmt: skip
HALF = [number for number in NUMBERS if number <= 65504]


def rows(width, dtype, seed=0):
    """Rows of finite numbers, far apart."""
    numbers = np.array(HALF if dtype == np.float16 else NUMBERS, dtype)
    drawn = np.random.default_rng(seed).choice(numbers, (60, width))
    return drawn * np.random.default_rng(seed + 1).choice([-1, 1], drawn.shape).astype(dtype)


def close(model, feeds, rtol):
    for ours, theirs in zip(Interpreter(model).run(None, feeds), onnxruntime(model, feeds),
                            strict=True):  # fmt: skip
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours.astype("d"), theirs.astype("d"), rtol, 1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("more", [(), ("w",), ("ignored",)], ids=["", "weights", "ignored"])
@pytest.mark.filterwarnings("ignore")
def test_losses_of_certain_classes_are_finite(dtype, reduction, more):
    feeds = {"x": rows(5, dtype), "t": np.random.default_rng(2).integers(0, 5, 60)}
    if dtype != np.float16:
        feeds["x"] = np.clip(feeds["x"], -1e9, 1e9)  # sums of these are not infinite
    else:
        feeds["x"] = np.clip(feeds["x"], -100, 100)
    if "w" in more:
        feeds["w"] = np.array([1, 2, 0.5, 3, 0.25], dtype)
    rest = {"ignore_index": 2} if "ignored" in more else {}
    model = single("SoftmaxCrossEntropyLoss", feeds, 2, reduction=reduction, **rest)
    rtol = 1e-4 if dtype != np.float16 else 5e-3
    close(model, feeds, rtol)
    feeds["x"] = np.minimum(feeds["x"], 0)
    close(single("NegativeLogLikelihoodLoss", feeds, reduction=reduction, **rest), feeds, rtol)


def test_a_loss_that_the_softmax_cannot_hold_is_right():
    x = np.array([[0, 128.5], [0, 99], [0, 5]], np.float32)
    feeds = {"x": x, "t": np.zeros(3, np.int64)}
    loss, _ = Interpreter(single("SoftmaxCrossEntropyLoss", feeds, 2, reduction="none")).run(
        None, feeds
    )
    np.testing.assert_allclose(loss, [128.5, 99, np.log1p(np.exp(5.0))], 1e-6)


@pytest.mark.parametrize("op_type", [
    "ReduceLogSumExp", "ReduceLogSum", "ReduceL1", "ReduceL2", "ReduceSumSquare",
])  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.filterwarnings("ignore")
def test_folds_of_large_numbers(op_type, dtype):
    x = np.abs(rows(4, dtype))
    close(single(op_type, {"x": x}), {"x": x}, 5e-3 if dtype == np.float16 else 1e-4)
    feeds = {"x": x, "axes": np.array([1])}
    close(single(op_type, feeds), feeds, 5e-3 if dtype == np.float16 else 1e-4)


@pytest.mark.parametrize("op_type", [
    "Gelu", "Softplus", "Mish", "LogSoftmax", "Softmax", "Softsign", "ThresholdedRelu",
    "HardSwish", "Erf", "Tanh",
])  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.filterwarnings("ignore")
def test_activations_of_extreme_numbers(op_type, dtype):
    x = rows(9, dtype)
    close(single(op_type, {"x": x}), {"x": x}, 5e-3 if dtype == np.float16 else 1e-4)


def test_a_threshold_drops_infinity_below_it_and_nan():
    x = np.array([-np.inf, np.nan, np.inf, 0.5, 2], np.float32)
    (result,) = Interpreter(single("ThresholdedRelu", {"x": x})).run(None, {"x": x})
    np.testing.assert_array_equal(result, [0, 0, np.inf, 0, 2])


def test_means_of_half_precision_do_not_leave_its_range():
    feeds = {"x": np.full(3, 65504, np.float16), "y": np.full(3, 65504, np.float16)}
    agree(single("Mean", feeds), feeds)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.filterwarnings("ignore")
def test_positions_beyond_all_integers(mode, padding, corners):
    far = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 1e6], np.float32)
    grid = np.stack([far, np.roll(far, 1)], -1).reshape(1, 2, 3, 2)
    feeds = {"x": np.arange(1, 10, dtype=np.float32).reshape(1, 1, 3, 3), "grid": grid}
    model = single("GridSample", feeds, mode=mode, padding_mode=padding, align_corners=corners)
    agree(model, feeds)


BOXES = {
    "none": (), "most": ("most",), "a threshold": ("most", "iou"),
    "scores": ("most", "iou", "score"), "no threshold": ("most", None, "score"),
}  # fmt: skip


@pytest.mark.parametrize("given", BOXES.values(), ids=BOXES)
@pytest.mark.parametrize("centred", [0, 1])
def test_boxes_are_kept_with_any_inputs_left_out(given, centred):
    random, one = np.random.default_rng(0), np.float32
    boxes, scores = random.random((2, 40, 4), one), random.random((2, 3, 40), one).round(1)
    values = {"most": np.array([7]), "iou": np.array([0.3], one), "score": np.array([0.4], one)}
    feeds = {"boxes": boxes, "scores": scores}
    feeds |= {name or f"none{at}": values.get(name) for at, name in enumerate(given)}
    agree(single("NonMaxSuppression", feeds, center_point_box=centred), feeds)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_one_pixel_is_the_first_one_as_pytorch_takes_it(mode, size):
    feeds = {"x": np.random.default_rng(3).random((1, 1, 4, 4), np.float32), "roi": None,
             "scales": None, "sizes": np.array([1, 1, 1, size])}  # fmt: skip
    model = single("Resize", feeds, mode=mode, coordinate_transformation_mode="pytorch_half_pixel")
    agree(model, feeds)


@pytest.mark.parametrize("opset", [18, 19, 20, 21])
def test_groups_have_scales_of_their_own_before_opset_21(opset):
    random, size = np.random.default_rng(0), 2 if opset < 21 else 4
    feeds = {"x": random.standard_normal((2, 4, 3, 3)), "s": random.random(size),
             "b": random.random(size)}  # fmt: skip
    feeds = {name: value.astype(np.float32) for name, value in feeds.items()}
    node = helper.make_node("GroupNormalization", list(feeds), ["y"], num_groups=2)
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info(n, 1, v.shape) for n, v in feeds.items()],
        [onnx.ValueInfoProto(name="y")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset)]
    agree(helper.make_model(graph, opset_imports=opsets, ir_version=9), feeds)
