"""MatMulNBits against onnxruntime, whose quantisers pack the weights."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnxruntime.capi import _pybind_state as quantizers

from tests.interpreter.models import fused, normal, onnxruntime, quick
from tests.processors import with_vnni
from tracer.errors import ModelError
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.numeric import tensors

BLOCKS = st.sampled_from([16, 32, 64, 128, 256])
ZEROS = st.sampled_from(["default", "packed", "float"])
QUANTIZE = {
    2: quantizers.quantize_matmul_2bits,
    4: quantizers.quantize_matmul_4bits,
    8: quantizers.quantize_matmul_8bits,
}
ULPS = 4


def quantized(weights, bits, block, zeros="default"):
    """What onnxruntime's quantiser makes of weights [K, N]: the stored inputs of a node."""
    depth, columns = weights.shape
    blocks = -(-depth // block)
    packed = np.zeros((columns, blocks, block * bits // 8), np.uint8)
    scales = np.zeros((columns, blocks), np.float32)
    points = np.zeros((columns, -(-blocks * bits // 8)), np.uint8)
    symmetric = zeros == "default"
    QUANTIZE[bits](packed, np.ascontiguousarray(weights), scales, points, block, columns, depth,
                   symmetric)  # fmt: skip
    stored = {"b": packed, "scales": scales, "zeros": points}
    if symmetric:
        stored["zeros"] = None
    elif zeros == "float":
        stored["zeros"] = tensors.unpacked(points, bits, blocks) + np.float32(0.25)
    return stored


def node(feeds, bits, block, level=0, changes=None):
    weights = feeds["b"]
    shape = {"K": feeds["a"].shape[-1], "N": len(weights), "bits": bits, "block_size": block}
    stored = [name for name in feeds if name != "a" and feeds[name] is not None]
    attributes = shape | {"accuracy_level": level} | (changes or {})
    return fused("MatMulNBits", feeds, stored=stored, **attributes)


def definition(feeds, bits):
    """A (codes - zero points) scales in float64, of unpacked blocks, and the sum of magnitudes."""
    codes = feeds["b"].astype(np.int64)
    per_byte = 8 // bits
    each = np.stack([codes >> bits * i & (1 << bits) - 1 for i in range(per_byte)], axis=-1)
    each = each.reshape(*codes.shape[:2], -1)
    zeros = feeds["zeros"]
    if zeros is None:
        points = np.full(codes.shape[:2], 1 << bits - 1)
    elif zeros.dtype == np.uint8:
        points = np.stack([zeros >> bits * i & (1 << bits) - 1 for i in range(per_byte)], axis=-1)
        points = points.reshape(len(codes), -1)[:, : codes.shape[1]].astype(np.int64)
    else:
        points = zeros
    weights = (each - points[..., None]) * feeds["scales"].astype(np.float64)[..., None]
    weights = weights.reshape(len(codes), -1)[:, : feeds["a"].shape[-1]].T
    wide = feeds["a"].astype(np.float64)
    return wide @ weights, np.abs(wide) @ np.abs(weights)


def fed(feeds):
    return {"a": feeds["a"]}


@quick
@given(
    st.sampled_from([2, 4, 8]), BLOCKS, ZEROS, st.integers(1, 4), st.integers(1, 300),
    st.integers(1, 9), st.booleans(), st.sampled_from([np.float32, np.float16]),
)  # fmt: skip
def test_weights_are_dequantised_block_by_block(bits, block, zeros, rows, depth, columns, biased,
                                                kind):  # fmt: skip
    feeds = {"a": normal(rows, depth), **quantized(normal(depth, columns), bits, block, zeros)}
    if biased:
        feeds |= {"groups": None, "bias": normal(columns, seed=2)}
    wanted, magnitude = definition(feeds, bits)
    feeds = {n: v.astype(kind) if v is not None and v.dtype.kind == "f" else v
             for n, v in feeds.items()}  # fmt: skip
    model = node(feeds, bits, block)
    (result,) = Interpreter(model).run(None, fed(feeds))
    assert result.dtype == kind
    shift = feeds["bias"].astype(np.float64) if biased else 0
    unit = np.finfo(kind).eps * (magnitude + np.abs(shift))
    assert (np.abs(result - wanted - shift) <= ULPS * unit).all()
    if bits == 8 and zeros == "float":
        return  # onnxruntime's CPU has no kernel for it
    (expected,) = onnxruntime(model, fed(feeds))
    assert (np.abs(result.astype(float) - expected.astype(float)) <= ULPS * unit).all()


def has_integer_kernel(bits, block):
    return bits > 2 or block in (32, 64, 128)


@with_vnni
@quick
@given(
    st.sampled_from([2, 4, 8]), BLOCKS, st.sampled_from(["default", "packed"]), st.integers(1, 4),
    st.integers(1, 3), st.integers(1, 9), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_integer_sums_of_blocks_are_onnxruntimes_to_the_last_bit(bits, block, zeros, rows, blocks,
                                                                 columns, seed):  # fmt: skip
    """Activations that are their own codes and scales of powers of 2: every float sum is exact."""
    rng = np.random.default_rng(seed)
    depth = blocks * block
    activations = rng.integers(-127, 128, (rows, blocks, block))
    activations[..., 0] = 127
    feeds = {
        "a": activations.reshape(rows, depth).astype(np.float32),
        "b": rng.integers(0, 256, (columns, blocks, block * bits // 8), np.uint8),
        "scales": 2.0 ** rng.integers(-3, 3, (columns, blocks)).astype(np.float32),
        "zeros": None,
    }
    if zeros == "packed":
        feeds["zeros"] = rng.integers(0, 256, (columns, -(-blocks * bits // 8)), np.uint8)
    model = node(feeds, bits, block, level=4)
    (result,) = Interpreter(model).run(None, fed(feeds))
    np.testing.assert_array_equal(result, onnxruntime(model, fed(feeds))[0])
    np.testing.assert_array_equal(result, definition(feeds, bits)[0])


@with_vnni
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("depth", [256, 100])
def test_level_4_rounds_activations_as_onnxruntime_does(bits, block, depth):
    feeds = {"a": normal(3, depth), **quantized(normal(depth, 8), bits, block, "packed")}
    exact, magnitude = definition(feeds, bits)
    model = node(feeds, bits, block, level=4)
    (result,) = Interpreter(model).run(None, fed(feeds))
    (expected,) = onnxruntime(model, fed(feeds))
    assert (np.abs(result - expected) <= ULPS * np.finfo(np.float32).eps * magnitude).all()
    rounding = np.abs(result - exact).max() / magnitude.max()
    assert (rounding > 1e-5) == has_integer_kernel(bits, block)


@pytest.mark.parametrize("level", [1, 2, 3])
def test_other_levels_compute_in_float32(level):
    feeds = {"a": normal(3, 64), **quantized(normal(64, 8), 4, 32)}
    plain, other = (Interpreter(node(feeds, 4, 32, level=each)) for each in (0, level))
    np.testing.assert_array_equal(plain.run(None, fed(feeds))[0], other.run(None, fed(feeds))[0])


@pytest.mark.parametrize("scale", [0.0, 1e-39])
def test_a_block_of_zeros_has_no_scale(scale):
    activations = normal(2, 64)
    activations[:, :32] *= np.float32(scale)
    feeds = {"a": activations, **quantized(normal(64, 8), 4, 32)}
    model = node(feeds, 4, 32, level=4)
    (result,) = Interpreter(model).run(None, fed(feeds))
    np.testing.assert_allclose(result, onnxruntime(model, fed(feeds))[0], 1e-6, 1e-5)


@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("zeros", ["default", "float"])
@pytest.mark.parametrize("extra", [0, 28])
def test_groups_of_any_order(level, zeros, extra):
    feeds = {"a": normal(3, 100), **quantized(normal(100, 8), 4, 32, zeros)}
    groups = np.random.default_rng(0).integers(0, 4, 100 + extra).astype(np.int32)
    feeds["groups"] = groups
    model = node(feeds, 4, 32, level)
    (result,) = Interpreter(model).run(None, fed(feeds))
    np.testing.assert_allclose(result, onnxruntime(model, fed(feeds))[0], 1e-5, 1e-5)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_groups_have_their_packed_zero_points(bits):
    """onnxruntime ignores packed zero points where there are groups, and has 4 bits alone."""
    feeds = {"a": normal(3, 96), **quantized(normal(96, 8) + 1, bits, 32, "packed")}
    (plain,) = Interpreter(node(feeds, bits, 32)).run(None, fed(feeds))
    feeds["groups"] = np.repeat(np.arange(3, dtype=np.int32), 32)
    (result,) = Interpreter(node(feeds, bits, 32)).run(None, fed(feeds))
    np.testing.assert_allclose(result, plain, 1e-5, 1e-5)


def test_flat_scales_of_older_exports_and_other_ranks():
    feeds = {"a": normal(2, 3, 100), **quantized(normal(100, 8), 4, 32, "packed")}
    whole = Interpreter(node(feeds, 4, 32)).run(None, fed(feeds))[0]
    feeds["scales"], feeds["zeros"] = feeds["scales"].reshape(-1), feeds["zeros"].reshape(-1)
    model = node(feeds, 4, 32)
    np.testing.assert_allclose(whole, onnxruntime(model, fed(feeds))[0], 1e-5, 1e-5)
    np.testing.assert_array_equal(Interpreter(model).run(None, fed(feeds))[0], whole)
    vector = {**feeds, "a": feeds["a"][0, 0]}
    np.testing.assert_array_equal(
        Interpreter(node(vector, 4, 32)).run(None, fed(vector))[0].shape, (8,)
    )


def test_weights_stay_packed(monkeypatch):
    """A few rows of the weights are unpacked at a time, whatever the size of the whole."""
    feeds = {"a": normal(2, 512), **quantized(normal(512, 64), 4, 32)}
    model = node(feeds, 4, 32)
    (whole,) = Interpreter(model).run(None, fed(feeds))
    most = []
    unpacked = tensors.BlockWeights.centred

    def watched(self, rows):
        weights = unpacked(self, rows)
        most.append(weights.nbytes)
        return weights

    monkeypatch.setattr(tensors.BlockWeights, "centred", watched)
    monkeypatch.setattr(tensors, "_ROWS_BYTES", 16384)
    (parts,) = Interpreter(model).run(None, fed(feeds))
    np.testing.assert_allclose(parts, whole, 1e-6, 1e-5)
    assert len(most) == 8
    assert max(most) <= 16384


def broken(**changes):
    return {"a": normal(3, 96), **quantized(normal(96, 8), 4, 32, "packed")} | changes


BAD = {
    "a block that is no power of two": (broken(), {"block_size": 24}, "the block size is 24"),
    "a small block": (broken(), {"block_size": 8}, "the block size is 8"),
    "three bits": (broken(), {"bits": 3}, "3 bits"),
    "another depth": (broken(), {"K": 64}, "A has [96] columns, and K is 64"),
    "blocks that do not cover the depth": (
        broken(b=np.zeros((8, 2, 16), np.uint8)), {}, "not uint8[8, 3, 16]"),
    "a scale too few": (broken(scales=np.ones((8, 2), np.float32)), {}, "scales are [8, 2]"),
    "zero points of another packing": (
        broken(zeros=np.zeros((8, 3), np.uint8)), {}, "zero_points are uint8[8, 3], not [8, 2]"),
    "a group without a scale": (
        broken(groups=np.full(96, 3, np.int32)), {}, "g_idx has groups 3 to 3"),
    "groups of another depth": (
        broken(groups=np.zeros(64, np.int32)), {}, "g_idx is [64], not one group for each of K"),
    "a bias of other columns": (
        broken(groups=None, bias=np.ones(7, np.float32)), {}, "the bias is [7], and N is 8"),
    "weights of one device": (broken(), {"weight_prepacked": 1}, "weight_prepacked is 1"),
}  # fmt: skip


@pytest.mark.parametrize(("feeds", "attributes", "reason"), BAD.values(), ids=BAD)
def test_what_does_not_fit_is_told_with_the_node(feeds, attributes, reason):
    model = node(feeds, 4, 32, changes=attributes)
    with pytest.raises(ModelError) as caught:
        Interpreter(model).run(None, fed(feeds))
    assert "node 'node' (com.microsoft.MatMulNBits" in str(caught.value)
    assert reason in str(caught.value)
