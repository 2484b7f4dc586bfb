"""Presets of integers against loops in Python, one for each published rule, and onnxruntime."""

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from tests.accumulators.dots import emulate
from tests.accumulators.nodes import model, narrowed
from tests.examples import at_night
from tests.interpreter.models import onnxruntime
from tracer.accumulators import hardware
from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.engine import dots, oracle
from tracer.accumulators.spec.orders import Terms
from tracer.accumulators.spec.policy import parse_policy
from tracer.graph import loading
from tracer.inputs.datasets.opening import open_dataset
from tracer.interpreter.interpreter import Interpreter
from tracer.records import environment

FLAGS = " ".join(environment.cpu_flags())
DEPTHS = (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 33, 255, 256, 257, 512)


def saturated(value, bits=16):
    return min(max(value, -(2 ** (bits - 1))), 2 ** (bits - 1) - 1)


def wrapped(value, bits=32):
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def exact(products):
    return wrapped(sum(products))


def maddubs(products):
    return wrapped(sum(saturated(sum(products[k : k + 2])) for k in range(0, len(products), 2)))


def acc16(products):
    total = 0
    for block in range(0, len(products), 256):
        inner = 0
        for k in range(block, min(block + 256, len(products)), 2):
            pair = products[k : min(k + 2, block + 256)]
            inner = saturated(inner + saturated(sum(pair)))
        total = wrapped(total + inner)
    return total


def whole_in_16(products):
    inner = 0
    for product in products:
        inner = wrapped(inner + product, 16)
    return inner


def eight_apart(products):
    total = 0
    for block in range(0, len(products), 16):
        for k in range(block, min(block + 8, len(products))):
            total += wrapped(sum(products[k : block + 16 : 8]), 16)
    return wrapped(total)


def in_64(products):
    return wrapped(sum(products), 64)


RULES = {
    "arm-dot": exact,
    "arm-i8mm": exact,
    "cmsis-s8": exact,
    "cmsis-s16": in_64,
    "fbgemm-acc16": acc16,
    "fbgemm-acc32": maddubs,
    "gemmlowp-2in16": eight_apart,
    "mlas-nbits-int8": exact,
    "onednn-u8s8": maddubs,
    "qnnpack-acc16": whole_in_16,
    "x86-maddubs": maddubs,
    "x86-u8u8": exact,
    "x86-vnni": exact,
    "xnnpack-c2": eight_apart,
}
KINDS = {
    "x86-u8u8": ("uint8", "uint8"),
    "cmsis-s16": ("int16", "int8"),
    **dict.fromkeys(
        ("gemmlowp-2in16", "mlas-nbits-int8", "xnnpack-c2", "cmsis-s8"), ("int8", "int8")
    ),
}
"""Types of activations and weights; uint8 and int8 if not here."""
INTEGERS = {name: p.accumulator for name, p in hardware.presets().items() if p.zero_points}


def operands(name, shape, random):
    """Numbers of the whole range, a third of them the ends: `shape` is rows, depth, columns."""
    rows, depth, columns = shape
    for kind, size in zip(KINDS.get(name, ("uint8", "int8")), ((depth, columns), (rows, depth)),
                          strict=True):  # fmt: skip
        ends = np.iinfo(kind)
        numbers = random.integers(ends.min, ends.max, size, kind, endpoint=True)
        corner = random.choice(np.array([ends.min, ends.max], kind), size)
        yield np.where(random.random(size) < 0.3, corner, numbers)


def neighbours_by_position(products):
    """Pairs of 16 bits of the products (C, V) of a window, channels innermost."""
    return maddubs(np.asarray(products).T.reshape(-1).tolist())


@pytest.mark.parametrize("op_type", ["QLinearConv", "ConvInteger"])
def test_maddubs_pairs_neighbouring_channels_in_convolutions(op_type):
    """As onnxruntime's AVX2 kernels were seen to: pairs in QLinearConv, none in ConvInteger."""
    random = np.random.default_rng(5)
    x, w = (
        each.reshape(shape)
        for each, shape in zip(
            operands("x86-maddubs", (6, 27, 25), random), ((3, 9, 25), (6, 3, 3, 3)), strict=True
        )
    )
    x = x.reshape(1, 27, 5, 5)[:, :3]
    one, y_scale = np.float32(1), np.float32(400)
    scales = {"s": one, "ys": y_scale, "p": np.uint8(100), "wp": np.int8(0), "yp": np.uint8(128)}
    body = {
        "ConvInteger": "y = ConvInteger <kernel_shape=[3,3]> (x, w, p)",
        "QLinearConv": "y = QLinearConv <kernel_shape=[3,3]> (x, s, p, w, s, wp, ys, yp)",
    }[op_type]
    kind = "int32" if op_type == "ConvInteger" else "uint8"
    used = scales if op_type == "QLinearConv" else {"p": scales["p"]}
    proto = model(f"(uint8[1,3,5,5] x) => ({kind}[1,6,3,3] y) {{ {body} }}", w=w, **used)
    output, _ = narrowed(proto, parse_policy("x86-maddubs"), x)
    add = exact if op_type == "ConvInteger" else neighbours_by_position
    for m, i, j in np.ndindex(6, 3, 3):
        window = x[0, :, i : i + 3, j : j + 3].astype(int).reshape(3, 9)
        products = window * w[m].reshape(3, 9)
        total = add(products.reshape(-1).tolist() if add is exact else products)
        total -= 100 * int(w[m].astype(int).sum())
        if op_type == "QLinearConv":
            total = int(np.clip(np.rint(np.float32(total) / y_scale) + 128, 0, 255))
        assert output[0, m, i, j] == total


def test_every_preset_of_integers_has_a_rule_here():
    assert RULES.keys() == INTEGERS.keys()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("depth", at_night(DEPTHS, but=[1, 3, 8, 17, 257]))
@pytest.mark.parametrize("name", RULES)
def test_presets_are_their_rules(name, depth):
    random = np.random.default_rng(depth)
    right, left = operands(name, (3, depth, 5), random)
    case = left, right, None, Terms(depth), INTEGERS[name]
    expected = [
        [RULES[name]([int(a) * int(b) for a, b in zip(row, column, strict=True)])
         for column in right.T]
        for row in left
    ]  # fmt: skip
    for sums in (oracle.emulate(*case), emulate(*case), dots.measure(*case)[1]):
        np.testing.assert_array_equal(sums.values, expected)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("depth", [255, 256, 257, 512])
@pytest.mark.parametrize("weight", [127, -127])
def test_fbgemm_spills_every_256_terms(depth, weight):
    """255 times ±127 saturates each pair at once, so that each block adds one end of 16 bits."""
    left, right = np.full((1, depth), weight, np.int8), np.full((depth, 1), 255, np.uint8)
    (value,) = emulate(left, right, None, Terms(depth), INTEGERS["fbgemm-acc16"]).values.ravel()
    end = 32767 if weight > 0 else -32768
    last = {0: 0, 1: saturated(255 * weight)}.get(depth % 256, end)
    assert value == acc16([255 * weight] * depth) == depth // 256 * end + last


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", RULES)
def test_presets_subtract_zero_points_where_they_say(name):
    """In a whole node: the activation has a zero point, which is in the sum or not."""
    x, w = operands(name, (4, 37, 6), np.random.default_rng(3))
    x, w = x.T.copy(), w.T.copy()
    kind, weights = (str(each.dtype) for each in (x, w))
    if kind == "int16":
        pytest.skip("MatMulInteger has no operands of 16 bits")
    zero = x.dtype.type(100)
    proto = model(
        f"({kind}[6,37] x) => (int32[r,c] y) {{ y = MatMulInteger (x, w, p) }}", w=w, p=zero
    )
    output, _ = narrowed(proto, parse_policy(name), x)
    in_sum = hardware.presets()[name].zero_points == "after"
    for i, j in np.ndindex(*output.shape):
        offset = 0 if in_sum else 100
        total = RULES[name](
            [(int(a) - offset) * int(b) for a, b in zip(x[i], w[:, j], strict=True)]
        )
        assert output[i, j] == total - in_sum * 100 * int(w[:, j].astype(int).sum()), weights


def both(name, x, w, zero=0):
    """What the preset and onnxruntime compute, and the exact sums."""
    kinds = f"{x.dtype}[{x.shape[0]},{x.shape[1]}] x"
    body = f"({kinds}) => (int32[r,c] y) {{ y = MatMulInteger (x, w, p) }}"
    proto = model(body, w=w, p=x.dtype.type(zero))
    exact_sums = (x.astype(np.int64) - zero) @ w.astype(np.int64)
    return narrowed(proto, parse_policy(name), x)[0], onnxruntime(proto, {"x": x})[0], exact_sums


@pytest.mark.one_in(2)
@pytest.mark.skipif("avx2" not in FLAGS or "vnni" in FLAGS, reason="needs AVX2 without VNNI")
@pytest.mark.parametrize("zero", [0, 77])
def test_maddubs_is_what_onnxruntime_computes(zero):
    x, w = operands("x86-maddubs", (9, 301, 6), np.random.default_rng(1))
    ours, theirs, exact_sums = both("x86-maddubs", x.T.copy(), w.T.copy(), zero)
    np.testing.assert_array_equal(ours, theirs)
    assert (theirs != exact_sums).any()


def by_position(add):
    """A rule that begins anew at each position of a window (V, C)."""
    return lambda window: wrapped(sum(add(row) for row in window.tolist()))


def over_positions(add):
    """A rule that goes on from position to position."""
    return lambda window: add(window.reshape(-1).tolist())


WINDOWS = {
    "xnnpack-c2": by_position(eight_apart), "onednn-u8s8": by_position(maddubs),
    "gemmlowp-2in16": over_positions(eight_apart), "fbgemm-acc32": over_positions(maddubs),
    "fbgemm-acc16": over_positions(acc16),
}  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize("channels", [3, 8, 21])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_have_channels_innermost(name, channels):
    random = np.random.default_rng(channels)
    right, left = operands(name, (4, channels * 9, 3), random)
    if left.dtype == right.dtype:  # pairs of int8 wrap where all four factors are -128
        left, right = (np.where(each == 127, np.int8(-128), each) for each in (left, right))
    sums = emulate(left, right, None, Terms(channels, (3, 3)), INTEGERS[name])
    products = left[:, :, None].astype(int) * right[None]
    for row, column in np.ndindex(4, 3):
        window = products[row, :, column].reshape(channels, 9).T
        assert sums.values[row, column] == WINDOWS[name](window)


def layer_of_torch(engine, x, w, zero, biases, **conv):
    """Yields the outputs, 8 bits, of a quantised layer whose zero point is 100, for each bias.

    So a bias of less the sums of some output makes it 100.
    """
    torch = pytest.importorskip("torch")
    before, torch.backends.quantized.engine = torch.backends.quantized.engine, engine
    try:
        weights = torch._make_per_tensor_quantized_tensor(torch.from_numpy(w), 1.0, 0)
        activations = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 1.0, zero)
        for bias in map(torch.from_numpy, biases):
            if conv:
                sizes = [conv["stride"]] * 2, [conv["pad"]] * 2, [1, 1], conv["groups"]
                packed = torch.ops.quantized.conv2d_prepack(weights, bias, *sizes)
                y = torch.ops.quantized.conv2d(activations, packed, 1.0, 100)
            else:
                packed = torch.ops.quantized.linear_prepack(weights, bias)
                y = torch.ops.quantized.linear(activations, packed, 1.0, 100)
            yield y.int_repr().numpy()
    finally:
        torch.backends.quantized.engine = before


ENGINES = {"fbgemm": "fbgemm-acc32", "x86": "fbgemm-acc32", "onednn": "onednn-u8s8"}
needs_pairs = pytest.mark.skipif(
    "avx2" not in FLAGS or "vnni" in FLAGS, reason="needs AVX2 without VNNI"
)


@pytest.mark.one_in(3)
@needs_pairs
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("depth", [2, 37, 600])
def test_linear_layers_of_torch_have_pairs_that_saturate(engine, depth):
    x, w = operands(ENGINES[engine], (7, depth, 5), np.random.default_rng(depth))
    x = x.T.copy()
    ours = emulate(x, w.T, None, Terms(depth), INTEGERS[ENGINES[engine]]).values
    for sums, same in ((ours, True), (x.astype(int) @ w.T.astype(int), False)):
        outputs = layer_of_torch(engine, x, w, 0, -sums.astype(np.float32))
        rows = [y[row] for row, y in enumerate(outputs)]
        assert (np.array(rows) == 100).all() == same


LAYERS = {  # input channels, output channels, groups, kernel, stride, pad
    "even": (8, 6, 1, 3, 1, 1), "odd": (3, 8, 1, 3, 2, 0), "1x1": (7, 5, 1, 1, 1, 0),
    "groups": (16, 8, 4, 3, 1, 1), "depthwise": (16, 16, 16, 5, 1, 2),
}  # fmt: skip


@pytest.mark.one_in(3)
@needs_pairs
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("engine", at_night(ENGINES, but=["fbgemm", "onednn"]))
def test_convolutions_of_torch_have_pairs_that_saturate(engine, layer):
    inputs, outputs, groups, size, stride, pad = LAYERS[layer]
    random = np.random.default_rng(6)
    x = random.integers(128, 256, (1, inputs, 9, 9), np.uint8)
    w = random.integers(-128, 128, (outputs, inputs // groups, size, size), np.int8)
    w[::2] = random.integers(90, 128, w[::2].shape)
    body = f"kernel_shape=[{size},{size}], group={groups}, strides=[{stride},{stride}]"
    proto = model(
        f"(uint8[1,{inputs},9,9] x) => (int32[a,b,c,d] y)"
        f" {{ y = ConvInteger <{body}, pads=[{pad},{pad},{pad},{pad}]> (x, w, p) }}",
        w=w, p=np.uint8(9),
    )  # fmt: skip
    ours, wide = (narrowed(proto, parse_policy(each), x)[0][0] for each in (ENGINES[engine], "32"))
    is_exact = engine == "onednn" and layer == "depthwise"
    places = [(0, 0), (1, 2), (2, 1)]
    for sums, same in ((ours, True), (wide, is_exact)):
        biases = [-sums[:, i, j].astype(np.float32) for i, j in places]
        layers = layer_of_torch(engine, x, w, 9, biases, stride=stride, pad=pad, groups=groups)
        found = [y[0, :, i, j] for y, (i, j) in zip(layers, places, strict=True)]
        assert (np.array(found) == 100).all() == same


GEOMETRIES = {  # input channels, output channels, groups, kernel
    "odd channels": (3, 6, 1, 3), "1x1": (8, 5, 1, 1), "groups": (6, 4, 2, 3),
    "one input channel": (4, 8, 4, 3), "depthwise": (8, 8, 8, 3),
}  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.skipif("avx2" not in FLAGS or "vnni" in FLAGS, reason="needs AVX2 without VNNI")
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize(
    "kinds",
    [
        ("uint8", "int8"),
        ("int8", "int8"),
        pytest.param(("uint8", "uint8"), marks=pytest.mark.nightly),
    ],
)
def test_convolutions_saturate_as_in_onnxruntime(kinds, geometry):
    inputs, outputs, groups, size = GEOMETRIES[geometry]
    random = np.random.default_rng(7)
    shapes = (1, inputs, 6, 6), (outputs, inputs // groups, size, size)
    x, w = (
        random.choice([np.iinfo(kind).min, np.iinfo(kind).max, 5], shape).astype(kind)
        for kind, shape in zip(kinds, shapes, strict=True)
    )
    y_scale = np.float32(150 * np.sqrt(w[0].size))
    body = f"QLinearConv <kernel_shape=[{size},{size}], group={groups}>"
    proto = model(
        f"({kinds[0]}[1,{inputs},6,6] x) => ({kinds[0]}[a,b,c,d] y)"
        f" {{ y = {body} (x, s, p, w, s, q, u, r) }}",
        w=w, s=np.float32(1), p=x.dtype.type(9), q=w.dtype.type(0), u=y_scale,
        r=x.dtype.type(100 if kinds[0] == "uint8" else 0),
    )  # fmt: skip
    theirs = onnxruntime(proto, {"x": x})[0]
    np.testing.assert_array_equal(narrowed(proto, parse_policy("x86-maddubs"), x)[0], theirs)
    wide = narrowed(proto, parse_policy("32"), x)[0]
    assert (wide == theirs).all() == (kinds != ("uint8", "int8") or geometry == "depthwise")


@pytest.mark.nightly
@pytest.mark.skipif("avx2" not in FLAGS, reason="needs AVX2")
@pytest.mark.parametrize(
    "name",
    at_night(
        ["lenet/lenet", "resnet_cifar/resnet20", "transformer/transformer"],
        but=["lenet/lenet", "transformer/transformer"],
    ),
)
def test_networks_have_the_bits_of_onnxruntime(name, tmp_path):
    """The graph that onnxruntime makes of a network, with its kernels' sums: pairs, or exact."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    options.optimized_model_filepath = str(tmp_path / "fused.onnx")
    session = ort.InferenceSession(f"models/{name}.int8.onnx", options)
    fused = loading.load(tmp_path / "fused.onnx")
    digits = next(open_dataset("digits", fused, limit=4, folder=Path()).batches(4)).inputs
    sums = "x86-maddubs" if environment.saturates(environment.cpu_flags()) else "x86-vnni"
    emulation = AccumulatorEmulation(fused, parse_policy(sums))
    ours = Interpreter(fused, wrap_kernel=emulation.wrap, fuse=emulation.fuse).run(None, digits)
    np.testing.assert_array_equal(ours[0], session.run(None, digits)[0])


@pytest.mark.skipif("vnni" not in FLAGS, reason="needs VNNI")
@pytest.mark.parametrize("weight", [127, -128])
def test_vnni_wraps_in_onnxruntime(weight):
    """70,000 terms are more than 32 bits hold; onnxruntime's blocks of terms do not saturate."""
    x, w = np.full((2, 70016), 255, np.uint8), np.full((70016, 3), weight, np.int8)
    ours, theirs, exact_sums = both("x86-vnni", x, w)
    np.testing.assert_array_equal(ours, theirs)
    assert (theirs == wrapped(exact_sums)).all() and (theirs != exact_sums).all()


@pytest.mark.one_in(2)
@pytest.mark.skipif("avx2" not in FLAGS, reason="needs AVX2")
@pytest.mark.parametrize("depth", [301, 66000])
def test_products_of_uint8_are_exact_in_onnxruntime(depth):
    x, w = np.full((2, depth), 255, np.uint8), np.full((depth, 3), 255, np.uint8)
    ours, theirs, exact_sums = both("x86-u8u8", x, w)
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(theirs, wrapped(exact_sums))
