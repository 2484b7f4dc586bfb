"""What values may be: small types, text, external and sparse weights."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

from tests.interpreter.models import single
from tracer.errors import ModelError
from tracer.interpreter.interpreter import Interpreter


@pytest.mark.parametrize(
    "dtype",
    [
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e5m2,
        ml_dtypes.int4,
        ml_dtypes.uint4,
    ],
)
def test_small_types_pass_through_weights_casts_and_shapes(dtype):
    numbers = np.arange(6, dtype=np.float32).reshape(2, 3)
    weight = onnx.numpy_helper.from_array(numbers.astype(dtype), "w")
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"]),
        helper.make_node("Cast", ["t"], ["f"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Cast", ["f"], ["y"], to=kind),
    ]
    out = [
        helper.make_tensor_value_info("f", onnx.TensorProto.FLOAT, [3, 2]),
        helper.make_tensor_value_info("y", kind, [3, 2]),
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [], out, [weight]),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    wide, narrow = Interpreter(model).run(None, {})
    np.testing.assert_array_equal(wide, numbers.T)
    assert narrow.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(narrow.astype(np.float32), numbers.T)


def test_strings_are_fed_as_text():
    model = single("Concat", {"a": np.array(["x"], object), "b": np.array(["y"], object)}, axis=0)
    result = Interpreter(model).run(None, {"a": np.array(["é"]), "b": np.array(["b"], object)})[0]
    assert result.tolist() == ["é", "b"]


def test_external_data_are_read_from_the_models_folder(tmp_path):
    weights = np.arange(4096, dtype=np.float32)
    info = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4096])
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Neg", ["w"], ["y"])], "g", [], [info],
            [onnx.numpy_helper.from_array(weights, "w")],
        ),
        ir_version=9, opset_imports=[helper.make_opsetid("", 17)],
    )  # fmt: skip
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data")
    result = Interpreter(tmp_path / "m.onnx").run(None, {})[0]
    np.testing.assert_array_equal(result, -weights)


@pytest.mark.parametrize("location", ["c.bin", "../c.bin"])
def test_external_data_of_an_attribute_are_read_from_the_models_folder_alone(location, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / location).write_bytes(np.float32(2.5).tobytes())
    value = onnx.TensorProto(name="c", data_type=1, dims=[1], data_location="EXTERNAL")
    value.external_data.add(key="location", value=location)
    info = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    node = helper.make_node("Constant", [], ["y"], value=value)
    model = helper.make_model(
        helper.make_graph([node], "g", [], [info]),
        ir_version=9, opset_imports=[helper.make_opsetid("", 17)],
    )  # fmt: skip
    (tmp_path / "in" / "m.onnx").write_bytes(model.SerializeToString())
    if location == "c.bin":
        assert Interpreter(tmp_path / "in" / "m.onnx").run(None, {})[0].tolist() == [2.5]
    else:
        with pytest.raises(ModelError, match=r"cannot be read|not a valid"):
            Interpreter(tmp_path / "in" / "m.onnx").run(None, {})


def test_a_sparse_weight_is_made_dense_and_one_that_does_not_fit_is_told():
    def model(places):
        sparse = helper.make_sparse_tensor(
            onnx.numpy_helper.from_array(np.array([5, 7], np.float32), "w"),
            onnx.numpy_helper.from_array(np.array(places, np.int64), "places"),
            [2, 3],
        )
        info = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 3])
        graph = helper.make_graph([helper.make_node("Neg", ["w"], ["y"])], "g", [], [info])
        graph.sparse_initializer.append(sparse)
        return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])

    expected = [[0, -5, 0], [0, 0, -7]]
    np.testing.assert_array_equal(Interpreter(model([1, 5])).run(None, {})[0], expected)
    np.testing.assert_array_equal(Interpreter(model([[0, 1], [1, 2]])).run(None, {})[0], expected)
    with pytest.raises(ModelError):
        Interpreter(model([1, 6]))


def test_an_operator_without_complex_numbers_refuses_them_and_drops_nothing():
    x = np.ones(3, np.complex64)
    model = single("QuantizeLinear", {"x": x, "s": np.float32(1), "z": np.uint8(0)})
    feeds = {"x": x, "s": np.array(1, np.float32), "z": np.array(0, np.uint8)}
    with pytest.raises(
        ModelError, match="x is complex64, which may be bfloat16, float16, float32 or int32"
    ):
        Interpreter(model).run(None, feeds)
