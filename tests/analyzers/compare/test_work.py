"""Work that a side without counts takes from the layers of another, and weights that are equal."""

from dataclasses import replace

import numpy as np
import onnx
import pytest

from tests.analyzers.compare.tables import shaken, side
from tracer.analyzers.compare import compare
from tracer.analyzers.compare.numbers import count_reordered, unshared
from tracer.graph.loading import from_proto

COUNTED = [
    {"op_type": "Conv", "module": "a", "macs": 1000, "flops": 2000, "params": 30},
    {"op_type": "Relu", "module": "a", "macs": 0, "flops": 100, "params": 0},
    {"op_type": "Gemm", "module": "b", "macs": 500, "flops": 1000, "params": 500},
]
OPERATORS = [
    {"op_type": "conv2d", "module": "a"},
    {"op_type": "relu", "module": "a"},
    {"op_type": "linear", "module": "b"},
]
TIMES = [100.0, 10.0, 50.0]


def fed(one, types):
    """The side, which ran on inputs of these types."""
    return replace(one, run=replace(one.run, inputs={f"input{i}": t for i, t in enumerate(types)}))


def compared(rows, types=("float32[1,8]",), times=TIMES):
    first = fed(side("onnx", COUNTED, shaken(TIMES)), ("float32[1,8]",))
    second = fed(side("torch", rows, shaken(times), executor="torch"), types)
    return compare([first, second])


def test_operators_have_the_work_of_the_nodes_they_match():
    result = compared(OPERATORS)
    layers = result.layers.set_index("layer")
    assert layers.loc["Conv_0", "macs_b"] == 1000
    assert layers.loc["Gemm_2", "params_b"] == 500
    total = result.totals.iloc[1]
    assert (total["macs"], total["flops"], total["params"]) == (1500, 3100, 530)
    assert total["flops_per_s"] == pytest.approx(3100e6 / total["time_us"])


def test_a_total_without_a_layer_is_unknown_and_not_smaller():
    result = compared(OPERATORS[:2], times=TIMES[:2])
    assert result.layers["macs_b"].sum() == 1000
    assert result.totals["macs"].isna().tolist() == [False, True]


def test_work_on_other_inputs_is_not_taken():
    result = compared(OPERATORS, types=("float32[4,8]",))
    assert result.layers["macs_b"].isna().all()
    assert result.totals["macs"].isna().tolist() == [False, True]


def test_a_training_step_has_no_total_of_its_forward_pass():
    backward = [{"op_type": "conv2d (backward)", "module": "a"}]
    result = compared([*OPERATORS, *backward], times=[*TIMES, 70.0])
    assert result.layers.set_index("layer").loc["Conv_0", "macs_b"] == 1000
    assert result.totals["macs"].isna().tolist() == [False, True]
    assert np.isnan(result.totals["flops_per_s"].iloc[1])


def holding(**weights):
    """A model that passes its input on, and holds the weights."""
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    stored = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    return from_proto(
        onnx.helper.make_model(
            onnx.helper.make_graph([node], "g", [value], [result], stored),
            opset_imports=[onnx.helper.make_opsetid("", 17)],
            ir_version=8,
        )
    )


def test_weights_are_the_same_under_any_name_and_transposed():
    random = np.random.default_rng(0)
    weight, bias = random.normal(size=(6, 4)).astype("f4"), random.normal(size=6).astype("f4")
    ours = holding(w=weight, b=bias, shape=np.array([1, 6], "i8"), one=np.array([2.0], "f4"))
    assert unshared(ours, holding(W=np.ascontiguousarray(weight.T), B=bias)) == (0, 2)
    changed = weight.copy()
    changed[2, 3] = np.nextafter(changed[2, 3], np.float32(9))
    assert unshared(ours, holding(w=changed, b=bias)) == (1, 2)
    assert unshared(ours, holding(w=weight, again=weight, b=bias)) == (1, 3)


def test_weights_in_another_order_are_told_from_transposed_ones():
    """The classes of a head in another order are a fault; layouts of frameworks are none."""
    random = np.random.default_rng(1)
    weight, kernel = random.normal(size=(4, 6)), random.normal(size=(3, 2, 5, 5))
    ours = holding(w=weight.astype(np.float32), k=kernel.astype(np.float32))
    layouts = {"w": weight.T, "k": kernel.transpose(2, 3, 1, 0)}
    theirs = {name: np.ascontiguousarray(each, np.float32) for name, each in layouts.items()}
    assert count_reordered(ours, holding(**theirs)) == 0
    assert count_reordered(holding(**theirs), ours) == 0
    other = holding(w=weight[::-1].astype(np.float32), k=theirs["k"])
    assert unshared(ours, other) == (0, 2)
    assert count_reordered(ours, other) == 1


def test_weights_may_be_attributes_of_a_classical_model():
    text = """<ir_version: 8, opset_import: ["ai.onnx.ml": 3]> g (float[N,2] x) => (float[N,1] y) {
      y = ai.onnx.ml.LinearRegressor <coefficients = [0.5, FACTOR], intercepts = [1.0]> (x)
    }"""
    ours, same, other = (
        from_proto(onnx.parser.parse_model(text.replace("FACTOR", factor)))
        for factor in ("0.25", "0.25", "0.75")
    )
    assert unshared(ours, same) == (0, 1)  # a single number is no weight
    assert unshared(ours, other) == (1, 1)
