"""What the SQNR of a whole tensor hides: channels that are lost, and the Concat that loses them."""

from __future__ import annotations

import re

import numpy as np
import onnx.parser
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from tracer.graph import loading
from tracer.quantization.layers import Noise, losses
from tracer.quantization.options import QuantizationOptions as Options
from tracer.quantization.quantizer import quantize

DETECTOR = """<ir_version: 8, opset_import: ["": 17]>
detector (float[N,4,8,8] x) => (float[N,6,64] y) {
  [boxes] b = Conv (x, wb)
  [classes] c = Conv (x, wc)
  [sigmoid] s = Sigmoid (c)
  [flat_boxes] fb = Reshape (b, to4)
  [flat_scores] fs = Reshape (s, to2)
  [join] y = Concat <axis = 1> (fb, fs)
}"""
"""Boxes within some 0 to 640 and scores within 0 to 1, in one output."""


def detector(size: float = 220) -> onnx.ModelProto:
    proto, random = onnx.parser.parse_model(DETECTOR), np.random.default_rng(0)
    weights = {
        "wb": random.uniform(0.2 * size, size, (4, 4, 1, 1)).astype(np.float32),
        "wc": random.normal(0, 2, (2, 4, 1, 1)).astype(np.float32),
        "to4": np.array([0, 4, 64]),
        "to2": np.array([0, 2, 64]),
    }
    proto.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in weights.items())
    return proto


@pytest.fixture(scope="module")
def samples():
    random = np.random.default_rng(1)
    return [{"x": random.random((8, 4, 8, 8), np.float32)} for _ in range(3)]


def by_onnxruntime(proto, samples):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(proto.SerializeToString(), options)
    return np.concatenate([session.run(None, feeds)[0] for feeds in samples]).astype(np.float64)


def sqnr_of_channels(wide, narrow):
    return 10 * np.log10((wide**2).sum((0, 2)) / ((wide - narrow) ** 2).sum((0, 2)))


@pytest.mark.parametrize("format_", ["qdq", "qoperator"])
def test_scores_that_onnxruntime_computes_as_zero_are_told(samples, format_):
    model = loading.from_proto(detector())
    quantized = quantize(model, samples, Options(format=format_))
    wide, narrow = by_onnxruntime(model.proto, samples), by_onnxruntime(quantized.proto, samples)
    assert wide[:, 4:].max() > 0.9
    assert not narrow[:, 4:].any()  # the steps are wider than 1
    (output,) = quantized.outputs
    assert output.sqnr_db > 40
    worst, expected = output.worst_channel, sqnr_of_channels(wide, narrow)
    assert (worst.axis, worst.lost, worst.count) == (1, 2, 6)
    assert worst.index in (4, 5)
    assert worst.sqnr_db == pytest.approx(expected.min(), abs=0.01)
    join = {layer.node: layer for layer in quantized.layers}["join"]
    assert join.worst_channel == worst
    concat, lost = quantized.notes[-2:]
    assert re.match(r"Concat 'join' joins values of unlike ranges .* 'fs', from 0 to 0\.9", concat)
    assert "--exclude 'join'" in concat
    assert "output 'y' loses 2 of its 6 channels (axis 1)" in lost
    assert f"{output.sqnr_db:.1f} dB of the whole output" in lost


@pytest.mark.parametrize("format_", ["qdq", "qoperator"])
def test_what_the_note_advises_keeps_the_scores(samples, format_):
    model = loading.from_proto(detector())
    options = Options(format=format_, exclude=("join",), reduce_range=True)
    quantized = quantize(model, samples, options)
    narrow = by_onnxruntime(quantized.proto, samples)
    expected = sqnr_of_channels(by_onnxruntime(model.proto, samples), narrow)
    assert expected.min() > 30
    (output,) = quantized.outputs
    assert output.worst_channel.lost == 0
    assert output.worst_channel.sqnr_db == pytest.approx(expected.min(), abs=0.5)
    assert not any("Concat" in note or "loses" in note for note in quantized.notes)


def test_channels_at_the_end_of_an_image_are_found_lost(samples):
    proto = onnx.parser.parse_model(CHANNELS_LAST)
    proto.graph.initializer.extend(detector().graph.initializer[:2])
    model = loading.from_proto(proto)
    quantized = quantize(model, samples)
    wide, narrow = (by_onnxruntime(each, samples) for each in (model.proto, quantized.proto))
    assert not narrow[..., 4:].any()
    (output,) = quantized.outputs
    worst = output.worst_channel
    assert (worst.axis, worst.lost, worst.count) == (3, 2, 6)
    shares = ((wide - narrow) ** 2).sum((0, 1, 2)) / (wide**2).sum((0, 1, 2))
    assert worst.sqnr_db == pytest.approx(-10 * np.log10(shares.max()), abs=0.01)


CHANNELS_LAST = """
<ir_version: 8, opset_import: ["": 17]>
detector (float[N,4,8,8] x) => (float[N,8,8,6] y) {
  b = Conv (x, wb)
  c = Conv (x, wc)
  s = Sigmoid (c)
  j = Concat <axis = 1> (b, s)
  y = Transpose <perm = [0, 2, 3, 1]> (j)
}"""


def test_like_ranges_and_finer_types_give_no_note(samples):
    alike = quantize(loading.from_proto(detector(1)), samples)
    wide_types = Options(activation_type="uint16", weight_type="int16")
    finer = quantize(loading.from_proto(detector()), samples, wide_types)
    for quantized in (alike, finer):
        assert not any("Concat" in note or "loses" in note for note in quantized.notes)


def test_many_joins_are_told_by_three_notes_and_one(samples):
    proto = detector()
    for copy in range(4):
        name = f"join{copy}"
        node = onnx.helper.make_node("Concat", ["fb", "fs"], [f"z{copy}"], name, axis=1)
        proto.graph.node.append(node)
        output = onnx.helper.make_tensor_value_info(f"z{copy}", 1, ["N", 6, 64])
        proto.graph.output.append(output)
    quantized = quantize(loading.from_proto(proto), samples[:1], Options(exclude=("join",)))
    joins = [note for note in quantized.notes if "Concat" in note]
    assert [note.partition(" joins")[0] for note in joins[:3]] == [
        f"Concat 'join{copy}'" for copy in range(3)
    ]
    assert joins[3].startswith("1 more Concat joins")
    assert [output.output for output in quantized.outputs] == ["y", "z0", "z1", "z2", "z3"]


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((9,), None), ((9, 5), 1), ((9, 5, 7), 1), ((9, 7, 5), 2), ((9, 5, 7, 3), 1)],
)
def test_a_lost_slice_is_found_along_the_axes_that_may_have_channels(shape, axis):
    values = np.random.default_rng(2).normal(10, 1, shape)
    errors = np.full(shape, 0.01)
    noise = Noise()
    if axis is not None:
        slices = np.moveaxis(values, axis, 0), np.moveaxis(errors, axis, 0)
        slices[0][3] = slices[1][3] = 0.5  # as when a channel has become 0
    noise.add(values, errors)
    worst = noise.worst_channel
    if axis is None:
        assert worst is None
    else:
        assert (worst.axis, worst.index, worst.lost, worst.count) == (axis, 3, 1, 5)
        assert worst.sqnr_db == pytest.approx(0, abs=1e-9)


def test_an_axis_whose_size_differs_between_batches_has_no_channels():
    noise = Noise()
    for length in (7, 8, 7):
        noise.add(np.ones((2, 3, length)), np.full((2, 3, length), 0.1))
    assert (noise.worst_channel.axis, noise.worst_channel.count) == (1, 3)
    assert noise.worst_channel.sqnr_db == pytest.approx(20)
    assert noise.share == pytest.approx(0.01)


def test_infinite_values_do_not_count_and_silent_channels_are_exact():
    text = "(float[N,2] x) => (float[N,2] y) { [z] z = Reciprocal (x)  [y] y = Neg (z) }"
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {text}')
    feeds = {"x": np.array([[0, np.inf], [2, np.inf]], np.float32)}
    model = loading.from_proto(proto)
    (output,) = losses(model, model, [feeds]).outputs
    assert (output.sqnr_db, output.worst_channel.sqnr_db) == (np.inf, np.inf)
    assert output.worst_channel.lost == 0
