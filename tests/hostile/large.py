"""Every operator whose result, or what it needs on the way, is larger than its inputs let expect.

An expanded tensor takes no memory before something copies it, and passes most limits. Two vectors
take little, and their outer product a lot.
"""

import struct
import zlib

import numpy as np
import onnx
from onnx import numpy_helper

from tests.hostile.corpus import case

OPSET = {"Upsample": 9, "ImageDecoder": 20, "Attention": 23, "TensorScatter": 24}
EXPANDED = {
    # operator: the nodes that make y of e, which is float[10000,10000]
    "Trilu": "y = Trilu(e)",
    "NonZero": "y = NonZero(e)",
    "TopK": "k = Constant<value_ints=[9999]>() y, i = TopK(e, k)",
    "Compress": "c = Cast<to=9>(e) n = Constant<value_ints=[-1]>() f = Reshape(c, n)"
    "y = Compress(e, f)",
    "Unique": "y = Unique(e)",
    "CumSum": "a = Constant<value_int=0>() y = CumSum(e, a)",
    "ScatterND": "i = Constant<value_ints=[0]>() b = Constant<value_ints=[1,1]>()"
    "j = Reshape(i, b) s1 = Constant<value_ints=[1,10000]>() u = Expand(x, s1)"
    "y = ScatterND(e, j, u)",
    "ScatterElements": "i = Cast<to=7>(e) y = ScatterElements(e, i, e)",
    "GatherElements": "i = Cast<to=7>(e) y = GatherElements(e, i)",
    "Where": "c = Cast<to=9>(e) y = Where(c, e, e)",
    "Softmax": "y = Softmax(e)",
    "Sum": "y = Sum(e, e, e, e)",
    "Max": "y = Max(e, x, e)",
    "Concat": "y = Concat<axis=0>(e, e, e, e)",
    "Transpose": "t = Transpose(e) y = Neg(t)",
    "OneHot": "i = Cast<to=7>(e) d = Constant<value_int=9>() v = Constant<value_floats=[0.0,1.0]>()"
    "y = OneHot(i, d, v)",
    "EyeLike": "y = EyeLike(e)",
    "Bernoulli": "y = Bernoulli(e)",
    "RandomNormalLike": "y = RandomNormalLike(e)",
    "RandomUniformLike": "y = RandomUniformLike(e)",
    "Multinomial": "y = Multinomial<sample_size=9999>(e)",
    "Dropout": "r = Constant<value_float=0.5>() k = Constant<value_int=1>() b = Cast<to=9>(k)"
    "y, m = Dropout(e, r, b)",
    "QuantizeLinear": "g = Constant<value_float=0.5>() y = QuantizeLinear(e, g)",
    "DynamicQuantizeLinear": "y, g, z = DynamicQuantizeLinear(e)",
    "LayerNormalization": "w = Constant<value_floats=[1.0]>() y = LayerNormalization(e, w)",
    "MatMul": "y = MatMul(e, e)",
    "Gemm": "y = Gemm(e, e)",
    "Einsum": 'y = Einsum<equation="ij,jk->ik">(e, e)',
    "SequenceInsert": "q = SequenceEmpty() n = Constant<value_int=100>() t = Loop(n, , q)"
    "<body = b (int64 i, bool k, seq(float) s) => (bool l, seq(float) r) {"
    "l = Identity(k) f = Neg(e) r = SequenceInsert(s, f) }> y = SequenceLength(t)",
    "SequenceConstruct": "q = SequenceConstruct(e, e, e, e) y = ConcatFromSequence<axis=0>(q)",
    "ReverseSequence": "l = Constant<value_ints=[1]>() n = Constant<value_ints=[10000]>()"
    "f = Expand(l, n) y = ReverseSequence(e, f)",
    "ReduceMax": "y = ReduceMax<keepdims=0>(e)",
    "ArgMax": "y = ArgMax<axis=1>(e)",
    "Cast to text": "y = Cast<to=8>(e)",
    "DepthToSpace": "f = Constant<value_ints=[1,10000,100,100]>() g = Reshape(e, f)"
    "y = DepthToSpace<blocksize=100>(g)",
    "LpNormalization": "y = LpNormalization(e)",
    "Det": "y = Det(e)",
}  # fmt: skip
OUTER = {
    # operator: the nodes that make y of a = float[1048576,1] and b = float[1,1048576]
    "Where": "c = Cast<to=9>(a) y = Where(c, a, b)",
    "Max": "y = Max(a, b)",
    "Equal": "y = Equal(a, b)",
    "Pow": "y = Pow(a, b)",
    "PRelu": "y = PRelu(a, b)",
    "Gemm": "y = Gemm(a, b)",
    "MatMulInteger": "c = Cast<to=2>(a) d = Cast<to=2>(b) y = MatMulInteger(c, d)",
    "Attention": "s = Constant<value_ints=[1,1,1048576,1]>() q = Reshape(a, s)"
    "y = Attention(q, q, q)",
    "Clip and Mod": "c = Clip(a) y = Mod<fmod=1>(c, b)",
}  # fmt: skip
OTHERS = {
    "Upsample to 2^40": "(float[1,1,4,4] x) => (float[A,B,C,D] y) {"
    "s = Constant<value = float[4] {1.0, 1.0, 262144.0, 262144.0}>() y = Upsample(x, s) }",
    "HammingWindow of 2^40": "(float[4] x) => (float[N] y) {"
    "n = Constant<value_int=1099511627776>() y = HammingWindow(n) }",
    "BlackmanWindow of 2^40": "(float[4] x) => (float[N] y) {"
    "n = Constant<value_int=1099511627776>() y = BlackmanWindow(n) }",
    "RandomUniform of 2^40": "(float[4] x) => (float[A,B] y) {"
    "y = RandomUniform<shape=[1048576,1048576]>() }",
    "STFT of 2^36": "(float[1,262144,1] x) => (float[A,B,C,D] y) {"
    "f = Constant<value_int=1>() n = Constant<value_int=131072>() y = STFT(x, f, , n) }",
    "CenterCropPad to 2^40": "(float[2,2] x) => (float[A,B] y) {"
    "s = Constant<value_ints=[1048576,1048576]>() y = CenterCropPad(x, s) }",
    "ScatterND into 2^40": "(float[1] x) => (float[A,B] y) {"
    "s = Constant<value_ints=[1048576,1048576]>() c = ConstantOfShape(s)"
    "i = Constant<value_ints=[0,0]>() t = Constant<value_ints=[1,2]>() j = Reshape(i, t)"
    "y = ScatterND(c, j, x) }",
    "SpaceToDepth of an outer product": "(float[1,1,65536,1] x) => (float[A,B,C,D] y) {"
    "t = Transpose<perm=[0,1,3,2]>(x) m = MatMul(x, t) y = SpaceToDepth<blocksize=2>(m) }",
    "ConvInteger with pads of 2^31": "(uint8[1,1,4,4] x, uint8[1,1,1,1] w) =>"
    "(int32[A,B,C,D] y) { y = ConvInteger<pads=[2147483648,0,2147483648,0]>(x, w) }",
    "texts that StringSplit cuts": "(float[1] x) => (string[A,B] y, int64[C] n) {"
    't = Constant<value_strings=["a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a"]>()'
    "s = Constant<value_ints=[1000000]>() e = Expand(t, s) y, n = StringSplit(e) }",
}  # fmt: skip


TYPES = {
    "NonZero": "int64", "Equal": "bool", "QuantizeLinear": "uint8", "ArgMax": "int64",
    "DynamicQuantizeLinear": "uint8", "Multinomial": "int32", "SequenceInsert": "int64",
    "Cast to text": "string", "MatMulInteger": "int32",
}  # fmt: skip


def _model(name, signature, nodes):
    """The model of a text, with an output of any shape."""
    opset = next((version for operator, version in OPSET.items() if operator in name), 20)
    text = f'<ir_version: 9, opset_import: ["": {opset}]> g {signature} {nodes}'
    made = onnx.parser.parse_model(text)
    for output in made.graph.output:
        output.type.tensor_type.ClearField("shape")
    return made


def _of(name, inputs, nodes):
    return _model(name, f"({inputs}) => ({TYPES.get(name, 'float')} y)", f"{{ {nodes} }}")


EXPAND = "s = Constant<value_ints=[10000,10000]>() e = Expand(x, s) "
for _name, _nodes in EXPANDED.items():
    case(f"{_name}, expanded")(lambda n=_name, t=_nodes: _of(n, "float[1] x", EXPAND + t))
for _name, _nodes in OUTER.items():
    case(f"{_name}, outer")(
        lambda n=_name, t=_nodes: _of(n, "float[1048576,1] a", f"b = Transpose(a) {t}")
    )
for _name, _text in OTHERS.items():
    case(_name)(lambda n=_name, t=_text: _model(n, "", t))


def _png(side):
    """A black picture of one bit a pixel."""

    def chunk(kind, content):
        return (
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes((1 + -(-side // 8)) * side), 9)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


@case("ImageDecoder of 12,000 x 12,000 pixels")
def _():
    made = _model("ImageDecoder", "(float[1] x) => (uint8 y)", "{ y = ImageDecoder(w) }")
    content = np.frombuffer(_png(12_000), np.uint8)
    made.graph.initializer.append(numpy_helper.from_array(content, "w"))
    return made
