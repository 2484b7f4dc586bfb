"""Every operator has an answer: a count, zero, or a reason why it is not known."""

import warnings
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import pytest
from onnx import helper
from onnx.backend.test.loader import load_model_tests

from tests.analyzers.cost.graphs import Graph
from tracer.analyzers.cost import COLUMNS, cost, count
from tracer.analyzers.cost.count import Count
from tracer.analyzers.cost.rules.movement import REASONS
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.graph import loading, shape_inference

STANDARD = sorted({s.name for s in onnx.defs.get_all_schemas_with_history() if not s.domain})
LIGHT = sorted((Path(onnx.backend.test.__file__).parent / "data" / "light").glob("*.onnx"))


@pytest.mark.parametrize("op_type", STANDARD)
def test_every_operator_of_the_standard_domain_has_a_rule(op_type):
    assert count.find_rule("", op_type) is not None


def test_only_operators_whose_work_is_in_their_values_are_unknown():
    assert set(REASONS) == {
        *("ImageDecoder", "MaxRoiPool", "MelWeightMatrix", "Multinomial"),
        *("NonMaxSuppression", "TfIdfVectorizer", "Unique"),
    }


def test_an_operator_has_one_rule():
    with pytest.raises(ValueError, match=r"ai\.onnx\.Conv has two counting rules"):
        count.counts("Conv")(lambda op: Count())


# Shapes that only a run can tell: bodies of a preview operator, and elements of sequences.
UNSHAPED = ("test_flexattention", "test_sequence_map_add")


@pytest.fixture(scope="module")
def counted_node_tests():
    """ONNX's own tests of single operators: (test, operator, why unknown or None) of each node."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # making the cases divides by zero on purpose
        cases = load_model_tests(kind="node")
    plain = [
        case
        for case in cases
        if "_expanded" not in case.name and not case.name.startswith(UNSHAPED)
    ]
    return [answer for case in plain for answer in _answers(case)]


def _answers(case):
    model = loading.from_proto(_with_stored_settings(case))
    inputs = {value.name for value in model.inputs}
    fed = {
        value.name: array.shape
        for value, array in zip(case.model.graph.input, case.data_sets[0][0], strict=True)
        if isinstance(array, np.ndarray) and value.name in inputs
    }
    counted = cost(TypedModel(model, shape_inference.infer(model, fed)))
    why = dict(line.split(": ", 1) for line in counted.unknown)
    for node in model.nodes:
        if not node.domain:
            yield case.name, node.op_type, why.get(node.key)


def _with_stored_settings(case):
    """Small integer inputs become initializers: in real models sizes and axes are stored."""
    proto = onnx.ModelProto()
    proto.CopyFrom(case.model)
    for value, array in zip(case.model.graph.input, case.data_sets[0][0], strict=True):
        if isinstance(array, np.ndarray) and array.dtype == np.int64 and array.size <= 16:
            proto.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
    return proto


@pytest.mark.nightly
def test_onnx_s_own_tests_of_single_operators_are_counted(counted_node_tests):
    surprising = {
        (name, op_type, why)
        for name, op_type, why in counted_node_tests
        if why is not None and op_type not in REASONS
    }
    assert surprising == set()
    assert len({op_type for _, op_type, _ in counted_node_tests}) > 180


@pytest.mark.one_in(3)
@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
def test_the_models_that_ship_with_onnx_are_counted_without_a_gap(path):
    model = loading.load(path)
    counted = cost(TypedModel(model, shape_inference.infer(model, {})))
    assert counted.unknown == counted.notes == ()
    assert not counted.table[list(COLUMNS)].isna().any(axis=None)


def test_generated_weights_are_parameters():
    model = loading.load(next(path for path in LIGHT if "resnet50" in path.stem))
    counted = cost(TypedModel(model, shape_inference.infer(model, {})))
    assert (counted.table["macs"].sum(), counted.parameters[0]) == (4_089_184_256, 25_557_032)


def test_a_foreign_operator_is_unknown_and_said_so_not_zero():
    proto = Graph(x=(2, 3))
    y = proto.op("Relu", "x")
    proto.nodes.append(helper.make_node("Mystery", [y], ["z"], "m", domain="com.microsoft"))
    model = proto.model()
    counted = cost(TypedModel(model, shape_inference.infer(model, {})))
    assert counted.unknown == ("m: there is no counting rule for com.microsoft.Mystery",)
    assert counted.table.loc["m", ["macs", "flops", "bytes_read", "intensity"]].isna().all()
    assert counted.table["flops"].sum() == 6


def test_a_shape_that_is_not_known_is_named():
    graph = Graph(x=("N", 8))
    graph.linear("x", 8, 4)
    model = graph.model()
    counted = cost(TypedModel(model, shape_inference.infer(model, {})))
    assert counted.unknown == ("Gemm_0: Gemm: the shape of 'x' is unknown",)
    row = counted.table.loc["Gemm_0"]
    assert row["params"] == 8 * 4 + 4
    assert row.drop(["params", "param_bytes"]).isna().all()
    known = cost(TypedModel(model, shape_inference.infer(model, {"x": (5, 8)})))
    assert known.unknown == ()
    assert known.table.loc["Gemm_0", "macs"] == 5 * 8 * 4


def test_shapes_that_contradict_the_operator_are_unknown():
    graph = Graph(x=(2, 3))
    graph.op("Conv", "x", graph.weight())
    model = graph.model()
    (line,) = cost(TypedModel(model, shape_inference.infer(model, {}))).unknown
    assert line.startswith("Conv_0: Conv: inputs of shapes (2, 3), () do not fit")


def test_a_count_beyond_64_bits_is_unknown():
    graph = Graph(x=(2**31, 2**31))
    graph.op("MatMul", "x", "x")
    model = graph.model()
    counted = cost(TypedModel(model, shape_inference.infer(model, {})))
    assert counted.unknown == ("MatMul_0: MatMul: the count does not fit in 64 bits",)
    assert counted.table["bytes_read"].isna().all()
