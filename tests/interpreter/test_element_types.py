"""Types of one schema variable are equal, and allowed: onnxruntime is the oracle."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, parser
from onnxruntime.capi import onnxruntime_pybind11_state as native

import tracer
from tests.interpreter.models import single
from tracer.errors import ModelError
from tracer.graph import element_types
from tracer.graph.loading import open_model
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.operators import standard

OPSET = 21
ELEMENTS = [getattr(TensorProto, name) for name in (
    "FLOAT", "FLOAT", "FLOAT", "FLOAT16", "DOUBLE", "BFLOAT16", "INT8", "UINT8", "INT32", "INT64",
    "BOOL", "STRING", "FLOAT8E4M3FN",
)]  # fmt: skip
OF_TYPES = ("bound to different types", "' of input parameter (", "does not match expected type")
"""What onnxruntime says of a type that does not fit, and of nothing else."""


def operators():
    """Operators of ONNX that take tensors, in the version of `OPSET`."""
    for schema in onnx.defs.get_all_schemas():
        if schema.domain or not onnx.defs.has(schema.name, OPSET, ""):
            continue
        found = onnx.defs.get_schema(schema.name, OPSET, "")
        plain = found.inputs and not found.deprecated
        if plain and not any(a.required for a in found.attributes.values()):
            yield found.name, found.min_input, min(found.max_input, 5)


def faulty_for_onnxruntime(proto, op_type):
    """Whether onnxruntime refuses the types of a model; None if it says nothing of them."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        if f"({op_type})" in str(error) and any(text in str(error) for text in OF_TYPES):
            return True
        return False if "NOT_IMPLEMENTED" in str(error) else None
    return False


def faulty_for_us(proto):
    try:
        open_model(proto)
    except ModelError as error:
        if "which must be one type" in error.what or "which may be" in error.what:
            return True
        raise
    return False


@pytest.mark.filterwarnings("ignore")
def test_types_are_refused_where_onnxruntime_refuses_them_and_nowhere_else():
    random, verdicts = Random(0), Counter()
    for op_type, least, most in operators():
        for _ in range(6):
            kinds = [random.choice(ELEMENTS)] * random.randint(max(least, 1), max(least, most))
            for place in range(len(kinds)):
                if random.random() < 0.4:
                    kinds[place] = random.choice(ELEMENTS)
            names = [f"x{place}" for place in range(len(kinds))]
            graph = helper.make_graph(
                [helper.make_node(op_type, names, ["y"])], "g",
                [helper.make_tensor_value_info(*each, None)
                 for each in zip(names, kinds, strict=True)],
                [onnx.ValueInfoProto(name="y")],
            )  # fmt: skip
            opsets = [helper.make_opsetid("", OPSET)]
            proto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
            expected = faulty_for_onnxruntime(proto, op_type)
            if expected is not None:
                assert faulty_for_us(proto) == expected, (op_type, kinds)
            verdicts[expected] += 1
    assert verdicts[True] > 200 and verdicts[False] > 100, verdicts


def letters(schema):
    """The types of an operator of onnxruntime, as `contrib_types` spells them."""
    variables = {each.type_param_str for each in schema.type_constraints}
    sides = [[each.typeStr if each.typeStr in variables and each.isHomogeneous else "-"
              for each in side] for side in (schema.inputs, schema.outputs)]  # fmt: skip
    counts, known = Counter(sides[0] + sides[1]), {}
    for name in sides[0] + sides[1]:
        if name != "-" and counts[name] > 1:
            known.setdefault(name, "TUVWXYZ"[len(known)])
    return " ".join("".join(known.get(name, "-") for name in side).rstrip("-") for side in sides)


def test_the_table_of_contributed_operators_is_that_of_onnxruntime():
    ours = {each.op_type for each in standard()
            if each.domain == "com.microsoft" and each.check is None}  # fmt: skip
    theirs = {f"com.microsoft.{schema.name}": letters(schema)
              for schema in native.get_all_operator_schema()
              if schema.domain == "com.microsoft" and schema.name in ours}  # fmt: skip
    assert {n: text for n, text in theirs.items() if text.strip("- ")} == element_types.VARIABLES


def conv(x, w):
    """The text of a convolution of types `x` and `w`."""
    return f"({x}[1,1,9,9] x, {w}[1,1,2,2] w) => (float[1,1,8,8] y) {{ y = Conv(x, w) }}"


MIXED = {
    "int8 and float32": f"g {conv('int8', 'float')}",
    "float8 and float32": f"g {conv('float8e4m3fn', 'float')}",
    "float16 and float32": f"g {conv('float16', 'float')}",
    "an output of another type": """g (float[2,3] x, float[3,2] w) => (double[2,2] y)
        { y = MatMul(x, w) }""",
    "after a Cast": """g (float[2,3] x, float[3,2] w) => (float[2,2] y)
        { h = Cast <to: int = 11> (x) y = MatMul(h, w) }""",
    "in a body": """g (bool c, int8[2,3] x, float[3,2] w) => (float[2,2] y)
        { y = If (c) <then_branch = t () => (float[2,2] a) { a = MatMul(x, w) },
                      else_branch = e () => (float[2,2] b) { b = Constant <value = float[2,2]
                      {1, 2, 3, 4}> () }> }""",
    "carried into a body": """g (int64 n, bool c, float[2,2] x) => (float[2,2] y)
        { y = Loop (n, c, x) <body = b (int64 i, bool k, int8[2,2] s) => (bool l, int8[2,2] o)
          { l = Identity(k) o = Identity(s) }> }""",
    "in a function": """g (float[2,3] x, float[3,2] w) => (float[2,2] y) { y = own.f(x, w) }
        <opset_import: ["" : 21], domain: "own"> f (a, b) => (z)
        { h = Cast <to: int = 6> (a) z = MatMul(h, b) }""",
    "in a function of another opset": """g (int32[2,3] x, float[3,2] w) => (float[2,2] y)
        { y = own.f(x, w) } <opset_import: ["" : 17], domain: "own"> f (a, b) => (z)
        { h = Abs(a) z = MatMul(h, b) }""",
    "of onnxruntime": """g (int8[1,1,9,9] x, float[1,1,2,2] w) => (float[1,1,8,8] y)
        { y = com.microsoft.FusedConv <activation = "Relu"> (x, w) }""",
}  # fmt: skip


@pytest.mark.parametrize("text", MIXED.values(), ids=MIXED)
def test_every_way_to_use_a_model_refuses_mixed_types(text):
    imports = '"" : 21, "own" : 1, "com.microsoft" : 1'
    proto = parser.parse_model(f"<ir_version: 10, opset_import: [{imports}]> {text}")
    for use in (tracer.Interpreter, tracer.count):
        with pytest.raises(ModelError, match=r"may be|must be|gets") as caught:
            use(proto)
        assert any(each in caught.value.what for each in ("(Conv", "(MatMul", "FusedConv", "body"))


def test_the_types_of_a_run_are_checked_whatever_was_inferred():
    """An observer hands a Conv bytes where floats were declared, as an operator of a user may."""

    class Narrowing:
        def before(self, node, inputs):
            pass

        def after(self, node, inputs, outputs):
            return [each.astype(np.int8) for each in outputs] if node.op_type == "Relu" else None

    text = """g (float[1,1,9,9] x, float[1,1,2,2] w) => (float[1,1,8,8] y)
              { h = Relu(x) y = Conv(h, w) }"""
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    x, w = np.ones((1, 1, 9, 9), np.float32), np.ones((1, 1, 2, 2), np.float32)
    with pytest.raises(ModelError, match=r"Conv_1.*h: int8.*X is int8, which may be float16"):
        Interpreter(proto, observers=[Narrowing()]).run(None, {"x": x, "w": w})


def test_a_variadic_input_that_may_be_mixed_is_taken_as_it_is():
    text = """g (int64 n, bool c, float[2] x, int8[2] z) => (float[2] y, int8[2] v) { y, v =
        Loop (n, c, x, z) <body = b (int64 i, bool k, float[2] s, int8[2] t) =>
        (bool l, float[2] o, int8[2] p) { l = Identity(k) o = Add(s, s) p = Identity(t) }> }"""
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    feeds = {"n": np.array(2), "c": np.array(True), "x": np.ones(2, np.float32),
             "z": np.ones(2, np.int8)}  # fmt: skip
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for ours, theirs in zip(
        Interpreter(proto).run(None, feeds), session.run(None, feeds), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_an_input_that_is_left_out_has_no_type():
    x = np.ones((3, 4), np.float32)
    model = single("Clip", {"x": x, "low": None, "high": np.array(0.5, np.float32)})
    assert Interpreter(model).run(None, {"x": x, "high": np.array(0.5, np.float32)})[0].max() == 0.5


def test_an_output_that_is_left_out_types_no_input_that_is():
    """An encoder and a decoder: the first has no use for all states, the second no lengths."""
    random = np.random.default_rng(0)
    x, h = random.random((7, 2, 10), np.float32), random.random((1, 2, 6), np.float32)
    w, r = random.random((1, 24, 10), np.float32), random.random((1, 24, 6), np.float32)
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[7,2,10] x, float[1,24,10] w, float[1,24,6] r, float[1,2,6] h)
        => (float[1,2,6] yh, float[7,1,2,6] y) {
        no, yh, none = LSTM<hidden_size = 6>(x, w, r)
        y = LSTM<hidden_size = 6>(x, w, r, no, none, h) }""")
    proto.graph.node[0].output[0] = proto.graph.node[0].output[2] = ""
    proto.graph.node[1].input[3] = proto.graph.node[1].input[4] = ""
    feeds = {"x": x, "w": w, "r": r, "h": h}
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for ours, theirs in zip(
        Interpreter(proto).run(None, feeds), session.run(None, feeds), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
