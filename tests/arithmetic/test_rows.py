"""Softmax and normalisations of rows are replayed with onnxruntime's bits."""

import numpy as np
import pytest
from onnx import helper

from tracer.arithmetic.kernel import Kernel, are_equal, reveal
from tracer.arithmetic.kernels.rows import MOMENTS, VECTORS, WELFORD
from tracer.arithmetic.replays import replay_of
from tracer.interpreter.compiled_code import loaded

FLOAT = np.dtype(np.float32)
MICROSOFT = "com.microsoft"


def outputs(op_type, shapes, attributes, opset, domain="", names=("y",)):
    """Returns onnxruntime's outputs, the replayed ones, and the facts of the rule."""
    random = np.random.default_rng(3)
    inputs = [f"x{place}" for place in range(len(shapes))]
    node = helper.make_node(op_type, inputs, list(names), domain=domain, **attributes)
    stored = {
        name: random.standard_normal(shape).astype(np.float32)
        for name, shape in zip(inputs, shapes, strict=True)
        if len(shape) == 1
    }
    computed = {n: (FLOAT, s) for n, s in zip(inputs, shapes, strict=True) if n not in stored}
    opsets = {"": opset, **({domain: 1} if domain else {})}
    kernel = Kernel(node, computed, stored, opsets, threads=2)
    replay = replay_of(domain, op_type)
    rule = reveal(replay, kernel)
    drawn = {name: 5 * value + 2 for name, value in kernel.draw(random).items()}
    return kernel.run(drawn), replay.replay(kernel, rule.facts, drawn), rule.facts


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(
    ("shape", "axis", "opset"),
    [((2, 3), -1, 13), ((9, 197), -1, 13), ((3, 50, 16), 1, 13), ((3, 5, 64), 1, 11)],
)
def test_softmax(op_type, shape, axis, opset):
    real, replayed, _ = outputs(op_type, [shape], {"axis": axis}, opset)
    assert are_equal(real[0], replayed[0]).all()


@pytest.mark.parametrize("mask", [-1e4, -90.0, np.finfo(np.float32).min, -np.inf])
def test_softmax_of_masked_numbers(mask):
    node = helper.make_node("Softmax", ["x"], ["y"])
    kernel = Kernel(node, {"x": (FLOAT, (40, 37))}, {}, {"": 13})
    replay = replay_of("", "Softmax")
    rule = reveal(replay, kernel)
    random = np.random.default_rng(0)
    x = random.standard_normal((40, 37)).astype(np.float32)
    x[random.random(x.shape) < 0.5] = mask
    outputs = kernel.run({"x": x}), replay.replay(kernel, rule.facts, {"x": x})
    assert are_equal(outputs[0][0], outputs[1][0]).all()


@pytest.mark.parametrize("width", [3, 8, 15, 64, 71, 768])
@pytest.mark.parametrize("is_centred", [True, False])
def test_layer_normalization(width, is_centred):
    op_type = "LayerNormalization" if is_centred else "RMSNormalization"
    shapes = [(2, 9, width), *[(width,)] * (1 + is_centred)]
    names = ("y", "mean", "inverse") if is_centred else ("y",)
    real, replayed, facts = outputs(op_type, shapes, {}, 17 if is_centred else 23, names=names)
    assert all(are_equal(*pair).all() for pair in zip(real, replayed, strict=True))
    assert (facts["way"] == VECTORS) == (width >= (8 if is_centred else 16))


@pytest.mark.parametrize("op_type", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
@pytest.mark.parametrize("has_bias", [True, False])
def test_skip(op_type, has_bias):
    vectors = 1 + has_bias + (op_type == "SkipLayerNormalization")
    shapes = [(2, 9, 71), (2, 9, 71), *[(71,)] * vectors]
    names = ("y", "", "", "sum")
    real, replayed, _ = outputs(op_type, shapes, {"epsilon": 1e-5}, 17, MICROSOFT, names)
    assert all(are_equal(*pair).all() for pair in zip(real, replayed, strict=True))


@pytest.mark.parametrize("way", [VECTORS, WELFORD, MOMENTS])
def test_every_way_normalizes(way):
    """Ways that no kernel of this release takes are near the definition, in float64."""
    x = np.random.default_rng(0).standard_normal((20, 37)).astype(np.float32)
    out, statistics = np.empty_like(x), np.empty((2, 20), np.float32)
    ones = np.ones(37, np.float32)
    settings = way, True, np.float32(1e-5)
    kernels = loaded("rows", "tracer.arithmetic.kernels")
    kernels.normalize(x, ones, ones, settings, out, statistics)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) + 1
    assert np.abs(out - expected).max() < 2e-6
