"""Small ONNX graphs that several tests use, as text in ONNX's own syntax."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

# Past the stem every channel count is a multiple of 16: onnxruntime then uses its blocked layout,
# and merges the second Conv, the residual Add and the last Relu into one kernel.
RESIDUAL = """
<ir_version: 8, opset_import: ["": 17]>
residual (float[N,3,16,16] x) => (float[N,10] y) {
  c1 = Conv <kernel_shape = [3,3], pads = [1,1,1,1]> (x, w1)
  r1 = Relu (c1)
  c2 = Conv <kernel_shape = [3,3], pads = [1,1,1,1]> (r1, w2)
  sum = Add (c2, r1)
  r2 = Relu (sum)
  pool = GlobalAveragePool (r2)
  flat = Flatten (pool)
  y = Gemm (flat, wf, bf)
}
"""

BRANCHES = """
<ir_version: 8, opset_import: ["": 16]>
branches (float[4] x, bool flag, int64 trips) => (float[4] y, float[4] z) {
  y = If (flag) <
    then_branch = yes () => (float[4] a) { t = Tanh (x)  a = Exp (t) },
    else_branch = no () => (float[4] b) { b = Neg (x) }
  >
  z = Loop (trips, , y) <
    body = step (int64 i, bool go, float[4] s) => (bool on, float[4] n) {
      on = Identity (go)
      d = Add (s, s)
      n = Tanh (d)
    }
  >
}
"""

DATA_DEPENDENT = """
<ir_version: 8, opset_import: ["": 16]>
nonzero (float[N,8] x) => (int64[2,M] y) {
  c = Ceil (x)
  z = NonZero (c)
  y = Identity (z)
}
"""

INTEGERS = """
<ir_version: 8, opset_import: ["": 17]>
integers (uint8[N,2,4,4] x, uint8[N,12] a) => (int32[N,3,4,4] c, int32[N,5] m, float[N,5] r) {
  c = ConvInteger <kernel_shape = [3,3], pads = [1,1,1,1]> (x, wc)
  m = MatMulInteger (a, wm)
  f = Cast <to = 1> (m)
  r = Relu (f)
}
"""

EMBEDDING = """
<ir_version: 8, opset_import: ["": 16]>
embedding (int64[batch,sequence] ids, int64[batch,sequence] attention_mask)
  => (float[batch,sequence,8] y) {
  e = Gather <axis = 0> (table, ids)
  m = Cast <to = 1> (attention_mask)
  axes = Constant <value_ints = [-1]> ()
  u = Unsqueeze (m, axes)
  y = Mul (e, u)
}
"""


def parse(text: str, **weights: np.ndarray) -> onnx.ModelProto:
    """The model in `text`, its weights added by name."""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(numpy_helper.from_array(w, n) for n, w in weights.items())
    return model


def residual(named: bool = True) -> onnx.ModelProto:
    """A residual block; nodes bear the names of their outputs if `named`, else none."""
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
    model = parse(
        RESIDUAL, w1=draw(16, 3, 3, 3), w2=draw(16, 16, 3, 3), wf=draw(16, 10), bf=draw(10)
    )
    for node in model.graph.node if named else []:
        node.name = node.output[0]
    return model


def embedding(rows: int = 30) -> onnx.ModelProto:
    """Token embeddings under a mask; ids beyond the table make onnxruntime fail."""
    return parse(EMBEDDING, table=np.ones((rows, 8), np.float32))


def integers() -> onnx.ModelProto:
    """A convolution and a matrix product of integers, and what makes no sums after it.

    Weights of 7 bits: with 8 onnxruntime saturates pairs of products on some processors.
    """
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.integers(-64, 64, shape, np.int8)  # noqa: E731
    model = parse(INTEGERS, wc=draw(3, 2, 3, 3), wm=draw(12, 5))
    for node in model.graph.node:
        node.name = node.output[0]
    return model


def quantised(folder, quant_format, activations="QUInt8", extra=None):
    """Where `residual`, quantised by onnxruntime in the format of that name, was saved."""
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):
        feeds = iter([{"x": np.ones((1, 3, 16, 16), np.float32)}] * 2)

        def get_next(self):
            return next(self.feeds, None)

    onnx.save(residual(), folder / "float.onnx")
    quantization.quantize_static(
        folder / "float.onnx", folder / "int8.onnx", Reader(),
        quant_format=getattr(quantization.QuantFormat, quant_format),
        activation_type=getattr(quantization.QuantType, activations), extra_options=extra,
    )  # fmt: skip
    return folder / "int8.onnx"


def divided() -> onnx.ModelProto:
    """Two convolutions with a node between them that OpenVINO leaves to the CPU."""
    body = """<ir_version: 9, opset_import: ["" : 18]>
    agraph (float[1,3,8,8] x) => (float[1,4,8,8] y) {
        [conv1] a = Conv (x, v)
        [relu1] b = Relu (a)
        [isnan] c = IsNaN (b)
        [not] d = Not (c)
        [cast] e = Cast <to = 1> (d)
        [mul] f = Mul (b, e)
        [conv2] g = Conv (f, w)
        [relu2] y = Relu (g)
    }"""
    random = np.random.default_rng(0)
    shapes = {"v": (4, 3, 1, 1), "w": (4, 4, 1, 1)}
    return parse(
        body, **{n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    )


def in_float16(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy with inputs, weights and outputs in float16."""
    half = onnx.ModelProto.FromString(proto.SerializeToString())
    for tensor in half.graph.initializer:
        narrow = numpy_helper.to_array(tensor).astype(np.float16)
        tensor.CopyFrom(numpy_helper.from_array(narrow, tensor.name))
    for value in (*half.graph.input, *half.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    return half
