"""Reductions, poolings and normalisations of channels are replayed with onnxruntime's bits."""

import numpy as np
import pytest
from onnx import helper

from tracer.arithmetic.kernel import Kernel, NotKnown, are_equal, reveal
from tracer.arithmetic.replays import replay_of

FLOAT = np.dtype(np.float32)
BLOCKED = "com.microsoft.nchwc"


def check(op_type, shapes, attributes, domain="", opset=11, threads=2):
    """Asserts that random outputs, with zeros of both signs, are replayed; returns the facts."""
    inputs = [f"x{place}" for place in range(len(shapes))]
    node = helper.make_node(op_type, inputs, ["y"], domain=domain, **attributes)
    opsets = {"": opset, **({domain: 1} if domain else {})}
    stored = {
        name: np.abs(np.random.default_rng(1).standard_normal(shape)).astype(np.float32)
        for name, shape in zip(inputs, shapes, strict=True)
        if len(shape) == 1
    }
    computed = {n: (FLOAT, s) for n, s in zip(inputs, shapes, strict=True) if n not in stored}
    kernel = Kernel(node, computed, stored, opsets, threads)
    replay = replay_of(domain, op_type)
    rule = reveal(replay, kernel)
    for turn in range(3):
        drawn = kernel.draw(np.random.default_rng(7), turn)
        assert are_equal(kernel.run(drawn)[0], replay.replay(kernel, rule.facts, drawn)[0]).all()
    return rule.facts


REDUCTIONS = ("Sum", "Mean", "L1", "L2", "SumSquare", "LogSum", "LogSumExp", "Max", "Min")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("axes", [[-1], [0], [1], [2, 3], [0, 1, 2, 3], [0, 2, 3], [1, 3]])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name, axes):
    check(f"Reduce{name}", [(3, 6, 7, 9)], {"axes": axes})


@pytest.mark.parametrize("axes", [[-1], [0], [0, 1]])
@pytest.mark.parametrize("name", ["ReduceMax", "ReduceMin"])
def test_a_number_is_kept_in_place_of_nan_as_lanes_keep_it(name, axes):
    node = helper.make_node(name, ["x"], ["y"], axes=axes)
    kernel = Kernel(node, {"x": (FLOAT, (40, 21))}, {}, {"": 13}, 1)
    facts = {"way": "first" if axes == [0] else "aligned"}
    random = np.random.default_rng(0)
    for _ in range(20):
        x = random.standard_normal((40, 21)).astype(np.float32)
        x[random.random(x.shape) < 0.2] = np.nan
        (replayed,) = replay_of("", name).replay(kernel, facts, {"x": x})
        assert are_equal(kernel.run({"x": x})[0], replayed).all()


def test_no_infinity_is_the_largest_number_of_a_sum_of_exponentials():
    node = helper.make_node("ReduceLogSumExp", ["x"], ["y"], axes=[1])
    kernel = Kernel(node, {"x": (FLOAT, (5, 4))}, {}, {"": 13}, 1)
    x = np.full((5, 4), -3, np.float32)
    x[0], x[1, 0], x[2, 1], x[3, 2] = -np.inf, -np.inf, np.inf, np.nan
    replayed = replay_of("", node.op_type).replay(kernel, {}, {"x": x})
    assert are_equal(kernel.run({"x": x})[0], replayed[0]).all()


def test_ways_of_sums():
    shape = [(2, 40, 6, 5)]
    assert check("ReduceSum", shape, {"axes": [3]})["way"] == "aligned"
    assert check("ReduceMean", shape, {"axes": [1]})["way"] == "product"
    assert check("ReduceSum", shape, {"axes": [0, 2, 3]})["way"] == "blocks"


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [3, 3]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"kernel_shape": [3, 2], "strides": [3, 3], "pads": [1, 0, 1, 1]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [12, 13]},
    ],
)
@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("domain", ["", BLOCKED])
def test_poolings(op_type, attributes, domain):
    check(op_type, [(2, 32, 12, 13)], attributes, domain)


@pytest.mark.parametrize(
    ("shape", "attributes", "domain"),
    [
        ((1, 3, 9, 11), {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [2, 2]}, ""),
        ((1, 3, 9, 11), {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1], "dilations": [2, 1]}, ""),
        ((1, 3, 33), {"kernel_shape": [3], "pads": [1, 1]}, ""),
        ((1, 3, 5, 6, 7), {"kernel_shape": [2] * 3, "pads": [1] * 6}, ""),
        ((1, 16, 9, 11), {"kernel_shape": [3, 3], "pads": [1] * 4}, BLOCKED),
    ],
)
def test_padding_takes_no_place_of_nan_or_of_an_infinity(shape, attributes, domain):
    node = helper.make_node("MaxPool", ["x"], ["y"], domain=domain, **attributes)
    kernel = Kernel(node, {"x": (FLOAT, shape)}, {}, {"": 13, BLOCKED: 1}, 1)
    replay, random = replay_of(domain, "MaxPool"), np.random.default_rng(0)
    facts = reveal(replay, kernel).facts
    for unusual in (np.nan, -np.inf):
        for share in (0.15, 0.8):
            x = random.standard_normal(shape).astype(np.float32)
            x[random.random(shape) < share] = unusual
            (replayed,) = replay.replay(kernel, facts, {"x": x})
            assert are_equal(kernel.run({"x": x})[0], replayed).all()


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
def test_poolings_of_other_ranks(op_type):
    check(op_type, [(2, 6, 33)], {"kernel_shape": [3], "strides": [2]})
    check(op_type, [(2, 6, 7, 8, 9)], {"kernel_shape": [3, 3, 3], "strides": [2, 2, 2]})


@pytest.mark.one_in(5)
@pytest.mark.parametrize("op_type", ["GlobalMaxPool", "GlobalAveragePool"])
@pytest.mark.parametrize("domain", ["", BLOCKED])
@pytest.mark.parametrize("size", [(7, 7), (12, 13), (1, 1)])
def test_global_poolings(op_type, domain, size):
    check(op_type, [(2, 32, *size)], {}, domain)


@pytest.mark.parametrize("size", [(5, 7), (16, 16), (1,)])
def test_normalisations_of_channels(size):
    check("BatchNormalization", [(2, 8, *size), *[(8,)] * 4], {}, opset=15)
    check("InstanceNormalization", [(2, 8, *size), (8,), (8,)], {})


def test_mean_of_tensors():
    check("Mean", [(3, 341)] * 3, {})


@pytest.mark.one_in(2)
@pytest.mark.parametrize("beta", [0.75, 0.5])
def test_local_response_normalization(beta):
    attributes = {"size": 5, "alpha": 0.02, "beta": beta, "bias": 2.0}
    facts = check("LRN", [(2, 9, 5, 7)], attributes, threads=1)
    assert facts["rest"] == [628, 2]
    check("LRN", [(1, 64, 55, 55)], attributes)


def test_local_responses_of_huge_numbers_and_of_none():
    """The moving window of squares may be infinite, NaN, or negative."""
    node = helper.make_node("LRN", ["x"], ["y"], size=3)
    kernel = Kernel(node, {"x": (FLOAT, (1, 9, 8, 8))}, {}, {"": 13}, 1)
    replay, random = replay_of("", "LRN"), np.random.default_rng(0)
    rule = reveal(replay, kernel)
    x = (
        random.standard_normal((1, 9, 8, 8)) * np.exp2(random.integers(-40, 70, (9, 8, 8)))
    ).astype(np.float32)
    x[0, 4, 0] = np.nan
    assert are_equal(kernel.run({"x": x})[0], replay.replay(kernel, rule.facts, {"x": x})[0]).all()


def test_a_sum_that_is_not_rounded_once_is_not_called_so():
    """Of onnxruntime's results, the sum of exact products, rounded to float32, tells most apart."""
    node = helper.make_node("Einsum", ["x", "w"], ["y"], equation="bchw,cd->bdhw")
    shapes = {"x": (1, 32, 5, 9), "w": (32, 5)}
    kernel = Kernel(node, {n: (FLOAT, s) for n, s in shapes.items()}, {}, {"": 17}, 1)
    drawn = kernel.draw(np.random.default_rng(0), 0)
    x, w = (drawn[name].astype(np.float64) for name in shapes)
    once = np.einsum("bchw,cd->bdhw", x, w).astype(np.float32)
    assert (kernel.run(drawn)[0] != once).mean() > 0.1
    assert "rounded once" not in reveal(replay_of("", "Einsum"), kernel).text


def test_a_rule_that_does_not_fit_is_quoted_in_the_reason():
    node = helper.make_node("MeanVarianceNormalization", ["x"], ["y"])
    kernel = Kernel(node, {"x": (FLOAT, (2, 3, 5, 7))}, {}, {"": 13})
    with pytest.raises(NotKnown, match=r"no rule fits; by '.*', [\d.]+% of results are equal"):
        reveal(replay_of("", node.op_type), kernel)


@pytest.mark.parametrize(
    ("op_type", "constants"),
    [
        ("Mul", [np.zeros(1, np.float32)]),
        ("QuantizeLinear", [np.array(1e-30, np.float32), np.array(128, np.uint8)]),
        ("QuantizeLinear", [np.array(1e30, np.float32), np.array(128, np.uint8)]),
    ],
)
def test_results_that_never_vary_prove_no_rule(op_type, constants):
    stored = {f"w{place}": value for place, value in enumerate(constants)}
    node = helper.make_node(op_type, ["x", *stored], ["y"])
    kernel = Kernel(node, {"x": (FLOAT, (60, 70))}, stored, {"": 17}, 1)
    with pytest.raises(NotKnown, match="proves no rule"):
        reveal(replay_of("", op_type), kernel)


def test_a_product_is_verified_on_numbers_whose_product_does_not_vanish():
    """Of 1,155 normal numbers it is 0 in any order."""
    node = helper.make_node("ReduceProd", ["x"], ["y"], axes=[0, 1])
    kernel = Kernel(node, {"x": (FLOAT, (33, 35))}, {}, {"": 17}, 1)
    x = 1.887 * np.random.default_rng(2).standard_normal((33, 35)).astype(np.float32)
    assert kernel.run({"x": x})[0] != np.multiply.reduce(x.ravel())
    with pytest.raises(NotKnown, match="no rule fits"):
        reveal(replay_of("", "ReduceProd"), kernel)
