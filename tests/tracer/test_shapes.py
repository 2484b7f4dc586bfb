import onnx
import onnx.parser
import pytest

from tests.graphs import BRANCHES, DATA_DEPENDENT, residual
from tracer.errors import InputError
from tracer.graph import loading, shape_inference, tensor_type
from tracer.graph.tensor_type import TensorType


def test_shapes_are_those_of_onnx_inference_with_the_batch_put_in():
    model = loading.from_proto(residual())
    types = shape_inference.infer(model, {"x": (5, 3, 16, 16)})
    texts = {n: str(types.of(n, model.nodes[0].scope)) for n in ("c1", "flat", "y", "wf")}
    assert texts == {
        "c1": "float32[5,16,16,16]",
        "flat": "float32[5,16]",
        "y": "float32[5,10]",
        "wf": "float32[16,10]",
    }


def test_a_body_resolves_names_from_the_inside_out():
    model = loading.from_proto(onnx.parser.parse_model(BRANCHES))
    types = shape_inference.infer(model, {"x": (4,), "flag": (), "trips": ()})
    tanh = next(node for node in model.nodes if node.op_type == "Tanh")
    assert str(types.of("t", tanh.scope)) == "float32[4]"
    assert str(types.of("x", tanh.scope)) == "float32[4]"
    assert types.of("d", tanh.scope) is None


def test_what_a_run_observed_counts_even_where_inference_differs():
    model = loading.from_proto(onnx.parser.parse_model(DATA_DEPENDENT))
    scope = model.nodes[0].scope
    types = shape_inference.infer(model, {"x": (2, 8)})
    assert types.of("z", scope).concrete is None
    other = TensorType("real", (9, 9))  # runtimes have names of their own for types
    seen = types.updated({("", "z"): TensorType("int64", (2, 16)), ("", "c"): other})
    assert seen.of("z", scope).concrete == (2, 16)
    assert str(seen.of("c", scope)) == "float32[9,9]"


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 3, 16), "3 dimensions"),
        ((1, 3, 15, 16), "dimension 2 is fixed at 16, not 15"),
    ],
)
def test_a_shape_against_the_declaration_is_refused(shape, message):
    with pytest.raises(InputError, match=message):
        shape_inference.infer(loading.from_proto(residual()), {"x": shape})


def test_a_symbol_of_two_sizes_has_none():
    text = '<ir_version: 8, opset_import: ["": 16]> g (float[N] a, float[N] b) => (float[N] y)'
    model = loading.from_proto(onnx.parser.parse_model(text + " { y = Add (a, b) }"))
    types = shape_inference.infer(model, {"a": (1,), "b": (3,)})  # a runtime takes them
    assert types.of("y", model.nodes[0].scope).concrete == (3,)


def test_a_type_is_told_with_what_is_not_known():
    assert str(TensorType("float32", (1, None, "seq"))) == "float32[1,?,seq]"
    assert str(TensorType("int4", None)) == "int4[...]"
    assert str(TensorType("bool", ())) == "bool[]"


@pytest.mark.parametrize(
    ("dtype", "nbytes"),
    [("float32", 28), ("bfloat16", 14), ("int4", 4), ("bool", 7), ("float8_e4m3fn", 7)],
)
def test_bytes_are_those_of_packed_elements(dtype, nbytes):
    assert TensorType(dtype, (7,)).nbytes == nbytes


def test_every_element_type_onnx_knows_has_a_width_or_none_by_intent():
    known = [t for t in onnx.TensorProto.DataType.values() if t != onnx.TensorProto.UNDEFINED]
    widths = {
        tensor_type.dtype_name(t): tensor_type.bits_of(tensor_type.dtype_name(t)) for t in known
    }
    assert [name for name, bits in widths.items() if bits is None] == ["string"]
