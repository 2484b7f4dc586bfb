"""Small quantised models: one net by each form of `tracer quantize`, and integer operators."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, parser

from tests.fuzz import quiet

_FORMS = {
    "qdq by channel": (),
    "qdq by tensor, symmetric": ("--per-tensor", "--symmetric", "--activation-type", "int8"),
    "qdq of 16 bits": ("--activation-type", "uint16", "--weight-type", "int8"),
    "integer operators by channel": ("--format", "qoperator"),
    "integer operators by tensor": ("--format", "qoperator", "--per-tensor"),
}
_NET = """(float[N, 2, 6, 6] x) => (float[N, 3] y) {
  a = Conv <pads = [1, 1, 1, 1]> (x, w, b)  r = Relu (a)
  c = Conv <group = 4, strides = [2, 2]> (r, d)
  s = Add (c, c)  p = GlobalAveragePool (s)  f = Flatten (p)
  y = Gemm <transB = 1> (f, g, h) }"""
_NET_WEIGHTS = {"w": (4, 2, 3, 3), "b": (4,), "d": (4, 1, 2, 2), "g": (3, 4), "h": (3,)}

_WRITTEN = {
    "MatMulInteger": """(uint8[N, 8] x) => (float[N, 4] y) {
      i = MatMulInteger (x, w, xz, wz)  f = Cast <to = 1> (i)  y = Mul (f, s) }""",
    "ConvInteger": """(uint8[N, 2, 5, 5] x) => (int32[N, 3, 3, 3] y) {
      y = ConvInteger (x, k, xz) }""",
    "DynamicQuantizeLinear": """(float[N, 8] x) => (float[N, 4] y) {
      q, u, z = DynamicQuantizeLinear (x)  i = MatMulInteger (q, w, z)
      f = Cast <to = 1> (i)  o = Mul (f, u)  y = Mul (o, s) }""",
    "QLinearMatMul": """(uint8[N, 8] x) => (uint8[N, 4] y) {
      y = QLinearMatMul (x, s, xz, w, s, wz, t, xz) }""",
    "QLinearConv": """(uint8[N, 2, 5, 5] x) => (uint8[N, 3, 3, 3] y) {
      y = QLinearConv (x, s, xz, k, v, kz, t, xz, e) }""",
    "QDQ of ConvTranspose": """(uint8[N, 3, 3, 3] x) => (float[N, 2, 5, 5] y) {
      f = DequantizeLinear (x, s, xz)  d = DequantizeLinear <axis = 1> (k, v2, k2)
      y = ConvTranspose (f, d) }""",
    "QDQ of MatMul in 4 bits": """(int8[N, 8] x) => (float[N, 4] y) {
      f = DequantizeLinear (x, s, wz)  d = DequantizeLinear <axis = 1> (n, l)
      y = MatMul (f, d) }""",
    "QDQ of MatMul in blocks": """(int8[N, 8] x) => (float[N, 4] y) {
      f = DequantizeLinear (x, s, wz)
      d = DequantizeLinear <axis = 0, block_size = 4> (w, blocks)
      m = MatMul (f, d)  q = QuantizeLinear (m, t, wz)  y = DequantizeLinear (q, t, wz) }""",
    "sums of QDQ": """(int8[N, 2, 4] x) => (float[N, 2] y) {
      f = DequantizeLinear (x, s, wz)  u = Add (f, f)  q = QuantizeLinear (u, t, wz)
      d = DequantizeLinear (q, t, wz)  y = ReduceSum <keepdims = 0> (d, axes) }""",
}


def models() -> Iterator[tuple[str, bytes]]:
    """Yields the models with their names, the same ones for one checkout."""
    for name, text in _WRITTEN.items():
        yield name, _model(text, _weights()).SerializeToString()
    weights = {name: _floats(shape) for name, shape in _NET_WEIGHTS.items()}
    net = _model(_NET, weights).SerializeToString()
    with tempfile.TemporaryDirectory() as folder:
        source, data, target = (Path(folder) / name for name in ("net.onnx", "x.npz", "q.onnx"))
        source.write_bytes(net)
        np.savez(data, x=_floats((4, 2, 6, 6)))
        for name, options in _FORMS.items():
            arguments = ("quantize", str(source), "--calibrate", str(data), "--force")
            quiet.apart(lambda a=(*arguments, *options, "-o", str(target)): quiet.run(*a))
            yield name, target.read_bytes()


def _model(text: str, weights: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """A graph in ONNX's text format, with those of the weights that it reads."""
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {text}')
    read = {name for node in model.graph.node for name in node.input}
    stored = [numpy_helper.from_array(v, name) for name, v in weights.items() if name in read]
    model.graph.initializer.extend(stored)
    return model


def _weights() -> Mapping[str, np.ndarray]:
    four_bits = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.INT4)
    return {
        "w": _integers((8, 4)), "wz": np.int8(3), "xz": np.uint8(128), "k": _integers((3, 2, 3, 3)),
        "kz": np.zeros(3, np.int8), "s": np.float32(0.05), "t": np.float32(2),
        "v": np.float32([0.1, 0.2, 0.3]), "v2": np.float32([0.1, 0.2]), "k2": np.int8([0, 0]),
        "e": np.int32([5, -900, 40]),
        "n": (_integers((8, 4)) // 16).astype(four_bits), "l": np.float32([0.5, 1, 2, 4]),
        "blocks": np.full((2, 4), 0.1, np.float32), "axes": np.int64([2]),
    }  # fmt: skip


def _floats(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(17).normal(size=shape).astype(np.float32)


def _integers(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(17).integers(-128, 128, shape).astype(np.int8)
