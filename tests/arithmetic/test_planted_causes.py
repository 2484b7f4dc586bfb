"""One fact of a real kernel, one setting, or one node is changed: the comparison names it."""

import numpy as np
import onnx
import pytest

import tracer
from tests.arithmetic.test_runs import parse
from tracer.arithmetic import causes, runs, sums
from tracer.arithmetic.kernel import Rule
from tracer.arithmetic.replays import KnownRules, conv
from tracer.executors.settings import OrtSettings
from tracer.inputs.request import make_feeds

HEAD = '<ir_version: 8, opset_import: ["" : 20, "com.microsoft" : 1]> net '


def numbers(count, low=None):
    """Returns stored values as text: random floats, or the ends of a range of bytes."""
    if low is None:
        drawn = np.random.default_rng(0).standard_normal(count).round(3).tolist()
    else:
        drawn = np.random.default_rng(0).choice([low, 127], count).tolist()
    return ", ".join(map(str, drawn))


ROWS = "(float[4, 40] x) => (float[4, 40] y)"
PRODUCT = f"(float[8, 64] x) => (float[8, 8] y) <float[64, 8] w = {{{numbers(512)}}}>"
PRODUCT += " { p = Neg(x) y = MatMul(p, w) }"
BYTES = "float s = {0.05}, uint8 z = {128}, float r = {0.01}, int8 o = {0}, float t = {40}"
SCALES = "x, s, z, w, r, o, t, z"
GRU = f"""(float[5, 2, 12] x) => (float[5, 1, 2, 16] y) <float[1, 48, 12] w = {{{numbers(576)}}},
    float[1, 48, 16] r = {{{numbers(768)}}}> {{ y = GRU <hidden_size = 16> (x, w, r) }}"""
FUSED = f"""(float[1, 16, 5, 5] x) => (float[1, 4, 5, 5] y)
    <float[4, 16, 1, 1] w = {{{numbers(64)}}}, float[4] b = {{{numbers(4)}}}>
    {{ y = com.microsoft.FusedConv <activation = "Tanh"> (x, w, b) }}"""


def in_product(program, **flags):
    """Returns a change of the order of a product of 64 terms."""
    changed = {"fused": True, "from_zero": True, **flags, "program": program}
    return lambda facts: {**facts, "sums": [changed]}


def in_state(facts):
    return {**facts, "state": {**facts["state"], "fused": not facts["state"]["fused"]}}


def in_convolution(facts):
    """Changes the order of the sums that come before the activation."""
    (order,) = facts["sums"]
    program = sums.blocks(16, 4, bias=True)
    return {**facts, "sums": [{**order, "program": program}]}


def in_bytes(facts):
    """Lets pairs of bytes saturate, or not, whichever this processor does not."""
    if "way" not in facts:
        return {"pairs": not facts.get("pairs")}
    return {**facts, "way": "channels" if facts["way"] == "exact" else "exact"}


def in_lanes(facts):
    """Changes the number of lanes to that of another processor: 8 with AVX2, 16 with AVX-512."""
    return {**facts, "lanes": 16 if facts["lanes"] == 8 else 8}


def along_others(facts):
    return {"way": "columns" if facts["way"] == "rows" else "rows"}


PLANTED = [
    (PRODUCT, "MatMul", in_product(sums.blocks(64, 64), fused=False), "FMA"),
    (PRODUCT, "MatMul", in_product(sums.blocks(64, 16)), "block size"),
    (PRODUCT, "MatMul", in_product(sums.four_by_four(64)), "block size"),
    (PRODUCT, "MatMul", in_product(sums.lanes(64)), "number of lanes"),
    (FUSED, "FusedConv", in_convolution, "block size"),
    (GRU, "GRU", in_state, "FMA"),
    (f"{ROWS} {{ y = Softmax(x) }}", "Softmax", in_lanes, "number of lanes"),
    (
        "(float[4, 40] x) => (float[1, 1] y) { y = ReduceSum(x) }",
        "ReduceSum", {"way": "first"}, "order of additions",
    ),
    (
        f"{ROWS} <float[40] g = {{{numbers(40)}}}> {{ y = LayerNormalization(x, g) }}",
        "LayerNormalization", {"way": 1}, "order of additions",
    ),
    (
        "(float[1, 2, 9, 9] x) => (float[1, 2, 7, 7] y)"
        " { y = AveragePool <kernel_shape = [3, 3]> (x) }",
        "AveragePool", along_others, "order of additions",
    ),
    (f"{ROWS} {{ y = Softplus(x) }}", "Softplus", {"rest": [0, 160]},
     "what the C library computes"),
    (
        f"(uint8[5, 32] x) => (uint8[5, 4] y) <{BYTES}, int8[32, 4] w = {{{numbers(128, -128)}}}>"
        f" {{ y = QLinearMatMul({SCALES}) }}",
        "QLinearMatMul", in_bytes, "saturation of pairs",
    ),
    (
        f"(uint8[1, 32, 5, 5] x) => (uint8[1, 4, 5, 5] y) <{BYTES},"
        f" int8[4, 32, 1, 1] w = {{{numbers(128, -128)}}}> {{ y = QLinearConv({SCALES}) }}",
        "QLinearConv", in_bytes, "saturation of pairs",
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def rules(tmp_path_factory):
    return KnownRules(tmp_path_factory.mktemp("rules"))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("net", "op_type", "change", "cause"), PLANTED, ids=[f"{p[1]}: {p[3]}" for p in PLANTED]
)
def test_a_fact_that_was_changed_is_the_cause(net, op_type, change, cause, rules):
    model = parse(HEAD + net)
    graph = runs.SavedGraph.of(model, OrtSettings(optimization="none", threads=1))
    feeds = make_feeds(model).feeds

    def there(kernel):
        rule = rules.of(kernel)
        if kernel.op_type != op_type:
            return rule
        facts = change(rule.facts) if callable(change) else {**rule.facts, **change}
        return Rule("another rule", facts)

    block = conv.block_size()
    here = causes.Side(model, graph, rules.of, graph.runner(model)(feeds), block)
    replayed = runs.replay_graph(graph, there, feeds, keep=True).values
    first, _ = causes.first_difference(here, causes.Side(model, graph, there, replayed, block))
    assert (first.op_type, first.causes, first.together) == (op_type, (cause,), False)


NORMALIZED = (
    f"{ROWS} <float[40] g = {{{numbers(40)}}}> {{ y = LayerNormalization <epsilon = %s> (x, g) }}"
)
SAMPLED = """(float[1, 2, 7, 9] x, float[1, 5, 6, 2] g) => (float[1, 2, 5, 6] y)
    { y = GridSample <mode = "%s", align_corners = %d> (x, g) }"""
MODELS = [
    (ROWS + ' { y = Gelu <approximate = "none"> (x) }',
     ROWS + ' { y = Gelu <approximate = "tanh"> (x) }', "another polynomial"),
    (ROWS + " { y = Sigmoid(x) }", ROWS + " { y = HardSigmoid(x) }", "another operator"),
    (NORMALIZED % "0.00001", NORMALIZED % "0.001", "the attribute epsilon"),
    (SAMPLED % ("linear", 0), SAMPLED % ("nearest", 0), "the attribute mode"),
    (SAMPLED % ("linear", 0), SAMPLED % ("linear", 1), "the attribute align_corners"),
    (PRODUCT, PRODUCT.replace("{0.126", "{0.125"), "stored values"),
    (ROWS + " { y = Sigmoid(x) }",
     ROWS + " { h = Cast <to = 10> (x) f = Cast <to = 1> (h) y = Sigmoid(f) }",
     "further operators (Cast, Cast)"),
]  # fmt: skip


def causes_of(first, second, level, folder):
    """The causes of the first difference of two models, whose graphs these are."""
    paths = [folder / "a.onnx", folder / "b.onnx"]
    for path, text in zip(paths, (first, second), strict=True):
        onnx.save(onnx.parser.parse_model(HEAD + text), path)
    sides = [f"{path}@ort:{level}" for path in paths]
    (side,) = tracer.compare_bits(sides, threads=[1], in_process=True).sides
    return side.first.causes


@pytest.mark.parametrize(("first", "second", "cause"), MODELS, ids=[each[2] for each in MODELS])
def test_what_two_models_have_apart_is_the_cause(first, second, cause, tmp_path):
    """Operators, attributes and stored values are switched with the graph."""
    assert causes_of(first, second, "none", tmp_path) == (cause,)


CHANNELS = f"""(float[1, 16, 8, 8] x) => (float[1, 16, 8, 8] y)
    <float[16, 16, 3, 3] w = {{{numbers(2304)}}}> {{ y = Conv <pads = [1, 1, 1, 1]> (x, w) }}"""
BITS = np.float16(numbers(2304).split(", ")).view(np.uint16)
HALVES = f"""(float[1, 16, 8, 8] x) => (float[1, 16, 8, 8] y)
    <float16[16, 16, 3, 3] w = {{{", ".join(map(str, BITS))}}}> {{ p = Cast <to = 10> (x)
    q = Conv <pads = [1, 1, 1, 1]> (p, w) y = Cast <to = 1> (q) }}"""
INTEGERS = f"""(float[1, 16, 8, 8] x) => (float[1, 16, 8, 8] y)
    <int8[16, 16, 3, 3] w = {{{numbers(2304, -128)}}}> {{ q, s, z = DynamicQuantizeLinear(x)
    i = ConvInteger <pads = [1, 1, 1, 1]> (q, w, z) f = Cast <to = 1> (i) y = Mul(f, s) }}"""
SCORES = PRODUCT.replace("y = MatMul(p, w)", "q = MatMul(p, w) y = Gelu(q)")
TURNED = ", ".join(np.reshape(numbers(512).split(", "), (64, 8)).T.flat)
IN_PARTS = f"""(float[8, 64] x) => (float[8, 8] y) <float[8, 64] w = {{{TURNED}}},
    float root = {{1.4142135}}, float one = {{1}}, float half = {{0.5}}> {{ p = Neg(x)
    v = Transpose <perm = [1, 0]> (w) r = MatMul(p, v) d = Div(r, root) e = Erf(d)
    a = Add(e, one) m = Mul(r, a) y = Mul(m, half) }}"""
SCALED = "(float[8, 64] x, float[64, 8] w) => (float[8, 8] y)"
SCALING = SCALED + " { y = com.microsoft.FusedMatMul <alpha = 0.17677669> (x, w) }"
SCALED += " <float[1] s = {0.42044821}> { p = Mul(x, s) v = Mul(w, s) y = MatMul(p, v) }"
WEIGHTS = [
    (CHANNELS, CHANNELS.replace("{0.126", "{0.125"), "all", "stored values"),
    (CHANNELS, HALVES, "all", "another type of numbers"),
    (CHANNELS, INTEGERS, "all", "another type of numbers"),
    (SCORES, IN_PARTS, "none", "fusion"),
    (SCALED, SCALING, "none", "fusion"),
]


@pytest.mark.parametrize(("first", "second", "level", "cause"), WEIGHTS, ids=[
    "weights that onnxruntime reorders", "halves", "bytes", "the same weights, transposed",
    "a factor that is fused",
])  # fmt: skip
def test_a_layout_or_a_fusion_is_no_cause_of_what_weights_are(
    first, second, level, cause, tmp_path
):
    """A graph has weights in an order of its own, and reads a tensor from blocks of channels."""
    assert causes_of(first, second, level, tmp_path) == (cause,)


SETTINGS = [
    ("(float[1, 50003] x) => (float[1, 50003] y) { y = Softplus(x) }", {"threads": [1, 2]},
     ("threads", "what the C library computes")),
    ("(float[n, 512] x, float[512, 64] w) => (float[n, 64] y) { y = MatMul(x, w) }",
     {"threads": [1], "batches": [1, 8]}, ("kernel by batch", "FMA", "block size")),
    (CHANNELS, {"threads": [1], "levels": ("extended", "all")}, ("order of additions",)),
]  # fmt: skip


@pytest.mark.parametrize(("net", "options", "found"), SETTINGS, ids=[e[2][0] for e in SETTINGS])
def test_a_setting_that_was_changed_is_the_cause(net, options, found, tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(HEAD + net), path)
    sides = [f"{path}@ort:{level}" for level in options.pop("levels", ())] or [path]
    (side,) = tracer.compare_bits(sides, in_process=True, **options).sides
    assert side.first.causes == found
