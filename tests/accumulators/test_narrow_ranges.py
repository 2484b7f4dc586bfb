"""What the operands of narrow nodes can be, and the widths that this guarantees."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.accumulators.nodes import (
    RANDOM,
    convolved,
    int8,
    model,
    multiplied,
    narrowed,
    uint8,
)
from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.engine.sum_runner import LimitedSums, OverflowCounter, SumRunner
from tracer.accumulators.spec.policy import parse_policy
from tracer.errors import ModelError
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter


@pytest.mark.parametrize("bits", [12, 40])
def test_widths_that_are_seen_guaranteed_and_of_the_types(bits):
    w, x = int8(3, 2, 2, 2), uint8(2, 2, 6, 6)
    proto = model("(uint8[2,2,6,6] x) => (int32[a,b,c,d] y) { y = ConvInteger (x, w, z) }",
                  w=w, z=np.uint8(9))  # fmt: skip
    _, emulation = narrowed(proto, parse_policy(str(bits)), x)
    (result,) = emulation.accumulations().values()
    wide = w.reshape(3, -1).astype(np.int64)
    low = np.minimum(wide * -9, wide * 246).sum(1)
    high = np.maximum(wide * -9, wide * 246).sum(1)
    needed = [max(int(a).bit_length(), int(-b - 1).bit_length()) + 1
              for a, b in zip(high, low, strict=True)]  # fmt: skip
    assert result.guaranteed_channels.tolist() == needed  # 0 is in the range of inputs
    assert result.guaranteed == max(needed) == result.guaranteed_any_order
    assert result.datatype == (8 * 246 * 128).bit_length() + 1
    assert result.tally.bits_observed.max() <= result.guaranteed <= result.datatype


def test_two_activations_are_bounded_by_their_types():
    proto = model("(uint8[3,4] a, uint8[4,2] b) => (int32[r,c] y) { y = MatMulInteger (a, b) }")
    _, emulation = narrowed(proto, parse_policy("16"), uint8(3, 4), uint8(4, 2))
    (result,) = emulation.accumulations().values()
    assert result.guaranteed == result.datatype == (4 * 255 * 255).bit_length() + 1
    assert result.guaranteed_channels.shape == (2,)


def test_a_zero_point_that_is_computed_may_be_another_next_time():
    proto = model(
        """(float[r,8] x) => (int32[r,c] y) {
          q, s, z = DynamicQuantizeLinear (x)
          y = MatMulInteger (q, w, z)
        }""",
        w=np.array([[127] * 3, [-128] * 3] * 4, np.int8),
    )  # fmt: skip
    loaded = loading.from_proto(proto)
    for feeds in itertools.permutations([np.full(8, 5.0), np.full(8, -5.0), np.eye(8)[0]]):
        emulation = AccumulatorEmulation(loaded, parse_policy("20"))
        interpreter = Interpreter(loaded, wrap_kernel=emulation.wrap)
        for x in feeds:
            interpreter.run(None, {"x": x.astype(np.float32)[None]})
        (result,) = emulation.accumulations().values()
        assert result.guaranteed == 19  # 4 · 255 · 255 needs 18 bits and a sign: 260,100 < 2^18
        assert result.guaranteed >= result.tally.bits_observed.max()


@pytest.mark.parametrize(("zero", "fit"), [(np.uint8(9), True), (np.int16(0), False)])
def test_integers_that_float16_cannot_tell_apart_are_refused(zero, fit):
    limits = np.iinfo(zero.dtype)
    x = np.arange(limits.min, limits.max + 1, dtype=np.int64)
    proto = model(
        f"({zero.dtype}[{x.size}] x) => (float16[a] y)"
        " { xd = DequantizeLinear (x, s, z) y = Add (xd, xd) }",
        s=np.float16(0.0371), z=zero,
    )  # fmt: skip
    proto.opset_import[0].version = 21  # the first one with 16-bit integers
    if not fit:
        with pytest.raises(ModelError, match="11 bits of precision"):
            AccumulatorEmulation(loading.from_proto(proto), parse_policy("20"))
        return
    _, emulation = narrowed(proto, parse_policy("20"), x.astype(zero.dtype))
    (result,) = emulation.accumulations().values()
    extremes = int(result.tally.final_min.min()), int(result.tally.final_max.max())
    assert extremes == (2 * (limits.min - int(zero)), 2 * (limits.max - int(zero)))


@pytest.mark.parametrize(
    ("quantise", "low", "high"),
    [("QuantizeLinear", 0, 255), ("QuantizeLinear <output_dtype = 5>", -(1 << 15), (1 << 15) - 1)],
)
def test_the_type_of_a_tensor_without_zero_point(quantise, low, high):
    proto = model(
        f"(float[4] x) => (float[4] y) {{ q = {quantise} (x, s)"
        " d = DequantizeLinear (q, s) y = Add (d, d) }",
        s=np.float32(0.5),
    )  # fmt: skip
    proto.opset_import[0].version = 21
    _, emulation = narrowed(proto, parse_policy("20"), np.array([-1e9, -1, 1, 1e9], np.float32))
    (result,) = emulation.accumulations().values()
    assert (result.tally.final_min.min(), result.tally.final_max.max()) == (
        2 * low,
        2 * high,
    )
    assert result.guaranteed == result.tally.bits_observed.max()


def test_an_input_without_zero_point_has_the_type_it_is_declared_with():
    proto = model(
        "(int8[4] x) => (float[4] y) { d = DequantizeLinear (x, s) y = Add (d, d) }",
        s=np.float32(0.5),
    )  # fmt: skip
    output, _ = narrowed(proto, parse_policy("8"), np.array([-128, -1, 1, 127], np.int8))
    np.testing.assert_array_equal(output, np.float32([-64, -1, 1, 63.5]))


POOL = """(int8[1,2,H,W] x) => (float[1,2,1,1] y) {
  xd = DequantizeLinear (x, s, z)
  y = GlobalAveragePool (xd)
}"""


def test_sizes_may_grow_from_run_to_run():
    """A guarantee is for all that was summed, and not for what was summed first."""
    loaded = loading.from_proto(model(POOL, s=np.float32(0.5), z=np.int8(0)))
    emulation = AccumulatorEmulation(loaded, parse_policy("30"))
    interpreter = Interpreter(loaded, wrap_kernel=emulation.wrap)
    for size in (2, 20):
        interpreter.run(None, {"x": np.full((1, 2, size, size), -128, np.int8)})
    (result,) = emulation.accumulations().values()
    assert result.tally.bits_observed.max() == (400 * 128 - 1).bit_length() + 1
    assert result.guaranteed == result.datatype == result.tally.bits_observed.max()


@pytest.mark.one_in(7)
@pytest.mark.parametrize("bits", [18, 24, 25, 31, 36, 48])
def test_sums_of_16_bit_activations_and_weights(bits):
    x = RANDOM.integers(-(1 << 15), 1 << 15, (2, 4, 5, 6)).astype(np.int16)
    w = RANDOM.integers(-(1 << 15), 1 << 15, (3, 4, 3, 3)).astype(np.int16)
    v = RANDOM.integers(-(1 << 15), 1 << 15, (6, 7)).astype(np.int16)
    proto = model(
        """(float[2,4,5,6] x) => (float[a,b,c,d] y, float[e,f,g,h] z) {
          q = QuantizeLinear (x, s, zero)
          xd = DequantizeLinear (q, s, zero)
          wd = DequantizeLinear (w, t)
          vd = DequantizeLinear (v, t)
          y = Conv <pads = [1, 1, 1, 1]> (xd, wd)
          z = MatMul (xd, vd)
        }""",
        w=w, v=v, s=np.float32(2**-4), zero=np.int16(-3), t=np.float32(2**-12),
    )  # fmt: skip
    proto.opset_import[0].version = 21
    loaded = loading.from_proto(proto)
    emulation = AccumulatorEmulation(loaded, parse_policy(str(bits)))
    fed = ((x.astype(np.int64) + 3) * 2**-4).astype(np.float32)
    expected = (
        convolved(x.astype(np.int64) + 3, w, bits, pad=1),
        multiplied(x.reshape(-1, 6).astype(np.int64) + 3, v, bits).reshape(2, 4, 5, 7),
    )
    for fuse in (None, emulation.fuse):
        interpreter = Interpreter(loaded, wrap_kernel=emulation.wrap, fuse=fuse)
        for runner in (SumRunner, OverflowCounter, LimitedSums):
            with emulation.using(emulation.new_runners({}, runner)):
                outputs = interpreter.run(None, {"x": fed})
            for output, sums in zip(outputs, expected, strict=True):
                np.testing.assert_array_equal(output, (sums * 2.0**-16).astype(np.float32))
