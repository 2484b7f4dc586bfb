"""Operators of one element are replayed with onnxruntime's bits, in every place of a buffer."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from tracer.arithmetic import c_library, mlas, packets
from tracer.arithmetic.kernel import Kernel, are_equal, reveal
from tracer.arithmetic.replays import elementwise, replay_of

FLOAT = np.dtype(np.float32)
MICROSOFT = "com.microsoft"


def revealed(op_type, shapes, attributes=None, domain="", opset=21, threads=1):
    """Returns the kernel of an operator, its replay and the rule that is revealed."""
    names = [f"x{place}" for place in range(len(shapes))]
    node = helper.make_node(op_type, names, ["y"], domain=domain, **(attributes or {}))
    inputs = {name: (FLOAT, shape) for name, shape in zip(names, shapes, strict=True)}
    kernel = Kernel(node, inputs, {}, {"": opset, **({domain: 1} if domain else {})}, threads)
    replay = replay_of(domain, op_type)
    return kernel, replay, reveal(replay, kernel)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("op_type", "attributes", "domain", "opset"),
    [
        ("Exp", {}, "", 13),
        ("Erf", {}, "", 13),
        ("Tanh", {}, "", 13),
        ("Sigmoid", {}, "", 13),
        ("Gelu", {}, "", 20),
        ("Gelu", {"approximate": "tanh"}, "", 20),
        ("Gelu", {}, MICROSOFT, 21),
        ("FastGelu", {}, MICROSOFT, 21),
        ("QuickGelu", {"alpha": 1.702}, MICROSOFT, 21),
        ("QuickGelu", {"alpha": 1.0}, MICROSOFT, 21),
        ("Swish", {"alpha": 1.5}, "", 24),
        ("Softplus", {}, "", 21),
        ("Softsign", {}, "", 21),
        ("Elu", {"alpha": 0.7}, "", 21),
        ("Selu", {}, "", 21),
        ("Celu", {"alpha": 0.8}, "", 21),
        ("Mish", {}, "", 21),
        ("Relu", {}, "", 21),
        ("Clip", {"min": 0.0, "max": 0.9}, "", 6),
        *[(name, {}, "", 21) for name in ("Log", "Sin", "Cos", "Asin", "Acos", "Atan", "Tan")],
        *[(name, {}, "", 21) for name in ("Sinh", "Cosh", "Asinh", "Acosh", "Atanh")],
    ],
)
def test_functions_have_the_bits_of_onnxruntime(op_type, attributes, domain, opset, threads):
    kernel, replay, rule = revealed(op_type, [(23, 1741)], attributes, domain, opset, threads)
    inputs = {"x0": np.random.default_rng(1).uniform(-8, 8, (23, 1741)).astype(np.float32)}
    assert are_equal(kernel.run(inputs)[0], replay.replay(kernel, rule.facts, inputs)[0]).all()


@pytest.mark.parametrize(
    ("op_type", "shapes", "domain"),
    [
        ("Pow", [(5, 201), (5, 201)], ""),
        ("Max", [(7, 5), (3, 1, 5)], ""),
        ("Min", [(3, 343), (1,), (3, 1)], ""),
        ("BiasGelu", [(3, 7, 51), (51,)], MICROSOFT),
        ("FastGelu", [(3, 7, 51), (51,)], MICROSOFT),
    ],
)
def test_several_inputs(op_type, shapes, domain):
    kernel, replay, rule = revealed(op_type, shapes, {}, domain)
    inputs = kernel.draw(np.random.default_rng(7))
    assert are_equal(kernel.run(inputs)[0], replay.replay(kernel, rule.facts, inputs)[0]).all()


@pytest.mark.parametrize("exponent", [np.int64(4), np.int32(-3), np.float64(1.7), np.int64(2)])
def test_powers_of_another_type_are_those_of_doubles(exponent):
    node = helper.make_node("Pow", ["x", "e"], ["y"])
    kernel = Kernel(node, {"x": (FLOAT, (50, 50))}, {"e": np.asarray(exponent)}, {"": 15})
    assert "C library" in reveal(replay_of("", "Pow"), kernel).text


@pytest.mark.parametrize("op_type", ["Sin", "Swish", "Softmax"])
def test_stored_numbers_are_probed_as_computed_ones(op_type):
    x = np.random.default_rng(0).standard_normal((1, 1003)).astype(np.float32)
    kernel = Kernel(helper.make_node(op_type, ["x"], ["y"]), {}, {"x": x}, {"": 24})
    replay = replay_of("", op_type)
    (replayed,) = replay.replay(kernel, reveal(replay, kernel).facts, {})
    assert are_equal(kernel.run({})[0], replayed).all()


def test_what_is_left_over_is_told_by_probes():
    _, _, rule = revealed("Log", [(1003,)])
    assert rule.facts["rest"] == [1000, 3]


FUNCTIONS = {
    "Exp": mlas.exp,
    "Erf": mlas.erf,
    "Tanh": mlas.tanh,
    "Sigmoid": mlas.logistic,
    "Log": packets.log,
    "Sin": packets.sin,
    "Cos": packets.cos,
    "Asin": packets.asin,
    "Acos": packets.acos,
    "Atan": packets.atan,
    "Tan": c_library.tan,
    "Sinh": c_library.sinh,
    "Cosh": c_library.cosh,
    "Asinh": c_library.asinh,
    "Acosh": c_library.acosh,
    "Atanh": c_library.atanh,
    "Elu": lambda x: elementwise.elu(packets, x, {}),
    "Selu": lambda x: elementwise.selu(packets, x, {}),
    "Celu": lambda x: elementwise.celu(packets, x, {}),
    "Softplus": lambda x: elementwise.softplus(packets, x, {}),
    "Softsign": elementwise.softsign,
    "Mish": lambda x: elementwise.mish(packets, x, {}),
    "Gelu": elementwise.gelu,
}


def session(op_type, size):
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [size]) for name in "xy"]
    graph = helper.make_graph([helper.make_node(op_type, ["x"], ["y"])], "g", value[:1], value[1:])
    opset = [helper.make_opsetid("", 20)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model.SerializeToString(), options)


def count_of_unequal(op_type, runtime, first, step):
    numbers = (
        np.arange(first, first + SIZE * step, step, np.uint64).astype(np.uint32).view(np.float32)
    )
    with np.errstate(all="ignore"):
        replayed = FUNCTIONS[op_type](numbers)
    return np.count_nonzero(~are_equal(runtime.run(None, {"x": numbers})[0], replayed))


SIZE = 1 << 20


@pytest.mark.one_in(9)
@pytest.mark.parametrize("op_type", FUNCTIONS)
def test_functions_of_numbers_of_all_sizes(op_type):
    """2^20 of all 2^32 numbers, as far apart as can be: each exponent and sign has 2048."""
    assert count_of_unequal(op_type, session(op_type, SIZE), 1741, 1 << 12) == 0


@pytest.mark.nightly
@pytest.mark.parametrize("op_type", ["Exp", "Erf", "Tanh", "Sigmoid"])
def test_functions_of_all_numbers(op_type):
    """Half a minute each; others were compared once by the same code, see their modules."""
    runtime = session(op_type, SIZE)
    assert not sum(
        count_of_unequal(op_type, runtime, first, 1) for first in range(0, 1 << 32, SIZE)
    )
