"""Models that contradict themselves end in one error of ours, compiled code or not."""

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

from tests.examples import examples
from tests.graphs import BRANCHES, residual
from tests.interpreter.models import parsed
from tracer.errors import ModelError, TracerError
from tracer.interpreter.interpreter import Interpreter
from tracer.limits import Limits

LARGE = np.ones((4, 16, 64, 64), np.float32)
FAULTS = {
    "a bias too short": ("Conv", [LARGE, np.ones((32, 16, 3, 3)), np.ones(31)], {}),
    "a depthwise bias too short": ("Conv", [LARGE, np.ones((16, 1, 3, 3)), np.ones(3)],
                                   {"group": 16}),
    "weights of other channels": ("Conv", [LARGE, np.ones((32, 8, 3, 3))], {}),
    "groups that do not fit": ("Conv", [LARGE, np.ones((33, 8, 3, 3))], {"group": 2}),
    "a kernel larger than the image": ("Conv", [LARGE, np.ones((32, 16, 65, 3))], {}),
    "matrices that do not meet": ("MatMul", [np.ones((64, 300)), np.ones((299, 64))], {}),
    "stacks that do not meet": ("MatMul", [np.ones((2, 64, 300)), np.ones((3, 300, 64))], {}),
    "statistics of other channels": ("BatchNormalization", [LARGE] + [np.ones(15)] * 4, {}),
    "an index beyond the end": ("Gather", [np.ones(3), np.array([3])], {}),
    "a step of nothing": ("Slice", [np.ones(3), *(np.array([n]) for n in (0, 3, 0, 0))], {}),
    "parts that are too many": ("Split", [np.ones(3), np.array([2, 2])], {}),
    "an axis that is not there": ("ReduceSum", [np.ones(3), np.array([4])], {}),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_what_does_not_fit_is_an_error_that_names_the_node(fault):
    op_type, values, attributes = FAULTS[fault]
    feeds = {
        f"x{i}": v if v.dtype.kind == "i" else v.astype(np.float32) for i, v in enumerate(values)
    }
    # ranks alone are declared, or the checker would see what is wrong
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(v.dtype), [None] * v.ndim
        )
        for name, v in feeds.items()
    ]
    outputs = ["y", "z"] if op_type == "Split" else ["y"]
    node = helper.make_node(op_type, list(feeds), outputs, **attributes)
    infos = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [None]) for n in outputs]
    graph = helper.make_graph([node], "g", inputs, infos)
    model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])
    with pytest.raises(ModelError, match=rf"node '{op_type}_0' \({op_type}, opset 17\) with x0: "):
        Interpreter(model).run(None, feeds)


SEEDS = [residual().SerializeToString(), parsed(BRANCHES).SerializeToString()]


@settings(examples(300), derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(SEEDS), st.data())
def test_only_errors_of_ours_escape_from_a_damaged_model(seed, data):
    damaged = bytearray(seed)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    model = onnx.ModelProto()
    try:
        model.ParseFromString(bytes(damaged))
    except DecodeError:
        return  # not a protobuf any more, which `loading` tells
    feeds = {
        "x": np.ones((1, 3, 16, 16) if seed == SEEDS[0] else (4,), np.float32),
        "flag": np.array(True),
        "trips": np.array(2),
    }
    limits = Limits(tensor_bytes=1 << 24, live_bytes=1 << 26, loop_trips=100, seconds=5)
    try:
        interpreter = Interpreter(model, limits=limits)
        names = {value.name for value in interpreter.get_inputs()}
        interpreter.run(None, {n: v for n, v in feeds.items() if n in names})
    except TracerError as error:
        assert str(error)
