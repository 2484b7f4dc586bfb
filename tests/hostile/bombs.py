"""Small models that ask for more memory, or more time, than anyone has."""

import onnx

from tests.hostile.corpus import case

HEAD = '<ir_version: 9, opset_import: ["": 18]> g '
LATER = '<ir_version: 9, opset_import: ["": 20]> g '
TEXTS = {
    "Expand to 4 TiB": "(float[1] x) => (float[N] y) {"
    "s = Constant<value_ints=[1099511627776]>() y = Expand(x, s) }",
    "Expand to a negative size": "(float[1] x) => (float[N] y) {"
    "s = Constant<value_ints=[-4]>() y = Expand(x, s) }",
    "Expand, then write 12 GiB": "(float[1] x) => (float[N,M] y) {"
    "s = Constant<value_ints=[30000,30000]>() e = Expand(x, s) f = Neg(e) h = Neg(f) i = Neg(h)"
    "y = Sum(e, f, h, i) }",
    "Tile to 4 TiB": "(float[4] x) => (float[N] y) {"
    "s = Constant<value_ints=[274877906944]>() y = Tile(x, s) }",
    "Tile beyond 63 bits": "(float[4] x) => (float[N] y) {"
    "s = Constant<value_ints=[9223372036854775807]>() y = Tile(x, s) }",
    "Range to 2^40": "(float[4] x) => (int64[N] y) { a = Constant<value_int=0>()"
    "b = Constant<value_int=1099511627776>() c = Constant<value_int=1>() y = Range(a, b, c) }",
    "Range over all integers": "(float[4] x) => (int64[N] y) {"
    "a = Constant<value_int=-9223372036854775807>()"
    "b = Constant<value_int=9223372036854775807>() c = Constant<value_int=1>()"
    "y = Range(a, b, c) }",
    "Range by NaN": "(float[4] x) => (float[N] y) { a = Constant<value_float=0.0>() d = Sub(a, a)"
    "n = Div(d, d) b = Constant<value_float=5.0>() y = Range(a, b, n) }",
    "Range to infinity": "(float[4] x) => (float[N] y) { a = Constant<value_float=0.0>()"
    "o = Constant<value_float=1.0>() b = Div(o, a) y = Range(a, b, o) }",
    "Pad by 2^33": "(float[4] x) => (float[N] y) {"
    "p = Constant<value_ints=[0,8589934592]>() y = Pad(x, p) }",
    "Pad by the least integer": "(float[4] x) => (float[N] y) {"
    "p = Constant<value_ints=[0,-9223372036854775808]>() y = Pad(x, p) }",
    "Resize to 2^40": "(float[1,1,4,4] x) => (float[A,B,C,D] y) {"
    "s = Constant<value_ints=[1,1,1048576,1048576]>() y = Resize(x, , , s) }",
    "Resize by 1e30": "(float[1,1,4,4] x) => (float[A,B,C,D] y) {"
    "s = Constant<value_floats=[1.0,1.0,1e30,1e30]>() y = Resize(x, , s) }",
    "Resize to a negative size": "(float[1,1,4,4] x) => (float[A,B,C,D] y) {"
    "s = Constant<value_ints=[1,1,-4,4]>() y = Resize(x, , , s) }",
    "ConstantOfShape of 2^60": "(float[4] x) => (float[N] y) {"
    "s = Constant<value_ints=[1152921504606846976]>() y = ConstantOfShape(s) }",
    "ConstantOfShape beyond 63 bits": "(float[4] x) => (float[A,B,C] y) {"
    "s = Constant<value_ints=[4294967296,4294967296,4]>() y = ConstantOfShape(s) }",
    "ConstantOfShape of 10 GiB": "(float[4] x) => (float[N] y) {"
    "s = Constant<value_ints=[2684354560]>() y = ConstantOfShape(s) }",
    "ConstantOfShape of -1": "(float[4] x) => (float[N] y) {"
    "s = Constant<value_ints=[-1]>() y = ConstantOfShape(s) }",
    "ConstantOfShape of rank 70": "(float[4] x) => (float y) {"
    "o = Constant<value_ints=[1]>() r = Constant<value_ints=[70]>() s = Expand(o, r)"
    "c = ConstantOfShape(s) y = ReduceSum(c) }",
    "OneHot of depth 2^50": "(int64[4] x) => (int64[A,B] y) {"
    "d = Constant<value_int=1125899906842624>() v = Constant<value_ints=[0,1]>()"
    "y = OneHot(x, d, v) }",
    "OneHot of depth -1": "(int64[4] x) => (int64[A,B] y) {"
    "d = Constant<value_int=-1>() v = Constant<value_ints=[0,1]>() y = OneHot(x, d, v) }",
    "EyeLike of 2^40": "(float[4] x) => (float[A,B] y) {"
    "s = Constant<value_ints=[1048576,1048576]>() c = Constant<value_float=1.0>()"
    "e = Expand(c, s) y = EyeLike(e) }",
    "an outer product of 2^40": "(float[1048576,1] x) => (float[A,B] y) {"
    "t = Transpose(x) y = MatMul(x, t) }",
    "a broadcast of 2^40": "(float[1048576,1] x) => (float[A,B] y) {"
    "t = Transpose(x) y = Add(x, t) }",
    "Einsum of 2^40": "(float[1048576] x) => (float[A,B] y) {"
    'y = Einsum<equation="i,j->ij">(x, x) }',
    "Trilu of an expanded matrix": "(float[1] x) => (float[A,B] y) {"
    "s = Constant<value_ints=[30000,30000]>() e = Expand(x, s) y = Trilu(e) }",
    "HannWindow of 2^40": "(float[4] x) => (float[N] y) {"
    "n = Constant<value_int=1099511627776>() y = HannWindow(n) }",
    "DFT of 2^40": "(float[1,8,1] x) => (float[A,B,C] y) {"
    "n = Constant<value_int=1099511627776>() y = DFT<axis=1>(x, n) }",
    "RandomNormal of 2^40": "(float[4] x) => (float[A,B] y) {"
    "y = RandomNormal<shape=[1048576,1048576]>() }",
    "MelWeightMatrix of 2^40": "(float[4] x) => (float[A,B] y) {"
    "a = Constant<value_int=1048576>() b = Constant<value_int=4194304>()"
    "c = Constant<value_int=8192>() d = Constant<value_float=0.0>()"
    "e = Constant<value_float=4000.0>() y = MelWeightMatrix(a, b, c, d, e) }",
    "MaxPool with pads of 2^33": "(float[1,1,4,4] x) => (float[A,B,C,D] y) {"
    "y = MaxPool<kernel_shape=[1,1],pads=[8589934592,0,8589934592,0]>(x) }",
    "AveragePool with a kernel of 2^40": "(float[1,1,4,4] x) => (float[A,B,C,D] y) {"
    "y = AveragePool<kernel_shape=[1099511627776,1],pads=[1099511627776,0,0,0]>(x) }",
    "Conv with pads of 2^31": "(float[1,1,4,4] x, float[1,1,1,1] w) => (float[A,B,C,D] y) {"
    "y = Conv<pads=[2147483648,0,2147483648,0]>(x, w) }",
    "ConvTranspose with strides of 2^33": "(float[1,1,4,4] x, float[1,1,3,3] w) =>"
    "(float[A,B,C,D] y) { y = ConvTranspose<strides=[8589934592,8589934592]>(x, w) }",
    "ConvTranspose to 2^40": "(float[1,1,4,4] x, float[1,1,3,3] w) => (float[A,B,C,D] y) {"
    "y = ConvTranspose<output_shape=[1048576,1048576]>(x, w) }",
    "LRN of size 2^62": "(float[1,3,4,4] x) => (float[A,B,C,D] y) {"
    "y = LRN<size=4611686018427387904>(x) }",
    "RoiAlign of 2^40": "(float[1,1,4,4] x, float[1,4] r, int64[1] i) => (float[A,B,C,D] y) {"
    "y = RoiAlign<output_height=1048576,output_width=1048576>(x, r, i) }",
    "RoiAlign with 30,000 samples": "(float[1,1,4,4] x, float[1,4] r) => (float[A,B,C,D] y) {"
    "i = Constant<value_ints=[0]>() y = RoiAlign<sampling_ratio=30000>(x, r, i) }",
    "GridSample of an expanded grid": "(float[1,1,4,4] x, float[1,1,1,2] g) => (float[A,B,C,D] y) {"
    "s = Constant<value_ints=[1,65536,65536,2]>() e = Expand(g, s) y = GridSample(x, e) }",
    "AffineGrid of 2^40": "(float[1,2,3] x) => (float[A,B,C,D] y) {"
    "s = Constant<value_ints=[1,1,1048576,1048576]>() y = AffineGrid(x, s) }",
    "Col2Im of 2^40": "(float[1,1,1] x) => (float[A,B,C,D] y) {"
    "s = Constant<value_ints=[1048576,1048576]>() b = Constant<value_ints=[1,1]>()"
    "y = Col2Im(x, s, b) }",
    "MaxUnpool to 2^40": "(float[1,1,1,1] x, int64[1,1,1,1] i) => (float[A,B,C,D] y) {"
    "s = Constant<value_ints=[1,1,1048576,1048576]>() y = MaxUnpool<kernel_shape=[1,1]>(x, i, s) }",
    "CumSum of 2^36": "(float[1] x) => (float[N] y) { s = Constant<value_ints=[68719476736]>()"
    "e = Expand(x, s) a = Constant<value_int=0>() y = CumSum(e, a) }",
    "ReduceSum of an expanded tensor": "(float[1] x) => (float y) {"
    "s = Constant<value_ints=[65536,65536]>() e = Expand(x, s) y = ReduceSum<keepdims=0>(e) }",
    "Cast of an expanded tensor": "(float[1] x) => (double[A,B] y) {"
    "s = Constant<value_ints=[30000,30000]>() e = Expand(x, s) y = Cast<to=11>(e) }",
    "Reshape of an expanded tensor": "(float[1,1] x) => (float[N] y) {"
    "s = Constant<value_ints=[30000,30000]>() e = Expand(x, s) n = Constant<value_ints=[-1]>()"
    "y = Reshape(e, n) }",
    "NonZero of an expanded tensor": "(float[1] x) => (int64[A,B] y) {"
    "s = Constant<value_ints=[30000,30000]>() e = Expand(x, s) y = NonZero(e) }",
    "TopK of an expanded tensor": "(float[1] x) => (float[A,B] y, int64[A,B] i) {"
    "s = Constant<value_ints=[30000,30000]>() e = Expand(x, s) k = Constant<value_ints=[3]>()"
    "y, i = TopK(e, k) }",
    "Concat of an expanded tensor": "(float[1] x) => (float[A,B] y) {"
    "s = Constant<value_ints=[30000,30000]>() e = Expand(x, s) y = Concat<axis=0>(e, e, e) }",
    "Gather of 2^40": "(float[1] x) => (float[A,B] y) {"
    "s = Constant<value_ints=[1048576,1048576]>() z = Constant<value_int=0>()"
    "i = Expand(z, s) y = Gather(x, i) }",
    "GatherND of 2^40": "(float[1] x) => (float[A,B] y) {"
    "s = Constant<value_ints=[1048576,1048576,1]>() z = Constant<value_int=0>()"
    "i = Expand(z, s) y = GatherND(x, i) }",
    "a Loop without end": "(float[2] x) => (float[2] y) { t = Constant<value_int=1>()"
    "c = Cast<to=9>(t) y = Loop(, c, x) <body = b (int64 i, bool k, float[2] s) =>"
    "(bool l, float[2] r) { l = Identity(k) r = Neg(s) }> }",
    "2^62 trips of a Loop": "(float[2] x) => (float[2] y) {"
    "n = Constant<value_int=4611686018427387904>() y = Loop(n, , x) <body = b (int64 i, bool k,"
    "float[2] s) => (bool l, float[2] r) { l = Identity(k) r = Neg(s) }> }",
    "a Loop that doubles": "(float[2] x) => (float[N] y) { n = Constant<value_int=60>()"
    "y = Loop(n, , x) <body = b (int64 i, bool k, float[M] s) => (bool l, float[K] r) {"
    "l = Identity(k) r = Concat<axis=0>(s, s) }> }",
    "scan outputs of a Loop": "(float[2] x) => (float[A,B] y) { n = Constant<value_int=100000>()"
    "t = Constant<value_int=1>() c = Cast<to=9>(t)"
    "y = Loop(n, c) <body = b (int64 i, bool k) => (bool l, float[N] r) {"
    "l = Identity(k) s = Constant<value_ints=[200000]>() r = ConstantOfShape(s) }> }",
    "expanded scan outputs of a Loop": "(float[1] x) => (float[A,B] y) {"
    "n = Constant<value_int=100>() t = Constant<value_int=1>() c = Cast<to=9>(t)"
    "y = Loop(n, c) <body = b (int64 i, bool k) =>"
    "(bool l, float[N] r) { l = Identity(k) s = Constant<value_ints=[500000000]>()"
    "r = Expand(x, s) }> }",
    "a sequence that doubles": "(float[1000] x) => (float[N] y) { e = SequenceConstruct(x)"
    "n = Constant<value_int=40>() t = Loop(n, , x) <body = b (int64 i, bool k, float[M] s) =>"
    "(bool l, float[K] r) { l = Identity(k) q = SequenceConstruct(s, s)"
    "r = ConcatFromSequence<axis=0>(q) }> y = Identity(t) }",
    "SplitToSequence of 2^30": "(float[1] x) => (int64 y) { s = Constant<value_ints=[1073741824]>()"
    "e = Expand(x, s) q = SplitToSequence(e) y = SequenceLength(q) }",
    "Scan over 2^30 slices": "(float[1] x) => (float[N] y) {"
    "s = Constant<value_ints=[1073741824]>() e = Expand(x, s)"
    "y = Scan<num_scan_inputs=1, body = b (float a) => (float o) { o = Neg(a) }>(e) }",
    "RegexFullMatch that backtracks": "(float[1] x) => (bool[1] y) {"
    's = Constant<value_strings=["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"]>()'
    'y = RegexFullMatch<pattern="(a+)+$">(s) }',
    "StringConcat that doubles": '(float[1] x) => (string[1] y) { t = Constant<value_strings=['
    '"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]>() n = Constant<value_int=40>() y = Loop(n, , t)'
    "<body = b (int64 i, bool k, string[1] s) => (bool l, string[1] r) {"
    "l = Identity(k) r = StringConcat(s, s) }> }",
    "BitShift by 200": "(uint8[4] x) => (uint8[4] y) { t = Constant<value_int=200>()"
    'u = Cast<to=2>(t) y = BitShift<direction="LEFT">(x, u) }',
    "the least integer by -1": "(float[4] x) => (int64 y) {"
    "a = Constant<value_int=-9223372036854775808>() b = Constant<value_int=-1>() y = Div(a, b) }",
    "an integer by 0": "(float[4] x) => (int64 y) {"
    "a = Constant<value_int=5>() b = Constant<value_int=0>() y = Div(a, b) }",
    "an integer modulo 0": "(float[4] x) => (int64 y) {"
    "a = Constant<value_int=5>() b = Constant<value_int=0>() y = Mod(a, b) }",
    "Split into parts of 2^62": "(float[4] x) => (float[A] y, float[B] z) {"
    "s = Constant<value_ints=[4611686018427387904,4611686018427387904]>() y, z = Split(x, s) }",
    "Slice at the edges of integers": "(float[4] x) => (float[N] y) {"
    "a = Constant<value_ints=[-9223372036854775808]>()"
    "b = Constant<value_ints=[9223372036854775807]>() c = Constant<value_ints=[0]>()"
    "d = Constant<value_ints=[-9223372036854775808]>()"
    "y = Slice(x, a, b, c, d) }",
    "TopK of 2^40": "(float[4] x) => (float[N] y, int64[N] i) {"
    "k = Constant<value_ints=[1099511627776]>() y, i = TopK(x, k) }",
    "NonMaxSuppression of 2^62 boxes": "(float[1,2,4] x, float[1,1,2] s) => (int64[A,B] y) {"
    "n = Constant<value_int=4611686018427387904>() y = NonMaxSuppression(x, s, n) }",
    "Reshape to 2^62": "(float[4] x) => (float[N] y) {"
    "s = Constant<value_ints=[4611686018427387904]>() y = Reshape(x, s) }",
    "Reshape to rank 80": "(float[1] x) => (float y) {"
    "o = Constant<value_ints=[1]>() r = Constant<value_ints=[80]>() s = Expand(o, r)"
    "c = Reshape(x, s) y = ReduceSum<keepdims=0>(c) }",
    "Squeeze of axis 99": "(float[4] x) => (float[4] y) {"
    "a = Constant<value_ints=[99]>() y = Squeeze(x, a) }",
    "Unsqueeze to rank 80": "(float[1] x) => (float[1] y) { z = Constant<value_int=0>()"
    "l = Constant<value_int=80>() d = Constant<value_int=1>() a = Range(z, l, d)"
    "u = Unsqueeze(x, a) n = Constant<value_ints=[-1]>() y = Reshape(u, n) }",
}  # fmt: skip


def _head(text):
    return LATER if "string" in text or "AffineGrid" in text else HEAD


ENDLESS = {"a Loop without end", "2^62 trips of a Loop", "RegexFullMatch that backtracks"}
for _name, _text in TEXTS.items():
    case(_name, endless=_name in ENDLESS)(
        lambda text=_text: onnx.parser.parse_model(_head(text) + text)
    )

for _name, _skip in {"TfIdfVectorizer that skips 2^31": 1 << 31}.items():

    @case(_name, endless=True)
    def _(skip=_skip):
        return onnx.parser.parse_model(
            HEAD + "(int64[64] x) => (float[N] y) { y = TfIdfVectorizer<max_gram_length=30,"
            f"max_skip_count={skip},min_gram_length=1,mode=\"TF\",ngram_counts=[0,1],"
            "ngram_indexes=[0,1],pool_int64s=[1,2]>(x) }"
        )  # fmt: skip
