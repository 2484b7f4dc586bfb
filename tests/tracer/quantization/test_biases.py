"""Biases that break onnxruntime's quantizer, or that it scales wrongly, against the float model."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

import tracer
from tests.interpreter.models import onnxruntime
from tracer.errors import ModelError
from tracer.graph import loading
from tracer.quantization.options import QuantizationOptions as Options
from tracer.quantization.quantizer import quantize

FORMATS = [
    Options(),
    Options(per_channel=False),
    # 7 bits: products of 8 bits saturate in pairs on some processors
    Options(format="qoperator", reduce_range=True),
    Options(format="qoperator", reduce_range=True, per_channel=False),
]
SHARED = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,3,6,6] x, float[1,3,6,6] z) => (float[1,4,4,4] y) {
  [one] b0 = Conv (x, w, b)  [two] c = Conv (z, w, b)  [sum] y = Add (b0, c)
}"""
ROW = """<ir_version: 8, opset_import: ["": 17]>
g (float[5,6] x) => (float[5,4] y) { [y] y = Gemm <transB = TRANSPOSED> (x, w, b) }"""


def model(text: str, **stored: np.ndarray) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(text)
    arrays = ((name, np.asarray(value, np.float32)) for name, value in stored.items())
    proto.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in arrays)
    return proto


def sqnr_db(proto: onnx.ModelProto, quantized: onnx.ModelProto, feeds) -> float:
    """Of the first output, both models run by onnxruntime."""
    wide, narrow = (onnxruntime(each, feeds)[0] for each in (proto, quantized))
    return float(10 * np.log10(np.square(wide).sum() / np.square(wide - narrow).sum()))


@pytest.mark.parametrize("options", FORMATS, ids=str)
def test_a_shared_bias_has_the_scale_of_each_node_and_no_name_that_is_taken(options):
    """The quantizer's copy of `b` is called `b0`, as the output of the first convolution is."""
    random = np.random.default_rng(0)
    proto = model(SHARED, w=random.normal(0, 0.3, (4, 3, 3, 3)), b=[9, -7, 5, 8])
    feeds = {
        "x": random.normal(0, 0.1, (1, 3, 6, 6)).astype(np.float32),
        "z": random.normal(0, 4, (1, 3, 6, 6)).astype(np.float32),
    }
    quantized = quantize(loading.from_proto(proto), [feeds], options)
    assert sqnr_db(proto, quantized.proto, feeds) > 30
    assert not any("float" in note for note in quantized.notes)


@pytest.mark.parametrize("options", FORMATS, ids=str)
@settings(max_examples=4, deadline=None)
@given(shape=st.sampled_from([(4,), (1, 4), (1,), (), (1, 1)]), transposed=st.booleans())
def test_a_row_is_the_bias_of_each_channel(options, shape, transposed):
    random = np.random.default_rng(1)
    weight = random.normal(0, 1, (4, 6) if transposed else (6, 4))
    text = ROW.replace("TRANSPOSED", str(int(transposed)))
    proto = model(text, w=weight, b=random.normal(0, 5, shape))
    feeds = {"x": random.normal(0, 1, (5, 6)).astype(np.float32)}
    quantized = quantize(loading.from_proto(proto), [feeds], options)
    assert sqnr_db(proto, quantized.proto, feeds) > 30
    kept = [weight.data_type for weight in quantized.proto.graph.initializer if weight.dims]
    assert onnx.TensorProto.INT32 in kept and not any("float" in n for n in quantized.notes)


@pytest.mark.parametrize("options", FORMATS, ids=str)
def test_a_gemm_whose_bias_differs_by_row_stays_in_float_and_is_told(options):
    random = np.random.default_rng(2)
    text = ROW.replace("TRANSPOSED", "0").replace("=> (float[5,4] y) {", "=> (float[5,2] z) {")
    text = text.replace(" }", "  [z] z = Gemm (y, v) }")
    stored = {"w": random.normal(0, 1, (6, 4)), "v": random.normal(0, 1, (4, 2))}
    proto = model(text, b=random.normal(0, 5, (5, 4)), **stored)
    feeds = {"x": random.normal(0, 1, (5, 6)).astype(np.float32)}
    quantized = quantize(loading.from_proto(proto), [feeds], options)
    assert sqnr_db(proto, quantized.proto, feeds) > 30
    told = [
        note for note in quantized.notes if note.startswith("in float: 'y', whose bias differs")
    ]
    assert bool(told) == options.per_channel
    assert any(weight.name == "w" for weight in quantized.proto.graph.initializer) == bool(told)


GROUPS = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,4,5,5] x) => (float[1,6,9,9] y) {
  [one] c = Conv <pads = [1,1,1,1]> (x, v)
  [up] y = ConvTranspose <group = 2, strides = [2,2], pads = [1,1,1,1]> (c, w, b)
}"""


@pytest.mark.parametrize("options", FORMATS, ids=str)
def test_a_transposed_convolution_whose_groups_share_scales_stays_in_float_and_is_told(options):
    """Its bias has six numbers, and its weights three channels: onnxruntime raised ValueError."""
    random = np.random.default_rng(3)
    stored = {"v": random.normal(0, 1, (4, 4, 3, 3)), "w": random.normal(0, 1, (4, 3, 3, 3))}
    proto = model(GROUPS, b=random.normal(0, 9, 6), **stored)
    feeds = {"x": random.normal(0, 1, (1, 4, 5, 5)).astype(np.float32)}
    quantized = quantize(loading.from_proto(proto), [feeds], options)
    assert sqnr_db(proto, quantized.proto, feeds) > 30
    told = [note for note in quantized.notes if note.startswith("in float: 'up', whose bias")]
    assert bool(told) == (options.per_channel and options.format == "qdq")
    data = {"x": np.concatenate([feeds["x"]] * 8)}
    if told:  # a what-if quantises so first
        options = tracer.WhatIfOptions(metric="noise")
        found = tracer.what_if(proto, accumulator="20", data=data, options=options)
        assert any(note.startswith("in float: 'up', whose bias") for note in found.notes)


def test_a_model_whose_only_product_stays_in_float_is_refused_with_its_cause():
    text = GROUPS.replace("[one] c = Conv <pads = [1,1,1,1]> (x, v)", "").replace("(c, w", "(x, w")
    proto = model(text, b=np.ones(6), w=np.ones((4, 3, 3, 3)))
    feeds = {"x": np.ones((1, 4, 5, 5), np.float32)}
    with pytest.raises(ModelError, match=r"the bias of 'up' by channel.*--per-tensor"):
        quantize(loading.from_proto(proto), [feeds], Options())
    per_tensor = quantize(loading.from_proto(proto), [feeds], Options(per_channel=False))
    assert sqnr_db(proto, per_tensor.proto, feeds) > 30
