"""Nodes in narrow accumulators, and their sums by Python integers, one term at a time."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.spec.policy import Policy
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter

RANDOM = np.random.default_rng()


def model(body: str, **weights: np.ndarray) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 20]> g {body}')
    for name, value in weights.items():
        proto.graph.initializer.append(numpy_helper.from_array(value, name))
    return proto


def narrowed(
    proto: onnx.ModelProto, policy: Policy, *feeds: np.ndarray
) -> tuple[np.ndarray, AccumulatorEmulation]:
    loaded = loading.from_proto(proto)
    emulation = AccumulatorEmulation(loaded, policy)
    named = {v.name: x for v, x in zip(loaded.inputs, feeds, strict=True)}
    return Interpreter(loaded, wrap_kernel=emulation.wrap).run(None, named)[0], emulation


def plain(proto: onnx.ModelProto, *feeds: np.ndarray) -> np.ndarray:
    interpreter = Interpreter(proto)
    named = {v.name: x for v, x in zip(interpreter.get_inputs(), feeds, strict=True)}
    return interpreter.run(None, named)[0]


def saturated(products: list[int], bits: int, bias: int = 0) -> int:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    total = min(max(bias, low), high)
    for product in products:
        total = min(max(total + int(product), low), high)
    return total


def convolved(x, w, bits, bias=None, stride=1, pad=0, group=1):
    """Products by input channel, kernel row, kernel column."""
    x = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    maps, deep, high, wide = w.shape
    size = [(x.shape[2 + i] - k) // stride + 1 for i, k in enumerate((high, wide))]
    out = np.empty((len(x), maps, *size), np.int64)
    for n, m, i, j in itertools.product(*map(range, out.shape)):
        first = m // (maps // group) * deep
        patch = x[n, first : first + deep, i * stride : i * stride + high,
                  j * stride : j * stride + wide]  # fmt: skip
        products = (patch * w[m].astype(np.int64)).ravel().tolist()
        out[n, m, i, j] = saturated(products, bits, 0 if bias is None else int(bias[m]))
    return out


def multiplied(a, b, bits, bias=None):
    """Products in the order of the columns of `a`."""
    out = np.empty((len(a), b.shape[1]), np.int64)
    for i, j in np.ndindex(*out.shape):
        products = (a[i].astype(np.int64) * b[:, j].astype(np.int64)).tolist()
        out[i, j] = saturated(products, bits, 0 if bias is None else int(bias[j]))
    return out


def int8(*shape: int) -> np.ndarray:
    return RANDOM.integers(-128, 128, shape).astype(np.int8)


def uint8(*shape: int) -> np.ndarray:
    return RANDOM.integers(0, 256, shape).astype(np.uint8)


QDQ_CONV = """(float[1,2,5,5] x) => (float[a,b,c,d] y) {
  xq = QuantizeLinear (x, xs, xz)
  xd = DequantizeLinear (xq, xs, xz)
  wd = DequantizeLinear <axis = 0> (w, ws, wz)
  bd = DequantizeLinear <axis = 0> (b, bs)
  y = Conv (xd, wd, bd)
}"""


def qdq_conv() -> tuple[onnx.ModelProto, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    w, bias = int8(3, 2, 2, 2), RANDOM.integers(-9000, 9000, 3).astype(np.int32)
    xs, ws = np.float32(0.03), np.array([0.01, 0.02, 0.005], np.float32)
    proto = model(QDQ_CONV, w=w, b=bias, xs=xs, xz=np.uint8(100), ws=ws,
                  wz=np.zeros(3, np.int8), bs=xs * ws)  # fmt: skip
    return proto, w, bias, xs, ws


FLOAT = """(float[2,2,5,5] x) => (float[a,b] y) {
  c = Conv <pads = [1,1,1,1]> (x, w, b)
  r = Relu (c)
  p = GlobalAveragePool (r)
  f = Flatten (p)
  y = MatMul (f, m)
}"""


def float_model() -> onnx.ModelProto:
    weights = {"w": (3, 2, 3, 3), "b": (3,), "m": (3, 4)}
    drawn = {k: RANDOM.normal(0, 0.5, s).astype(np.float32) for k, s in weights.items()}
    return model(FLOAT, **drawn)
