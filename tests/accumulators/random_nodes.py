"""Random nodes: their models, their inputs, and the matrices that are multiplied in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.accumulators.patches import patches
from tests.accumulators.random_rules import Kind, words
from tracer.accumulators.spec.orders import Terms
from tracer.interpreter.numeric.windows import Window, window

BYTES = {"int16": "int8", "uint16": "uint8"}


@dataclass(frozen=True)
class Part:
    """The dot products `left` (M, K) times `right` (K, P), both without their zero points.

    The sums of blocks are scaled by `steps` (M, P), float32.
    """

    left: np.ndarray
    right: np.ndarray
    bias: np.ndarray
    zeros: tuple[int, int] = (0, 0)
    steps: np.ndarray | None = None


@dataclass(frozen=True)
class Node:
    """A model of one node, its input, and its sums: of groups of channels, or of blocks.

    `shape` is that of a sum's products: channels and the window. Sums of groups are scaled by
    `step`; sums of blocks have steps, are added, and `added` (M) to them, in float32.
    """

    model: onnx.ModelProto
    x: np.ndarray
    parts: tuple[Part, ...]
    shape: tuple[int, int, int, int]
    words: dict[str, Any]
    step: float = 1.0
    added: np.ndarray | None = None
    fixed: str = ""

    @property
    def stored(self) -> str:
        """How operands are stored, in a word."""
        if self.added is not None:
            return "shared exponents" if self.fixed else "scaled blocks"
        return "fixed point" if self.fixed else "integers"

    def output(self, sums: Sequence[np.ndarray]) -> np.ndarray:
        """The output (M, P), float32, or int32 of products of integers, from all sums (M, P)."""
        if self.model.graph.node[-1].op_type.endswith("Integer"):
            return np.concatenate(sums).astype(np.int32)
        if self.added is None:
            return (np.concatenate(sums) * self.step).astype(np.float32)
        total = np.zeros(sums[0].shape, np.float32)
        for each, part in zip(sums, self.parts, strict=True):
            total += each.astype(np.float32) * part.steps
        return total + self.added[:, None]


def drawn(kind: Kind, random: np.random.Generator) -> Node:
    """A random node of a kind."""
    form, _, op = kind.form.rpartition(" ")
    makes = {"shared Conv": _shared_conv, "shared": _shared_gemm, "scaled": _scaled_gemm}
    make = makes.get(kind.form) or makes.get(form) or _BY_OPERATOR[op]
    node: Node = make(kind, random)
    return node


def _gemm(kind: Kind, random: np.random.Generator) -> Node:
    depth = _depth(random)
    columns, rows = kind.rows, _rows(kind)
    stored = _Stored.drawn(kind, random, (rows, depth), (columns, depth))
    bias = stored.bias(random, columns)
    part = Part(stored.left, stored.right.T, bias, stored.zeros)
    shape = (depth, 1, 1, 1)
    turned = {} if stored.op == "MatMulInteger" else {"transB": 1}
    return stored.node(kind, random, (part,), shape, bias, turned)


def _conv(kind: Kind, random: np.random.Generator) -> Node:
    shapes = np.random.default_rng(kind.shapes)
    rank, groups = int(shapes.integers(1, 4)), int(shapes.choice([1, 1, 2, 3]))
    size, kernel, attributes = slides(shapes, rank)
    channels, maps = int(random.integers(1, 6)), kind.rows
    if groups > 1 and random.random() < 0.5:  # depthwise
        channels = 1
    images = int(shapes.integers(1, 4 if rank < 3 else 2))
    stored = _Stored.drawn(
        kind, random, (images, groups * channels, *size), (groups * maps, channels, *kernel)
    )
    slid = window(size, kernel, *attributes.values(), "NOTSET")
    options = {"group": groups, **attributes}
    return _convolution(stored, kind, random, (stored.right, stored.left, slid), options)


def slides(
    shapes: np.random.Generator, rank: int
) -> tuple[list[int], list[int], dict[str, list[int]]]:
    """The size of images, a kernel, and the attributes of windows that fit."""
    kernel, strides, dilations = (
        [int(shapes.integers(1, most + 1)) for _ in range(rank)] for most in (3, 2, 2)
    )
    pads = [int(shapes.integers(0, k)) for k in kernel * 2]
    size = [int(shapes.integers(5, 9 if rank < 3 else 7)) for _ in range(rank)]
    return size, kernel, {"strides": strides, "pads": pads, "dilations": dilations}


def _conv_transpose(kind: Kind, random: np.random.Generator) -> Node:
    """With zeros between the elements of the input, the convolution with the turned kernel."""
    shapes = np.random.default_rng(kind.shapes)
    rank, groups = int(shapes.integers(1, 4)), int(shapes.choice([1, 1, 2]))
    kernel, strides = ([int(shapes.integers(1, 4)) for _ in range(rank)] for _ in range(2))
    size = [int(shapes.integers(2, 5 if rank < 3 else 4)) for _ in range(rank)]
    channels, maps = int(random.integers(1, 5)), kind.rows
    images = int(shapes.integers(1, 3))
    stored = _Stored.drawn(
        kind, random, (images, groups * channels, *size), (groups * channels, maps, *kernel)
    )
    around = [(n - 1) * s + 1 for n, s in zip(size, strides, strict=True)]
    spread = np.zeros((images, groups * channels, *around), np.int64)
    spread[:, :, *(slice(None, None, s) for s in strides)] = stored.right
    by_group = stored.left.reshape(groups, channels, maps, *kernel).swapaxes(1, 2)
    turned = np.flip(by_group, tuple(range(3, 3 + rank))).reshape(groups * maps, channels, *kernel)
    pads = [k - 1 for k in kernel] * 2
    slid = window(around, kernel, [1] * rank, pads, [1] * rank, "NOTSET")
    attributes = {"group": groups, "strides": strides}
    return _convolution(stored, kind, random, (spread, turned, slid), attributes)


_BY_OPERATOR = {"Gemm": _gemm, "MatMulInteger": _gemm, "Conv": _conv, "ConvInteger": _conv,
                "ConvTranspose": _conv_transpose}  # fmt: skip


def _convolution(
    stored: _Stored, kind: Kind, random: np.random.Generator,
    slides: tuple[np.ndarray, np.ndarray, Window], attributes: dict[str, Any],
) -> Node:  # fmt: skip
    """The node whose sums are those of windows over images times kernels."""
    (x, w, slid), groups = slides, attributes["group"]
    maps, channels = len(w) // groups, w.shape[1]
    bias = stored.bias(random, len(w))
    parts = []
    for g in range(groups):
        rows = slice(g * maps, (g + 1) * maps)
        columns = patches(x[:, g * channels : (g + 1) * channels], slid, 0)
        parts.append(Part(w[rows].reshape(maps, -1), columns, bias[rows], stored.zeros))
    shape = shape_of(channels, slid.kernel)
    return stored.node(kind, random, tuple(parts), shape, bias, attributes)


def shape_of(channels: int, kernel: Sequence[int]) -> tuple[int, int, int, int]:
    deep, high, wide = (1,) * (3 - len(kernel)) + tuple(kernel)
    return channels, deep, high, wide


@dataclass(frozen=True)
class _Stored:
    """The operands of a node as they are stored, and as integers without zero points.

    A node is between DequantizeLinear of steps 1, or takes integers, or floats in fixed point.
    """

    op: str
    fixed: tuple[int, int, int, int] | None
    x: np.ndarray
    w: np.ndarray
    zeros: tuple[int, int]
    right: np.ndarray
    left: np.ndarray

    @classmethod
    def drawn(
        cls, kind: Kind, random: np.random.Generator, of_x: Sequence[int], of_w: Sequence[int]
    ) -> _Stored:
        form, _, op = kind.form.rpartition(" ")
        if form == "fixed":
            fractions = [int(random.integers(-3, 9)) for _ in range(2)]
            bits = [int(random.integers(2, 11)) for _ in range(2)]
            (x, right), (w, left) = (
                _fixed(random, shape, *rule)
                for shape, rule in zip((of_x, of_w), zip(bits, fractions, strict=True), strict=True)
            )
            return cls(
                op, (bits[0], fractions[0], bits[1], fractions[1]), x, w, (0, 0), right, left
            )
        types = kind.types if op not in ("MatMulInteger", "ConvInteger") else (
            BYTES.get(kind.types[0], kind.types[0]), BYTES.get(kind.types[1], kind.types[1])
        )  # fmt: skip
        x, xz = _quantized(random, types[0], kind.reach, of_x)
        w, wz = _quantized(random, types[1], kind.reach, of_w)
        return cls(op, None, x, w, (wz, xz), x.astype(np.int64) - xz, w.astype(np.int64) - wz)

    def bias(self, random: np.random.Generator, rows: int) -> np.ndarray:
        """A bias; half of them are 0, and products of integers have none."""
        size = int(random.choice([0, 0, 1 << int(random.integers(1, 24))]))
        return random.integers(-size, size, rows, endpoint=True) * (not self.op.endswith("Integer"))

    def node(
        self, kind: Kind, random: np.random.Generator, parts: tuple[Part, ...],
        shape: tuple[int, int, int, int], bias: np.ndarray, attributes: dict[str, Any],
    ) -> Node:  # fmt: skip
        largest = int(np.abs(self.left).max() * np.abs(self.right).max())
        rule = words(kind, random, largest, Terms(shape[0], shape[1:]))
        rule["zero_points"] = str(random.choice(["before", "before", "after"]))
        step, fixed, x = 1.0, "", self.x
        if self.fixed is not None:
            step = 2.0 ** -(self.fixed[1] + self.fixed[3])
            fixed = "{}:{}/{}:{}".format(*self.fixed)
            c = (bias * step).astype(np.float32)
            model = model_of([helper.make_node(self.op, ["x", "w", "b"], ["y"], **attributes)], x,
                           w=self.w, b=c)  # fmt: skip
        elif self.op.endswith("Integer"):
            w = self.w.T.copy() if self.op == "MatMulInteger" else self.w
            names = ["x", "w", "xz", "wz"]
            node = helper.make_node(self.op, names, ["y"], **attributes)
            model = model_of([node], x, w=w, **self._zero_points())
        else:
            x = self.x.astype(np.float32) - self.zeros[1]
            model = self._dequantized(x, bias, attributes)
        return Node(model, x, parts, shape, rule, step, None, fixed)

    def _zero_points(self) -> dict[str, Any]:
        wz, xz = self.zeros
        return {"xz": self.x.dtype.type(xz), "wz": self.w.dtype.type(wz)}

    def _dequantized(
        self, x: np.ndarray, bias: np.ndarray, attributes: dict[str, Any]
    ) -> onnx.ModelProto:
        """The operator between tensors whose steps are 1, so that its output are its sums."""
        nodes = [
            helper.make_node("QuantizeLinear", ["x", "one", "xz"], ["xq"]),
            helper.make_node("DequantizeLinear", ["xq", "one", "xz"], ["xd"]),
            helper.make_node("DequantizeLinear", ["w", "one", "wz"], ["wd"]),
            helper.make_node("DequantizeLinear", ["b", "one"], ["bd"]),
            helper.make_node(self.op, ["xd", "wd", "bd"], ["y"], **attributes),
        ]
        return model_of(nodes, x, one=np.float32(1), w=self.w, b=bias.astype(np.int32),
                      **self._zero_points())  # fmt: skip


def _rows(kind: Kind) -> int:
    return int(np.random.default_rng(kind.shapes).choice([1, 3, 8, 20, 37]))


def _depth(random: np.random.Generator) -> int:
    return int(random.integers(385, 500) if random.random() < 0.02 else random.integers(1, 60))


def _quantized(
    random: np.random.Generator, kind: str, size: int, shape: Sequence[int]
) -> tuple[np.ndarray, int]:
    """Integers of a type, and their zero point, from which they are at most `size` away."""
    info = np.iinfo(kind)
    zero = int(random.choice([0, random.integers(info.min, info.max, endpoint=True)]))
    low, high = max(zero - size, info.min), min(zero + size, info.max)
    return random.integers(low, high, shape, info.dtype, endpoint=True), zero


def _fixed(
    random: np.random.Generator, shape: Sequence[int], bits: int, fraction: int
) -> tuple[np.ndarray, np.ndarray]:
    """Floats, ties and numbers out of range among them, and the integers of their fixed point."""
    quarters = random.integers(-(5 << bits), 5 << bits, shape, endpoint=True)
    high = (1 << bits - 1) - 1
    down, rest = quarters // 4, quarters % 4
    integers = np.clip(down + (rest + down % 2 > 2), -high - 1, high)
    return np.ldexp(quarters, -fraction - 2).astype(np.float32), integers


def _shared_gemm(kind: Kind, random: np.random.Generator) -> Node:
    """A product of matrices of floats, each block of which has one exponent along its sum."""
    depth, rows, columns = _depth(random), _rows(kind), kind.rows
    bits, size = random.integers(2, 11, 2).tolist(), int(random.choice([1, 3, 4, 8, 16, 64]))
    x, w = _floats(random, (rows, depth)), _floats(random, (columns, depth))
    (right, of_x), (left, of_w) = (_blocks(v, n, size) for v, n in zip((x, w), bits, strict=True))
    parts = tuple(
        Part(left[:, b], right[:, b].T, np.zeros(columns, np.int64),
             steps=(of_w[:, b, None] * of_x[:, b]).astype(np.float32))
        for b in range(left.shape[1])
    )  # fmt: skip
    c = _floats(random, (columns,))
    if kind.form.endswith("Gemm"):
        proto = model_of([helper.make_node("Gemm", ["x", "w", "c"], ["y"], transB=1)], x, w=w, c=c)
    else:
        c = np.zeros_like(c)
        proto = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], x, w=w.T.copy())
    return _of_blocks(kind, random, proto, x, parts, c, f"{bits[0]}:block({size})", bits[1])


def _shared_conv(kind: Kind, random: np.random.Generator) -> Node:
    """A convolution, whose blocks are of channels at one place of an image and of a kernel."""
    shapes = np.random.default_rng(kind.shapes)
    rank, images, maps = int(shapes.integers(1, 4)), int(shapes.integers(1, 3)), kind.rows
    shape, kernel, attributes = slides(shapes, rank)
    channels = int(random.integers(1, 20 if rank < 3 else 9))
    bits, size = random.integers(2, 11, 2).tolist(), int(random.choice([1, 3, 4, 8, 16]))
    x, w = _floats(random, (images, channels, *shape)), _floats(random, (maps, channels, *kernel))
    slid = window(shape, kernel, *attributes.values(), "NOTSET")
    q, of_x = _blocks(np.moveaxis(x, 1, -1), bits[0], size)  # (N, *size, blocks, numbers)
    k, of_w = _blocks(np.moveaxis(w, 1, -1), bits[1], size)
    blocks, places = q.shape[-2], int(np.prod(kernel))
    flat = np.moveaxis(q.reshape(*q.shape[:-2], -1), -1, 1)
    right = patches(flat, slid, 0).reshape(blocks, q.shape[-1], places, -1)
    steps = patches(np.moveaxis(of_x, -1, 1), slid, 1.0).reshape(blocks, places, -1)
    left, own = k.reshape(maps, places, blocks, -1), of_w.reshape(maps, places, blocks)
    parts = tuple(
        Part(left[:, p, b], right[b, :, p], np.zeros(maps, np.int64),
             steps=(own[:, p, b, None] * steps[b, p]).astype(np.float32))
        for p in range(places) for b in range(blocks)
    )  # fmt: skip
    c = _floats(random, (maps,))
    proto = model_of([helper.make_node("Conv", ["x", "w", "c"], ["y"], **attributes)], x, w=w, c=c)
    return _of_blocks(kind, random, proto, x, parts, c, f"{bits[0]}:block({size})", bits[1])


def _scaled_gemm(kind: Kind, random: np.random.Generator) -> Node:
    """Quantised rows times weights with a scale and a zero point for each block of a column."""
    depth, rows, columns = _depth(random), _rows(kind), kind.rows
    size = int(random.choice([1, 3, 4, 8, 16, 64]))
    blocks = -(-depth // size)
    x, xz = _quantized(random, BYTES.get(kind.types[0], kind.types[0]), kind.reach, (rows, depth))
    w = random.integers(-128, 127, (columns, depth), np.int8, endpoint=True)
    zeros = random.integers(-9, 9, (columns, blocks), np.int8, endpoint=True)
    steps = random.uniform(0.001, 0.1, (columns, blocks)).astype(np.float32)
    places, step = np.arange(depth) // size, np.float32(random.choice([0.5, 0.3, 1.0]))
    left, right = (np.zeros((n, blocks * size), np.int64) for n in (columns, rows))
    left[:, :depth] = w.astype(np.int64) - zeros[:, places]
    right[:, :depth] = x.astype(np.int64) - xz
    cuts = [slice(b * size, (b + 1) * size) for b in range(blocks)]
    parts = tuple(
        Part(left[:, cut], right[:, cut].T, np.zeros(columns, np.int64),
             steps=(np.float64(step) * steps[:, b, None]).astype(np.float32))
        for b, cut in enumerate(cuts)
    )  # fmt: skip
    c = _floats(random, (columns,)) * kind.form.endswith("Gemm")
    turned = kind.form.endswith("Gemm")
    numbers = {"w": w, "t": steps, "v": zeros}
    if not turned:
        numbers = {name: value.T.copy() for name, value in numbers.items()}
    inputs = ["xd", "wd", *(["c"] if turned else [])]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "t", "v"], ["wd"], axis=int(turned),
                         block_size=size),
        helper.make_node("Gemm" if turned else "MatMul", inputs, ["y"],
                         **({"transB": 1} if turned else {})),
    ]  # fmt: skip
    proto = model_of(nodes, x, s=step, xz=x.dtype.type(xz), c=c.astype(np.float32), **numbers)
    return _of_blocks(kind, random, proto, x, parts, c, "", 0)


def _of_blocks(
    kind: Kind, random: np.random.Generator, proto: onnx.ModelProto, x: np.ndarray,
    parts: tuple[Part, ...], added: np.ndarray, fixed: str, bits: int,
) -> Node:  # fmt: skip
    largest = max(int(np.abs(p.left).max() * np.abs(p.right).max()) for p in parts)
    size = parts[0].left.shape[1]
    rule = words(kind, random, largest, Terms(size))
    other = f"/{bits}:{fixed.partition(':')[2]}" if fixed else ""
    shape = (size, 1, 1, 1)
    return Node(proto, x, parts, shape, rule, 1.0, added.astype(np.float32), fixed + other)


def _floats(random: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
    """Numbers of very different sizes, zeros among them."""
    reach = int(random.choice([1, 4, 12]))
    values = random.normal(0, 1, shape) * np.exp2(random.integers(-reach, reach, shape))
    return (values * (random.random(shape) < 0.9)).astype(np.float32)


def _blocks(values: np.ndarray, bits: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The integers (..., blocks, size) and steps (..., blocks) of values (..., K).

    The exponent of a block is that of its largest magnitude, which so has all bits but the sign.
    """
    size = min(size, values.shape[-1])
    missing = -values.shape[-1] % size
    whole = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, missing)])
    whole = whole.reshape(*values.shape[:-1], -1, size)
    largest = np.abs(whole).max(-1)
    exponents = (largest.view(np.int32) >> 23) - 127  # of normal numbers, and -127 of 0
    steps = np.where(largest > 0, exponents - bits + 2, 0)
    high = (1 << bits - 1) - 1
    ratios = np.ldexp(whole.astype(np.float64), -steps[..., None])
    return np.clip(np.rint(ratios), -high - 1, high).astype(np.int64), np.ldexp(1.0, steps)


def model_of(nodes: list[onnx.NodeProto], x: np.ndarray, **stored: Any) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    of_y = onnx.TensorProto.INT32 if nodes[-1].op_type.endswith("Integer") else 1
    graph = helper.make_graph(
        nodes, "node",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", of_y, [None] * x.ndim)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in stored.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
