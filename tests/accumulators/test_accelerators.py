"""The accelerators of docs/accelerators.md against loops that are written from their descriptions.

A loop takes the products of a sum, (channels, window), and its bias, and adds them as integers or
fractions; a whole Conv and a whole Gemm have its sums.
"""

from fractions import Fraction
from math import frexp

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.accumulators.float_loops import summed
from tests.accumulators.patches import patches
from tests.docs.words import ROOT
from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.spec.policy import parse_policy
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.numeric.windows import window

pytest.importorskip("matplotlib")  # the page is read by the script that draws it

PAGE = ROOT / "docs" / "accelerators.md"


def wrap(value, bits):
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def clip(value, bits):
    return min(max(value, -(1 << bits - 1)), (1 << bits - 1) - 1)


def tiles(terms, size):
    return [terms[first : first + size] for first in range(0, len(terms), size)]


def systolic_array(products, bias):
    """Each pass of 32 rows begins with the partial sum that memory holds in 16 bits, >> 4."""
    total = bias
    for tile in tiles(products.ravel().tolist(), 32):
        for product in tile:
            total = wrap(total + product, 32)
        memory = clip(total >> 4, 16)
        total = memory << 4
    return total


def gemmini(products, bias):
    """20 bits in the array; their rounding shift, to even, goes to accumulators of 32 bits."""
    total = round(Fraction(bias, 16))
    for tile in tiles(products.ravel().tolist(), 64):
        inside = 0
        for product in tile:
            inside = wrap(inside + product, 20)
        total = wrap(total + round(Fraction(inside, 16)), 32)
    return total * 16


def finn(products, bias):
    """8 products are added at once, then to the accumulator."""
    total = wrap(bias, 16)
    for tile in tiles(products.ravel().tolist(), 8):
        total = wrap(total + sum(tile), 16)
    return total


def hls4ml(products, bias):
    """Products of ap_fixed<16,6> have 20 bits of fraction; those beyond the tenth are cut off."""
    total = wrap(bias >> 10, 16)
    for product in products.ravel().tolist():
        total = wrap(total + wrap(product >> 10, 16), 16)
    return total << 10


def computing_in_memory(products, bias):
    """256 rows add at once; a converter of 6 bits has steps of 512."""
    total = clip(bias >> 9, 20)
    for tile in tiles(products.ravel().tolist(), 256):
        total = clip(total + clip(sum(tile) >> 9, 6), 20)
    return total << 9


def hexagon(products, bias):
    total = bias
    for tile in tiles(products.ravel().tolist(), 4):
        total = wrap(total + sum(tile), 32)
    return total


def ethos(products, bias):
    """Depth first: all channels of a kernel position."""
    total = bias
    for product in products.T.ravel().tolist():
        total = wrap(total + product, 32)
    return total


def gap8(products, bias):
    """The output of 8 bits is shifted up, a window is added, one half too, then it is clipped."""
    total = bias
    for tile in tiles(products.ravel().tolist(), 9):
        for product in tile:
            total = wrap(total + product, 32)
        output = clip((total + 64) >> 7, 8)
        total = output << 7
    return total


LOOPS = {
    "systolic array, spilled sums": systolic_array, "Gemmini": gemmini, "FINN MVTU": finn,
    "hls4ml": hls4ml, "computing in memory": computing_in_memory, "Hexagon": hexagon,
    "Ethos-U55": ethos, "GAP8": gap8,
}  # fmt: skip
OVERFLOW = {"systolic array, spilled sums", "Gemmini", "FINN MVTU", "hls4ml", "GAP8",
            "computing in memory"}  # fmt: skip
"""Accelerators of which a register overflows here."""


def row_of(name):
    from tests.docs.level_pictures import rows

    (row,) = (each for each in rows(PAGE.read_text(encoding="utf-8")) if each.name == name)
    return row


def quantized(op, x, w, bias):
    """The operator between integers whose steps are 1."""
    stored = {"one": np.float32(1), "zero": np.int8(0), "w": w, "b": bias.astype(np.int32)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "one", "zero"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "one", "zero"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "one", "zero"], ["wd"]),
        helper.make_node("DequantizeLinear", ["b", "one"], ["bd"]),
    ]
    return whole(op, x, stored, nodes, ["xd", "wd", "bd"])


def whole(op, x, stored, nodes, inputs):
    more = {"transB": 1} if op == "Gemm" else {}
    graph = helper.make_graph(
        [*nodes, helper.make_node(op, inputs, ["y"], "y", **more)], "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None] * x.ndim)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in stored.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def run(proto, x, row):
    """The output of a node in an accelerator's accumulator, by output channel, and its counts."""
    loaded = loading.from_proto(proto)
    policy = parse_policy(row.spelling, row.fixed, operands=row.operands)
    emulation = AccumulatorEmulation(loaded, policy)
    interpreter = Interpreter(loaded, wrap_kernel=emulation.wrap, fuse=emulation.fuse)
    (out,) = interpreter.run(None, {"x": x.astype(np.float32)})
    (sums,) = [*emulation.accumulations().values(), *emulation.float_sums]
    return np.moveaxis(out, 1, 0).reshape(out.shape[1], -1), sums


def drawn(op, random, reach):
    """Numbers for a node: its input, weights (maps, channels, window), and columns.

    Large inputs, and weights of one sign in the first map, let sums drift and leave registers.
    """
    shapes = {"Gemm": ((3, 600), (2, 600)), "Conv": ((1, 30, 4, 5), (2, 30, 3, 3))}[op]
    x, w = (random.integers(reach // 2, reach, shape) for shape in shapes)
    w[1] *= random.choice([-1, 1], w[1].shape)
    if op == "Gemm":
        return x, w, w[:, :, None], x.T.reshape(600, 1, 3)
    slid = window([4, 5], [3, 3], [1, 1], [0] * 4, [1, 1], "NOTSET")
    return x, w, w.reshape(2, 30, 9), patches(x, slid, 0).reshape(30, 9, -1)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("op", ["Gemm", "Conv"])
@pytest.mark.parametrize("name", LOOPS)
def test_a_whole_node_adds_as_the_loop_does(name, op):
    random, row = np.random.default_rng(len(name)), row_of(name)
    reach, step = (1 << 15, 1 << 10) if row.fixed else (128, 1)
    x, w, weights, columns = drawn(op, random, reach)
    bias = random.integers(-900, 900, 2) * step
    expected = [
        [LOOPS[name](row_w * columns[..., p], int(start)) for p in range(columns.shape[-1])]
        for row_w, start in zip(weights, bias, strict=True)
    ]
    if row.fixed:
        unit = 2.0**-10
        stored = {"w": (w * unit).astype(np.float32), "b": (bias * unit**2).astype(np.float32)}
        proto, fed, unit = whole(op, x, stored, [], ["x", "w", "b"]), x * unit, unit**2
    else:
        proto, fed, unit = quantized(op, x, w.astype(np.int8), bias), x, 1.0
    out, sums = run(proto, fed, row)
    np.testing.assert_array_equal(out, np.array(expected) * unit)
    assert (sums.tally.saturation_events.sum() > 0) == (name in OVERFLOW)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("op", ["Gemm", "Conv"])
def test_a_tpu_multiplies_bf16_and_adds_fp32(op):
    random, row = np.random.default_rng(5), row_of("TPU")
    scaled = (each.astype(np.float32) * 0.0371 for each in drawn(op, random, 128))
    x, w, weights, columns = map(np.float32, scaled)
    bias = random.normal(0, 9, 2).astype(np.float32)
    out, _ = run(whole(op, x, {"w": w, "b": bias}, [], ["x", "w", "b"]), x, row)
    sides = (weights.reshape(2, -1), columns.reshape(-1, columns.shape[-1]))
    sides = tuple(side.astype(ml_dtypes.bfloat16).astype(np.float32) for side in sides)
    np.testing.assert_array_equal(out, summed(*sides, bias, np.float32))


def exponent(number):
    """That of the leading bit; of a subnormal fp8-e4m3 the least."""
    return max(frexp(number)[1] - 1, -6)


def cut(number, unit):
    """A multiple of the unit, towards 0."""
    return int(number / unit) * unit


def deepseek(left, right):
    """Tensor cores add 32 products with 13 bits of fraction; after 128, fp32 adds the sum."""
    total = np.float32(0)
    for first in range(0, len(left), 128):
        inside = Fraction(0)
        for start in range(first, min(first + 128, len(left)), 32):
            pairs = list(zip(left[start : start + 32], right[start : start + 32], strict=True))
            pairs = [(a, b) for a, b in pairs if a * b]
            places = [exponent(a) + exponent(b) for a, b in pairs]
            places += [max(frexp(float(inside))[1] - 1, -126)] if inside else []
            top = max([*places, -133])
            unit = Fraction(2) ** (top - 13)
            terms = [cut(Fraction(a) * Fraction(b), unit) for a, b in pairs]
            inside = sum(terms, cut(inside, unit))
            if inside:
                place = frexp(float(inside))[1] - 1
                inside = cut(inside, Fraction(2) ** (place - 13))
        total = np.float32(total + np.float32(float(inside)))
    return total


@pytest.mark.parametrize("op", ["Gemm", "Conv"])
def test_deepseek_promotes_sums_after_128_products(op):
    random, row = np.random.default_rng(6), row_of("DeepSeek-V3")
    scaled = (each.astype(np.float32) * 0.037 for each in drawn(op, random, 128))
    x, w, weights, columns = map(np.float32, scaled)
    out, _ = run(whole(op, x, {"w": w}, [], ["x", "w"]), x, row)
    sides = (weights.reshape(2, -1), columns.reshape(-1, columns.shape[-1]).T)
    left, right = (side.astype(ml_dtypes.float8_e4m3fn).astype(float).tolist() for side in sides)
    expected = [[deepseek(a, b) for b in right] for a in left]
    np.testing.assert_array_equal(out, np.array(expected, np.float32))


@pytest.mark.nightly
def test_the_picture_is_that_of_the_page(tmp_path):
    from tests.docs import level_pictures

    accelerators = level_pictures.rows(PAGE.read_text(encoding="utf-8"))
    assert len(accelerators) == 10 == len(LOOPS) + 2
    (spill,) = level_pictures.boxes(parse_policy(row_of("GAP8").spelling).accumulators[0].value)
    assert spill == ("32 bits\nwraps", "one by one", "each 9: 8 bits, >> 7")
    level_pictures.main([str(tmp_path)])
    assert (tmp_path / "accelerators.png").read_bytes()[:4] == b"\x89PNG"
