"""MatMulNBits in narrow accumulators, against loops over Python integers and onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.accumulators.nodes import narrowed, plain
from tests.interpreter.models import normal, onnxruntime, quick
from tests.interpreter.test_matmul_nbits import definition, node, quantized
from tests.processors import with_vnni
from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.engine.sum_runner import LimitedSums, OverflowCounter
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import named
from tracer.accumulators.spec.policy import Policy, parse_policy
from tracer.api.whatif import what_if
from tracer.errors import ModelError
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter
from tracer.whatif.options import WhatIfOptions

KINDS = [(2, 32), (2, 64), (2, 128), (4, 16), (4, 32), (4, 128), (8, 16), (8, 32), (8, 64)]
"""Bits and block sizes with a kernel of integers."""
PACKED = st.sampled_from(["default", "packed"])


def codes_of(feeds, bits, block):
    """Codes minus zero points (N, blocks, block), and zero points (N, blocks), as integers."""
    packed, zeros = feeds["b"], feeds["zeros"]
    rows, blocks = packed.shape[:2]
    codes = np.zeros((rows, blocks, block), np.int64)
    points = np.full((rows, blocks), 1 << bits - 1)
    for row, group, term in np.ndindex(*codes.shape):
        byte, place = divmod(term * bits, 8)
        codes[row, group, term] = int(packed[row, group, byte]) >> place & (1 << bits) - 1
    if zeros is not None:
        for row, group in np.ndindex(*points.shape):
            byte, place = divmod(group * bits, 8)
            points[row, group] = int(zeros[row, byte]) >> place & (1 << bits) - 1
    return codes - points[..., None], points


def limited(total, bits, overflow):
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if overflow == "saturate":
        return min(max(total, low), high)
    return (total - low) % 2**bits + low


def looped(feeds, bits, block, width, overflow):
    """The output by one addition after the other, and the extremes of exact partial sums."""
    codes, _ = codes_of(feeds, bits, block)
    x = feeds["a"]
    out = np.zeros((len(x), len(codes)), np.float32)
    low = high = 0
    for i, j in np.ndindex(*out.shape):
        for g in range(codes.shape[1]):
            part = x[i, g * block : (g + 1) * block]
            top = np.abs(part).max()
            rounded = (
                np.rint(part * (np.float32(127) / top)) if top > 1e-36 else np.zeros(len(part))
            )
            total = exact = 0
            for a, w in zip(rounded, codes[j, g], strict=False):
                total = limited(total + int(a) * int(w), width, overflow)
                exact += int(a) * int(w)
                low, high = min(low, exact), max(high, exact)
            out[i, j] += np.float32(total) * ((top / np.float32(127)) * feeds["scales"][j, g])
    return out, low, high


def reach(codes, depth):
    """The greatest magnitude of a block's sum, by channel: 127 times the sum of magnitudes."""
    flat = codes.reshape(len(codes), -1).copy()
    flat[:, depth:] = 0
    return 127 * np.abs(flat.reshape(codes.shape)).sum(2).max(1)


@quick
@given(
    st.sampled_from(KINDS), PACKED, st.integers(1, 3), st.integers(1, 150), st.integers(1, 4),
    st.sampled_from(["saturate", "wrap"]), st.integers(4, 18), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_sums_of_blocks_are_those_of_a_loop(kind, zeros, rows, depth, columns, overflow, width,
                                            seed):  # fmt: skip
    bits, block = kind
    feeds = {"a": normal(rows, depth, seed=seed),
             **quantized(normal(depth, columns, seed=seed + 1), bits, block, zeros)}  # fmt: skip
    policy = Policy.of(Accumulator(width, overflow))
    output, emulation = narrowed(node(feeds, bits, block, 4), policy, feeds["a"])
    wanted, low, high = looped(feeds, bits, block, width, overflow)
    np.testing.assert_array_equal(output, wanted)
    (sums,) = emulation.accumulations().values()
    assert (sums.tally.acc_min.min(), sums.tally.acc_max.max()) == (low, high)
    blocks = feeds["b"].shape[1]
    assert sums.tally.outputs.tolist() == [rows * blocks] * columns
    assert (sums.guaranteed_channels >= sums.tally.bits_observed).all()
    assert sums.guaranteed <= sums.datatype
    codes, _ = codes_of(feeds, bits, block)
    most = reach(codes, depth).tolist()
    assert sums.guaranteed_channels.tolist() == [max(r.bit_length() + 1, 2) for r in most]


@quick
@given(st.sampled_from(KINDS), PACKED, st.integers(1, 150), st.booleans(),
       st.sampled_from([np.float32, np.float16]))  # fmt: skip
def test_wide_accumulators_are_the_operator(bits_block, zeros, depth, biased, kind):
    bits, block = bits_block
    feeds = {"a": normal(3, depth), **quantized(normal(depth, 5), bits, block, zeros)}
    if biased:
        feeds |= {"groups": None, "bias": normal(5, seed=2)}
    feeds = {n: v.astype(kind) if v is not None and v.dtype.kind == "f" else v
             for n, v in feeds.items()}  # fmt: skip
    proto, x = node(feeds, bits, block, 4), feeds["a"]
    for accumulator in ("32", "32(zero_points=after)", "mlas-nbits-int8", "two-level(20,16,32)"):
        output, _ = narrowed(proto, parse_policy(accumulator), x)
        assert output.dtype == kind
        np.testing.assert_array_equal(output, plain(proto, x))


@pytest.mark.parametrize(("bits", "block"), [(4, 16), (4, 32), (2, 32), (8, 32), (8, 128)])
def test_worst_activations_reach_the_bound_and_go_no_further(bits, block):
    """In each block every activation is the largest one, with the sign of its weight."""
    depth, columns = 3 * block - 5, 4
    feeds = {"a": None, **quantized(normal(depth, columns), bits, block, "packed")}
    codes, _ = codes_of(feeds, bits, block)
    signs = np.where(codes.reshape(columns, -1)[:, :depth] < 0, -1, 1).astype(np.float32)
    feeds["a"] = np.concatenate([signs, -signs])
    proto = node(feeds, bits, block, 4)
    _, emulation = narrowed(proto, parse_policy("32"), feeds["a"])
    (sums,) = emulation.accumulations().values()
    assert sums.tally.bits_observed.tolist() == sums.guaranteed_channels.tolist()
    for width, overflows in ((sums.guaranteed, False), (sums.guaranteed - 1, True)):
        _, emulation = narrowed(proto, Policy.of(Accumulator(width)), feeds["a"])
        (narrow,) = emulation.accumulations().values()
        assert narrow.tally.saturation_events.any() == overflows


@pytest.mark.one_in(3)
@pytest.mark.parametrize("order", ["sequential", "chunked(5)", "tree", "sorted", "lanes(4)"])
@pytest.mark.parametrize("kind", [LimitedSums, OverflowCounter])
def test_runners_agree(kind, order):
    feeds = {"a": normal(6, 100), **quantized(normal(100, 7), 4, 32, "packed")}
    policy = Policy.of(Accumulator(11, order=named(order)))
    proto = node(feeds, 4, 32, 4)
    expected, emulation = narrowed(proto, policy, feeds["a"])
    (tally,) = (sums.tally for sums in emulation.accumulations().values())
    model = loading.from_proto(proto)
    emulation = AccumulatorEmulation(model, policy)
    runners = emulation.new_runners({}, kind)
    with emulation.using(runners):
        (output,) = Interpreter(model, wrap_kernel=emulation.wrap).run(None, {"a": feeds["a"]})
    np.testing.assert_array_equal(output, expected)
    assert tally.saturation_events.any()
    if kind is OverflowCounter:
        (runner,) = runners.values()
        assert runner.counts.saturation_events == tally.saturation_events.sum()


def test_zero_points_in_the_sum_need_more_bits_and_give_the_same():
    feeds = {"a": normal(3, 64), **quantized(normal(64, 5), 4, 32, "packed")}
    proto = node(feeds, 4, 32, 4)
    before, after = (
        narrowed(proto, parse_policy(f"32(zero_points={when})"), feeds["a"])
        for when in ("before", "after")
    )
    np.testing.assert_array_equal(before[0], after[0])
    centred, stored = (
        next(iter(each.accumulations().values())).guaranteed for _, each in (before, after)
    )
    assert stored > centred


def test_activations_that_are_no_numbers_make_outputs_that_are_none():
    feeds = {"a": normal(4, 64), **quantized(normal(64, 5), 4, 32)}
    feeds["a"][0, 3], feeds["a"][1, 40] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        output, _ = narrowed(node(feeds, 4, 32, 4), parse_policy("32"), feeds["a"])
    assert np.isnan(output).any(1).tolist() == [True, True, False, False]


@with_vnni
@pytest.mark.parametrize(("bits", "block"), [(2, 64), (4, 16), (4, 32), (4, 128), (8, 32)])
@pytest.mark.parametrize("depth", [128, 301])
def test_the_preset_is_what_onnxruntime_computes(bits, block, depth):
    """Blocks are added in another order there, so up to float32's rounding of the magnitudes."""
    feeds = {"a": normal(5, depth), **quantized(normal(depth, 16), bits, block, "packed")}
    proto = node(feeds, bits, block, 4)
    output, _ = narrowed(proto, parse_policy("mlas-nbits-int8"), feeds["a"])
    (theirs,) = onnxruntime(proto, {"a": feeds["a"]})
    _, magnitude = definition(feeds, bits)
    assert (np.abs(output - theirs) <= 8 * np.finfo(np.float32).eps * magnitude).all()


@with_vnni
@pytest.mark.parametrize(("bits", "block"), [(2, 64), (4, 32), (8, 32), (8, 128)])
def test_blocks_are_integers_in_onnxruntime(bits, block):
    """With scales of 1 and a largest activation of 127, an output of one block is its sum."""
    random = np.random.default_rng(block)
    x = random.integers(-127, 128, (6, block)).astype(np.float32)
    x[:, 0] = 127
    feeds = {"a": x, **quantized(normal(block, 16), bits, block, "packed")}
    feeds["scales"] = np.ones_like(feeds["scales"])
    proto = node(feeds, bits, block, 4)
    codes, _ = codes_of(feeds, bits, block)
    exact = x.astype(np.int64) @ codes[:, 0].T
    output, _ = narrowed(proto, parse_policy("mlas-nbits-int8"), x)
    np.testing.assert_array_equal(output, exact)
    np.testing.assert_array_equal(onnxruntime(proto, {"a": x})[0], exact)


def groups_of(depth, block):
    return {"groups": (np.arange(depth) // block).astype(np.int32)}


@pytest.mark.parametrize(
    ("level", "bits", "zeros", "more", "reason"),
    [
        (0, 4, "default", {}, "accuracy_level is 0.*MatMulNBits to 4"),
        (1, 4, "default", {}, "accuracy_level is 1"),
        (4, 4, "float", {}, "zero points"),
        (4, 2, "default", {}, "2 bits in blocks of 16"),
        (4, 4, "default", groups_of(64, 16), "g_idx"),
    ],
)
def test_products_of_floats_have_no_integer_sums(level, bits, zeros, more, reason):
    feeds = {"a": normal(2, 64), **quantized(normal(64, 3), bits, 16, zeros), **more}
    with pytest.raises(ModelError) as caught:
        narrowed(node(feeds, bits, 16, level), parse_policy("14"), feeds["a"])
    assert all(part in str(caught.value) for part in reason.split(".*"))


def test_what_could_add_integers_is_named_before_floats_that_cannot():
    feeds = {"a": normal(2, 64), **quantized(normal(64, 3), 4, 16, "default")}
    proto = node(feeds, 4, 16, 0)
    proto.graph.node[0].input[0] = "mid"
    before = onnx.helper.make_node("MatMul", ["a", "eye"], ["mid"], name="before")
    proto.graph.node.insert(0, before)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(64, dtype="f"), "eye"))
    with pytest.raises(ModelError, match=r"MatMulNBits.*accuracy_level is 0"):
        narrowed(proto, parse_policy("14"), feeds["a"])


@quick
@given(st.sampled_from([2, 4, 8]), st.sampled_from([0, 4]), st.integers(1, 90), st.booleans())
def test_float_sums_are_a_loop_over_float16(bits, level, depth, biased):
    feeds = {"a": normal(2, 3, depth), **quantized(normal(depth, 4), bits, 32, "packed")}
    if biased:
        feeds |= {"groups": None, "bias": normal(4, seed=2).astype(np.float16).astype(np.float32)}
    codes, _ = codes_of(feeds, bits, 32)
    weights = codes.astype(np.float32) * feeds["scales"][..., None]
    weights = weights.reshape(4, -1)[:, :depth].astype(np.float16)
    wanted = np.zeros((2, 3, 4), np.float16)
    if biased:
        wanted += feeds["bias"].astype(np.float16)
    for k in range(depth):
        a = feeds["a"][..., k, None].astype(np.float16)
        wanted = wanted + a * weights[:, k]
    policy = parse_policy("fp16", operands="fp16")
    output, emulation = narrowed(node(feeds, bits, 32, level), policy, feeds["a"])
    np.testing.assert_array_equal(output, wanted.astype(np.float32))
    (sums,) = emulation.float_sums
    assert sums.tally.outputs == output.size


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("kind", ["fp32", "tc:a100", "int8(channel)"])
def test_kinds_of_floats_are_near_the_definition(kind, groups):
    feeds = {"a": normal(2, 3, 80), **quantized(normal(80, 6), 4, 16)}
    wanted, magnitude = definition(feeds, 4)
    if groups:
        feeds |= groups_of(80, 16)
    accumulator, operands = {"tc:a100": ("tc:a100", "bf16"), "fp32": ("fp32", None)}.get(
        kind, ("fp32", kind)
    )
    policy = parse_policy(accumulator, operands=operands)
    output, _ = narrowed(node(feeds, 4, 16), policy, feeds["a"])
    limit = {"fp32": 1e-6, "tc:a100": 2**-7, "int8(channel)": 0.05}[kind]
    assert (np.abs(output - wanted) <= limit * magnitude).all()
    again, _ = narrowed(node(feeds, 4, 16), policy, feeds["a"])
    np.testing.assert_array_equal(output, again)


def test_no_rows_have_no_sums():
    feeds = {"a": normal(0, 40), **quantized(normal(40, 6), 4, 16)}
    for accumulator in ("14", "fp16"):
        output, _ = narrowed(node(feeds, 4, 16, 4), parse_policy(accumulator), feeds["a"])
        assert output.shape == (0, 6)


def test_a_what_if_names_the_widths_that_blocks_need(tmp_path):
    """The greatest partial sum of the data, and the bound for any."""
    feeds = {"a": normal(20, 100), **quantized(normal(100, 4), 4, 32, "packed")}
    labels = np.zeros(20, np.int64)
    np.savez(tmp_path / "data.npz", a=feeds["a"], label=labels)
    proto = node(feeds, 4, 32, 4)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    onnx.save(proto, tmp_path / "int4.onnx")
    options = WhatIfOptions(search=False)
    result = what_if(
        tmp_path / "int4.onnx", "10:18", tmp_path / "data.npz", options, in_process=True
    )
    _, low, high = looped(feeds, 4, 32, 40, "saturate")
    codes, _ = codes_of(feeds, 4, 32)
    needed = max((-low - 1).bit_length(), high.bit_length()) + 1
    answer = result.variants[0].answer
    assert (answer.observed, answer.limiting) == (needed, "node")
    assert answer.guaranteed == int(reach(codes, 100).max()).bit_length() + 1
