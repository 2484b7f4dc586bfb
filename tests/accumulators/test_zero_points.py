"""Operands that keep their zero points while they are summed, as in libraries for bytes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.accumulators import nodes
from tests.accumulators.nodes import model, saturated
from tests.interpreter.models import onnxruntime
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import named
from tracer.accumulators.spec.policy import Policy
from tracer.errors import ModelError
from tracer.interpreter.interpreter import Interpreter
from tracer.records import environment

RANDOM = np.random.default_rng(11)


def narrowed(proto: onnx.ModelProto, accumulator: Accumulator, x: np.ndarray) -> np.ndarray:
    return nodes.narrowed(proto, Policy.of(accumulator), x)[0]


@pytest.mark.parametrize("bits", [12, 16, 20, 40])
@pytest.mark.parametrize(("x_zero", "w_zero"), [(130, 0), (0, -5), (200, 7)])
def test_products_of_matrices_as_they_are_stored(bits, x_zero, w_zero):
    x = RANDOM.integers(0, 256, (5, 30)).astype(np.uint8)
    w = RANDOM.integers(-128, 128, (30, 4)).astype(np.int8)
    zeros = {"p": np.uint8(x_zero), "q": np.int8(w_zero)}
    body = "(uint8[5,30] x) => (int32[r,c] y) { y = MatMulInteger (x, w, p, q) }"
    proto = model(body, w=w, **zeros)
    output = narrowed(proto, Accumulator(bits, zero_points="after"), x)
    wide, tall = x.astype(np.int64), w.astype(np.int64)
    for i, j in np.ndindex(*output.shape):
        off = -x_zero * tall[:, j].sum() - w_zero * wide[i].sum() + 30 * x_zero * w_zero
        assert output[i, j] == saturated(wide[i] * tall[:, j], bits) + off


@pytest.mark.parametrize("bits", [12, 16, 40])
def test_padding_is_the_zero_point(bits):
    x = RANDOM.integers(0, 256, (1, 2, 4, 4)).astype(np.uint8)
    w = RANDOM.integers(-128, 128, (3, 2, 3, 3)).astype(np.int8)
    body = "{ y = ConvInteger <pads = [1,1,1,1]> (x, w, p) }"
    proto = model(f"(uint8[1,2,4,4] x) => (int32[a,b,c,d] y) {body}", w=w, p=np.uint8(9))
    output = narrowed(proto, Accumulator(bits, zero_points="after"), x)
    padded = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=9)
    for _, m, i, j in np.ndindex(*output.shape):
        products = padded[0, :, i : i + 3, j : j + 3] * w[m].astype(np.int64)
        total = saturated(products.ravel(), bits)
        assert output[0, m, i, j] == total - 9 * w[m].astype(np.int64).sum()


def test_dequantised_operands_keep_theirs_too():
    x, w = RANDOM.normal(0, 3, (4, 20)).astype(np.float32), RANDOM.integers(-128, 128, (20, 3))
    proto = model(
        """(float[4,20] x) => (float[r,c] y) {
          xq = QuantizeLinear (x, s, p)
          xd = DequantizeLinear (xq, s, p)
          wd = DequantizeLinear (w, s, z)
          y = MatMul (xd, wd)
        }""",
        w=w.astype(np.int8), s=np.float32(0.0625), p=np.uint8(128), z=np.int8(0),
    )  # fmt: skip
    output = narrowed(proto, Accumulator(15, zero_points="after"), x)
    stored = np.clip(np.rint(x / 0.0625) + 128, 0, 255).astype(np.int64)
    for i, j in np.ndindex(*output.shape):
        total = saturated(stored[i] * w[:, j], 15) - 128 * w[:, j].sum()
        assert output[i, j] == np.float32(total * 0.0625**2)


def test_several_zero_points_cannot_be_taken_off_after():
    body = "(uint8[2,3] x) => (int32[r,c] y) { y = MatMulInteger (x, w, p, q) }"
    zeros = {"p": np.uint8(1), "q": np.array([1, 2], np.int8)}
    proto = model(body, w=np.ones((3, 2), np.int8), **zeros)
    with pytest.raises(ModelError, match="several zero points"):
        narrowed(proto, Accumulator(16, zero_points="after"), np.ones((2, 3), np.uint8))


@pytest.mark.skipif(
    "avx2" not in environment.cpu_flags() or "vnni" in " ".join(environment.cpu_flags()),
    reason="with VNNI, or without AVX2, onnxruntime adds pairs of products exactly",
)
@pytest.mark.parametrize("zero", [0, 77, 128])
def test_maddubs_is_what_onnxruntime_computes_without_vnni(zero):
    x = RANDOM.integers(0, 256, (9, 37)).astype(np.uint8)
    w = RANDOM.integers(-128, 128, (37, 6)).astype(np.int8)
    proto = model("(uint8[9,37] x) => (int32[r,c] y) { y = MatMulInteger (x, w, p) }",
                  w=w, p=np.uint8(zero))  # fmt: skip
    accumulator = Accumulator(32, order=named("maddubs"), zero_points="after")
    theirs = onnxruntime(proto, {"x": x})[0]
    np.testing.assert_array_equal(narrowed(proto, accumulator, x), theirs)
    assert (Interpreter(proto).run(None, {"x": x})[0] != theirs).any()
