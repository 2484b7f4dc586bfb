"""A node that differs from onnxruntime because its kernels saturate on this processor."""

import numpy as np
import pytest

import tracer
import tracer.cli
from tests.graphs import parse
from tracer.analyzers.advice.few_bits import saturation_notes
from tracer.records import environment

AVX2, VNNI = ("avx2",), ("avx2", "avx512_vnni")
DYNAMIC = """
<ir_version: 8, opset_import: ["": 17]>
g (uint8[4,8] x) => (int32[4,4] y) { y = MatMulInteger (x, w) }
"""
QUANTISED = """
<ir_version: 8, opset_import: ["": 17]>
g (uint8[4,8] x) => (uint8[4,4] y) { y = QLinearMatMul (x, s, z, w, s, wz, big, z) }
"""
LARGEST = np.full((8, 4), 127, np.int8)  # 2 x 255 x 127 are more than 16 bits hold
SCALES = {
    "s": np.float32(1),
    "z": np.uint8(0),
    "wz": np.int8(0),
    "big": np.float32(2000),
}


def model(text, weights):
    scales = SCALES if text == QUANTISED else {}
    return parse(text, w=weights, **scales)


def interpreted(proto):
    feeds = {"x": np.full((4, 8), 255, np.uint8)}
    return tracer.interpret(proto, inputs=feeds, against="ort")


@pytest.mark.parametrize("text", [DYNAMIC, QUANTISED], ids=["MatMulInteger", "QLinearMatMul"])
def test_products_of_bytes_that_saturate_here_are_doubted(text):
    trace = interpreted(model(text, LARGEST))
    (run,) = trace.runs
    own = [each.node for each in run.values if each.own and each.own.fault]
    saturates = environment.saturates(environment.cpu_flags())
    assert bool(own) == saturates  # the reference is exact
    noted = [note for note in run.notes if "saturates pairs of products" in note]
    assert bool(noted) == saturates
    (kernel,) = run.kernels
    (told,) = saturation_notes(run.kernels, [kernel.node], AVX2)
    assert f"'{kernel.node}' differs" in told
    assert "--accumulator x86-maddubs --optimization all" in told
    assert saturation_notes(run.kernels, [kernel.node], VNNI) == ()
    assert saturation_notes(run.kernels, [], AVX2) == ()


def test_unsigned_weights_do_not_saturate():
    trace = interpreted(model(DYNAMIC, LARGEST.astype(np.uint8)))
    (run,) = trace.runs
    assert saturation_notes(run.kernels, [run.kernels[0].node], AVX2) == ()
