"""Kernels of 8-bit integers: convolutions and products of matrices.

Sums are exact, or pairs of products saturate at 16 bits: processors without VNNI multiply unsigned
activations and signed weights in pairs (VPMADDUBSW). The way is found on activations and weights
that saturate; a model's own may not.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tracer.arithmetic.kernel import (
    Facts,
    Inputs,
    Kernel,
    NotKnown,
    Replay,
    Rule,
    are_equal,
    share_of_equal,
)
from tracer.arithmetic.replays import INTERPRETED
from tracer.arithmetic.replays.conv import slide
from tracer.interpreter.compiled_code import loaded
from tracer.interpreter.numeric.windows import Window, padded, patches
from tracer.interpreter.ops.matmul import integer_matmul
from tracer.interpreter.ops.quantization import dynamic_quantize_linear
from tracer.interpreter.ops.quantized import gemm_output, matmul_factor, requantized
from tracer.support.types import Array

_WAYS = {
    "exact": "exact sums",
    "channels": "pairs of neighbouring channels at one position saturate at 16 bits",
    "positions": "pairs of neighbouring positions of one channel saturate at 16 bits",
}
_RUNS = 4
_SHIFT = 1 << 7
"""What MLAS adds to activations that are int8, and to their zero points."""
_PLACES = {
    "ConvInteger": ("x", "w", "x_zero", "w_zero"),
    "QLinearConv": (
        *("x", "x_scale", "x_zero", "w", "w_scale", "w_zero"), *("y_scale", "y_zero", "bias"),
    ),
}  # fmt: skip


class _IntegerConv:
    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        samples = list(_extreme_runs(kernel))
        for way, text in _WAYS.items():
            facts = {"way": way}
            replayed = ((self.replay(k, facts, inputs), output) for k, inputs, output in samples)
            if all(are_equal(out[0], output).all() for out, output in replayed):
                yield Rule(text, facts)
                return
        raise NotKnown("8-bit sums are neither exact nor saturate in known pairs")

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        if facts["way"] == "exact":
            return kernel.interpret(inputs)
        given = _by_name(kernel, inputs)
        is_last = bool(kernel.attributes.get("channels_last", 0))
        x = given["x"] = np.moveaxis(given["x"], -1, 1) if is_last else given["x"]
        slid = slide(x.shape, given["w"].shape, kernel.attributes)
        out = saturated_sums(given, slid, kernel.attributes.get("group", 1), facts["way"])
        by_channel = (-1, *[1] * (x.ndim - 2))
        if "bias" in given:
            out += given["bias"].reshape(by_channel)
        if "y_scale" in given:
            scale = given["w_scale"].reshape(by_channel if given["w_scale"].size > 1 else ())
            factor = given["x_scale"] * scale / given["y_scale"]
            out = requantized(out, factor, given["y_zero"])
        return [np.ascontiguousarray(np.moveaxis(out, 1, -1) if is_last else out)]


def _by_name(kernel: Kernel, inputs: Inputs) -> dict[str, Array]:
    """Returns the inputs that a node has, by the names in `_PLACES`."""
    values = zip(_PLACES[kernel.op_type], kernel.values(inputs), strict=False)
    return {name: value for name, value in values if value is not None}


def saturated_sums(given: Mapping[str, Array], slid: Window, group: int, way: str) -> Array:
    """Returns the sums (N, M, *out), int32, of pairs that saturate in the order of a way.

    `given` has `x` (N, C, *size), `w` (M, C / group, *kernel), and may have their zero points.
    """
    x, w = given["x"], given["w"].astype(np.int16)
    lift = _SHIFT if x.dtype == np.int8 else 0
    zero = lift + int(given.get("x_zero", 0))
    images, maps, channels = len(x), len(w) // group, w.shape[1]
    volume, pixels = math.prod(slid.kernel), slid.pixels
    windows = patches(padded(x.astype(np.int16) + lift, slid, fill=zero), slid)
    left = w.reshape(group, maps, channels, volume)
    right = windows.reshape(images * group, channels, volume, pixels)
    if way == "channels":
        left, right = left.swapaxes(2, 3), right.swapaxes(1, 2)
    a: Array = np.tile(left.reshape(group, maps, -1), (images, 1, 1))
    b: Array = np.ascontiguousarray(right).reshape(images * group, -1, pixels)
    out = np.empty((images * group, maps, pixels), np.int32)
    loaded("sums", "tracer.arithmetic.kernels").add_pairs(a, b, out)
    w_zero = np.asarray(given.get("w_zero", 0), np.int32)
    if w_zero.size > 1:
        w_zero = np.tile(w_zero.reshape(group, maps, 1), (images, 1, 1))
    rows = a.sum(axis=2, keepdims=True, dtype=np.int32)
    columns = b.sum(axis=1, keepdims=True, dtype=np.int32)
    out += a.shape[2] * zero * w_zero - zero * rows - w_zero * columns
    return out.reshape(images, group * maps, *slid.out)


def _extreme_runs(kernel: Kernel) -> Iterator[tuple[Kernel, dict[str, Array], Array]]:
    """Yields kernels, inputs and outputs with activations and weights at the ends of their range.

    The scale of the output is one that keeps most sums within its range.
    """
    random, places = np.random.default_rng(1), _PLACES[kernel.op_type]
    at = {name: places.index(name) for name in ("x", "w")}
    w = kernel.shape(at["w"]) or ()
    scales = kernel.constant(places.index("y_scale")) if "y_scale" in places else None
    for _ in range(_RUNS):
        changed = {}
        if scales is not None:
            given = _by_name(kernel, kernel.draw(random))
            unit = float(np.max(given["x_scale"])) * float(np.max(given["w_scale"]))
            spread = unit * 255 * math.sqrt(math.prod(w[1:]))
            changed[places.index("y_scale")] = np.array(spread, np.float32).reshape(scales.shape)
        if (weights := kernel.constant(at["w"])) is not None:
            changed[at["w"]] = _extremes(random, weights.dtype, w)
        probed = kernel.with_constants(changed)
        inputs = probed.draw(random)
        for place in at.values():
            if (name := kernel.node.input[place]) in inputs:
                inputs[name] = _extremes(random, inputs[name].dtype, inputs[name].shape)
        yield probed, inputs, probed.run(inputs)[0]


def _extremes(random: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> Array:
    """Returns integers of 8 bits, of which half are the least or greatest."""
    ends = np.iinfo(dtype)
    values = random.integers(ends.min, ends.max, shape, dtype, endpoint=True)
    at_end = np.where(random.random(shape) < 0.3, ends.min, ends.max).astype(dtype)
    return np.where(random.random(shape) < 0.5, at_end, values)


_EXACT = Rule("sums of products are exact, and wrap at 32 bits")
_PAIRS = Rule(
    "products of terms 0 and 1, 2 and 3 … are added, and saturate, in 16 bits (x86-maddubs)",
    {"pairs": True},
)


class _Integers:
    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        """Yields the rules that hold for weights of the whole range: those stored may be small."""
        place = 3 if kernel.op_type in ("QLinearMatMul", "QGemm") else 1
        weights = kernel.constant(place)
        extreme = kernel
        if weights is not None:
            info = np.iinfo(weights.dtype)
            random = np.random.default_rng(0)
            drawn = random.integers(info.min, info.max, weights.shape, endpoint=True)
            extreme = kernel.with_constants({place: drawn.astype(weights.dtype)})
        for rule in (_EXACT, _PAIRS):
            if share_of_equal(self, extreme, rule) == 1:
                yield rule

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        if not facts.get("pairs"):
            return kernel.interpret(inputs)
        values = kernel.values(inputs)
        values += [None] * (9 - len(values))
        finish = _FINISHES[kernel.op_type]
        return [finish(kernel, values)]


def _product_sums(a: Array, zero_a: Array | None, b: Array, zero_b: Array | None) -> Array:
    """Returns the products of matrices less their zero points, from sums whose pairs saturate.

    Weights that are uint8 take another instruction, which does not saturate.
    """
    left = np.zeros((), np.int32) if zero_a is None else zero_a.astype(np.int32)
    right = np.zeros((), np.int32) if zero_b is None else zero_b.astype(np.int32)
    left = left[..., None] if left.size > 1 else left.reshape(())
    if a.dtype == np.int8:
        a, left = (a.astype(np.int16) + _SHIFT).astype(np.uint8), left + _SHIFT
    lines = a.astype(np.int32).sum(-1, keepdims=True, dtype=np.int32)
    columns = b.astype(np.int32).sum(-2, keepdims=True, dtype=np.int32)

    def add_pairs(first: Array, second: Array, out: Array) -> None:
        wide = (each[None].astype(np.int16, order="C") for each in (first, second))
        loaded("sums", "tracer.arithmetic.kernels").add_pairs(*wide, out[None])

    raw = integer_matmul(a, b, add_pairs)
    sums: Array = raw - left * columns - right * lines + a.shape[-1] * left * right
    return sums


def _to_float(kernel: Kernel, values: list[Any]) -> Array:
    a, b, a_scale, b_scale, zero_a, zero_b, bias, *_ = values
    product: Array = _product_sums(a, zero_a, b, zero_b).astype(np.float32) * (a_scale * b_scale)
    return product if bias is None else product + bias


def _dynamic(kernel: Kernel, values: list[Any]) -> Array:
    a, b, b_scale, zero_b, bias, *_ = values
    quantised, scale, zero_a = dynamic_quantize_linear(a)
    return _to_float(kernel, [quantised, b, scale, b_scale, zero_a, zero_b, bias])


def _requantised(kernel: Kernel, values: list[Any]) -> Array:
    a, a_scale, zero_a, b, b_scale, zero_b, y_scale, zero_y, *_ = values
    factor = matmul_factor(a_scale, b_scale, y_scale)
    return requantized(_product_sums(a, zero_a, b, zero_b), factor, zero_y)


def _gemm(kernel: Kernel, values: list[Any]) -> Array:
    a, a_scale, zero_a, b, b_scale, zero_b, bias, y_scale, zero_y = values
    attributes = kernel.attributes
    sums = _product_sums(
        a.T if attributes.get("transA") else a, zero_a,
        b.T if attributes.get("transB") else b, zero_b,
    )  # fmt: skip
    step = np.float32(attributes.get("alpha", 1.0)) * a_scale * b_scale
    return gemm_output(sums if bias is None else sums + bias, step, y_scale, zero_y)


_FINISHES = {
    "MatMulInteger": lambda kernel, values: _product_sums(
        values[0], values[2], values[1], values[3]
    ),
    "MatMulIntegerToFloat": _to_float,
    "DynamicQuantizeMatMul": _dynamic,
    "QLinearMatMul": _requantised,
    "QGemm": _gemm,
}
_STANDARD = ("MatMulInteger", "QLinearMatMul")


_CONV = _IntegerConv()
_STANDARD = ("MatMulInteger", "QLinearMatMul")
REPLAYS: dict[str, Replay] = {
    "ConvInteger": _CONV,
    "QLinearConv": _CONV,
    "com.microsoft:QLinearConv": _CONV,
    **{n if n in _STANDARD else f"com.microsoft:{n}": _Integers() for n in _FINISHES},
    "com.microsoft:QLinearSoftmax": INTERPRETED,
    "com.microsoft:QLinearAveragePool": INTERPRETED,
}
