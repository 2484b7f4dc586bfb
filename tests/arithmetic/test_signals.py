"""Fourier transforms, sampled images, norms of windows and classical models have all bits."""

import numpy as np
import pytest
from onnx import helper

from tests.examples import at_night
from tracer.arithmetic.kernel import Kernel, NotKnown, are_equal, parts, reveal
from tracer.arithmetic.replays import replay_of

FLOAT = np.dtype(np.float32)
CLASSICAL = "ai.onnx.ml"


def check(
    op_type, shapes, opset=20, stored=(), names=None, domain="", outputs=("y",), **attributes
):
    """Asserts that onnxruntime's bits are replayed on values that revealed nothing."""
    stored = dict(stored)
    computed = {f"x{place}": (FLOAT, shape) for place, shape in enumerate(shapes)}
    node = helper.make_node(
        op_type, names or [*computed, *stored], list(outputs), domain=domain, **attributes
    )
    kernel = Kernel(node, computed, stored, {"": opset, CLASSICAL: 1}, 2)
    replay = replay_of(domain, op_type)
    rule = reveal(replay, kernel)
    for turn in range(3):
        inputs = kernel.draw(np.random.default_rng(7), turn)
        results = parts(kernel.run(inputs)), parts(replay.replay(kernel, rule.facts, inputs))
        assert all(are_equal(*pair).all() for pair in zip(*results, strict=True))
    return rule


@pytest.mark.parametrize(
    ("length", "axis"),
    at_night([(1, 1), (64, 2), (6, 1), (31, 2), (100, 1)], but=[(64, 2), (31, 2)]),
)
@pytest.mark.parametrize(("width", "inverse", "onesided"), [(1, 0, 0), (1, 0, 1), (2, 1, 0)])
def test_transforms(length, axis, width, inverse, onesided):
    shape = [3, 5, 7, width]
    shape[axis] = length
    check("DFT", [tuple(shape)], 17, axis=axis, inverse=inverse, onesided=onesided)


@pytest.mark.parametrize("length", [8, 12, 24, 32])
def test_signals_are_cut_or_padded(length):
    stored = {"n": np.array(length), "axis": np.array(1)}
    rule = check("DFT", [(3, 17, 1)], stored=stored)
    assert ("Bluestein" in rule.text) == (length in (12, 24))


@pytest.mark.parametrize("length", [64, 50])
def test_frames(length):
    window = np.hanning(length).astype(np.float32)
    stored = {"step": np.array(13), "window": window}
    check("STFT", [(2, 400)], stored=stored)
    check("STFT", [(2, 400, 1)], stored=stored, onesided=0)
    stored = {"step": np.array(13), "length": np.array(length)}
    check("STFT", [(2, 300, 2)], stored=stored, names=["x0", "step", "", "length"], onesided=0)
    with pytest.raises(NotKnown, match="windows of complex signals"):
        stored = {"step": np.array(13), "window": window}
        check("STFT", [(2, 300, 2)], stored=stored, onesided=0)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("rank", [2, 3])
def test_sampled_images(mode, padding, align, rank):
    if (mode, rank) == ("cubic", 3):
        pytest.skip("onnxruntime has none")
    shapes = [(2, 3, 4, 7, 9)[: 2 + rank], (*(2, 5, 6, 3)[: 1 + rank], rank)]
    check("GridSample", shapes, mode=mode, padding_mode=padding, align_corners=align)


@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [3, 2], "p": 3, "strides": [2, 2], "pads": [1, 1, 1, 0]},
        {"kernel_shape": [3, 2], "dilations": [2, 1], "p": 1},
        {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"},
    ],
)
def test_norms_of_windows(attributes):
    check("LpPool", [(2, 3, 12, 11)], **attributes)
    check("GlobalLpPool", [(2, 3, 12, 11)], p=attributes.get("p", 2))


def test_places_of_the_largest_numbers():
    for order in (0, 1):
        attributes = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "storage_order": order}
        check("MaxPool", [(2, 3, 7, 9)], outputs=("y", "places"), **attributes)


def test_a_window_of_the_whole_map_with_padding():
    check("AveragePool", [(2, 3, 5, 5)], kernel_shape=[5, 5], pads=[2, 2, 2, 2])


def test_a_choice_loses_the_sign_of_zeros():
    condition = np.arange(63).reshape(7, 9) % 3 > 0
    names = ["condition", "x0", "x1"]
    rule = check("Where", [(7, 9), (7, 9)], stored={"condition": condition}, names=names)
    assert rule.facts


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
@pytest.mark.parametrize("shape", [(7, 30), (30,)])
def test_norms_of_rows(norm, shape):
    check("Normalizer", [shape], domain=CLASSICAL, norm=norm)


@pytest.mark.parametrize("count", [3, 7])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_linear_models(transform, count):
    weights = np.random.default_rng(0).standard_normal(64 * count).astype(np.float32).tolist()
    own = {"coefficients": weights, "post_transform": transform, "domain": CLASSICAL}
    for rows in (1, 7):
        check("LinearRegressor", [(rows, 64)], targets=count, **own)
        names = [*"abcdefg"][:count]
        for labels in ({"classlabels_ints": [*range(count)]}, {"classlabels_strings": names}):
            model = {**own, **labels, "intercepts": weights[:count]}
            check("LinearClassifier", [(rows, 64)], outputs=("label", "scores"), **model)


def test_a_single_target_with_a_transform_is_not_known():
    own = {"coefficients": [1.0] * 8, "targets": 1, "post_transform": "LOGISTIC"}
    with pytest.raises(NotKnown, match="single target"):
        check("LinearRegressor", [(3, 8)], domain=CLASSICAL, **own)


@pytest.mark.parametrize("names", [["x"], ["x", "", "most"]])
def test_a_clip_without_a_limit_clips_infinity(names):
    stored = {name: np.float32(1) for name in names[2:]}
    node = helper.make_node("Clip", names, ["y"])
    kernel = Kernel(node, {"x": (FLOAT, (5,))}, stored, {"": 13}, 1)
    inputs = {"x": np.array([np.inf, -np.inf, np.nan, -0.0, 3], np.float32)}
    replay = replay_of("", "Clip")
    (out,) = replay.replay(kernel, reveal(replay, kernel).facts, inputs)
    assert are_equal(kernel.run(inputs)[0], out).all()


@pytest.mark.parametrize("alpha", [1.0, 1.702])
def test_a_quotient_near_one_is_limited_where_the_kernel_limits_it(alpha):
    node = helper.make_node("QuickGelu", ["x"], ["y"], domain="com.microsoft", alpha=alpha)
    kernel = Kernel(node, {"x": (FLOAT, (1 << 16,))}, {}, {"": 17, "com.microsoft": 1}, 1)
    x = np.linspace(9, 19, 1 << 16, dtype=np.float32)
    replay = replay_of("com.microsoft", "QuickGelu")
    (out,) = replay.replay(kernel, reveal(replay, kernel).facts, {"x": x})
    assert are_equal(kernel.run({"x": x})[0], out).all()
