"""Convolutions of 8-bit integers: exact sums, or pairs of products that saturate at 16 bits.

Processors without VNNI multiply unsigned activations and signed weights in pairs (VPMADDUBSW).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tracer.arithmetic.kernel import Kernel
from tracer.arithmetic.replays import interpreter
from tracer.arithmetic.rule import NotKnown, Rule, are_equal
from tracer.arithmetic.windows import slide
from tracer.interpreter.compiled_code import loaded
from tracer.interpreter.numeric.windows import Window, padded, patches
from tracer.interpreter.ops.quantized import requantized
from tracer.support.types import Array

_TEXTS = {
    "exact": "exact sums",
    "channels": "pairs of neighbouring channels at one position saturate at 16 bits",
    "positions": "pairs of neighbouring positions of one channel saturate at 16 bits",
}
_RUNS = 4
_SIGN = 128
"""What signed activations are raised by, to be unsigned."""


_PLACES = {
    "ConvInteger": ("x", "w", "x_zero", "w_zero"),
    "QLinearConv": (
        *("x", "x_scale", "x_zero", "w", "w_scale", "w_zero"), *("y_scale", "y_zero", "bias"),
    ),
}  # fmt: skip


class _IntegerConv:
    """The way is found on activations and weights that saturate; a model's own may not."""

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        samples = list(_samples(kernel))
        for way, text in _TEXTS.items():
            facts = {"way": way}
            replayed = ((self.replay(k, facts, inputs), output) for k, inputs, output in samples)
            if all(are_equal(out[0], output).all() for out, output in replayed):
                yield Rule(text, facts)
                return
        raise NotKnown("8-bit sums are neither exact nor saturate in known pairs")

    def replay(
        self, kernel: Kernel, facts: Mapping[str, Any], inputs: Mapping[str, Array]
    ) -> list[Array]:
        if facts["way"] == "exact":
            return interpreter.REPLAY.replay(kernel, {}, inputs)
        given = _operands(kernel, inputs)
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


def _operands(kernel: Kernel, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Returns the inputs that a node has, by the names in `_PLACES`."""
    values = zip(_PLACES[kernel.op_type], kernel.values(inputs), strict=False)
    return {name: value for name, value in values if value is not None}


def saturated_sums(given: Mapping[str, Array], slid: Window, group: int, way: str) -> Array:
    """Returns the sums (N, M, *out), int32, of pairs that saturate in the order of a way.

    `given` has `x` (N, C, *size), `w` (M, C / group, *kernel), and may have their zero points.
    """
    x, w = given["x"], given["w"].astype(np.int16)
    lift = _SIGN if x.dtype == np.int8 else 0
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
    loaded("pairs", "tracer.arithmetic.kernels").add_pairs(a, b, out)
    w_zero = np.asarray(given.get("w_zero", 0), np.int32)
    if w_zero.size > 1:
        w_zero = np.tile(w_zero.reshape(group, maps, 1), (images, 1, 1))
    rows = a.sum(axis=2, keepdims=True, dtype=np.int32)
    columns = b.sum(axis=1, keepdims=True, dtype=np.int32)
    out += a.shape[2] * zero * w_zero - zero * rows - w_zero * columns
    return out.reshape(images, group * maps, *slid.out)


def _samples(kernel: Kernel) -> Iterator[tuple[Kernel, dict[str, Array], Array]]:
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
            given = _operands(kernel, kernel.draw(random))
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


_REPLAY = _IntegerConv()
REPLAYS = {
    "ConvInteger": _REPLAY,
    "QLinearConv": _REPLAY,
    "com.microsoft:QLinearConv": _REPLAY,
}
