"""Orders of onnxruntime's kernels as orders of accumulators, against its bits and plain loops."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import tracer
from models import families
from tests.accumulators.nodes import model
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Order, Sequential, Terms, named
from tracer.accumulators.spec.policy import parse_policy
from tracer.arithmetic.kernel import Kernel, NotKnown
from tracer.errors import UsageError
from tracer.graph import loading
from tracer.records import environment
from tracer.whatif import runtime_orders

RANDOM = np.random.default_rng(11)
HAS_VNNI = any("vnni" in flag for flag in environment.cpu_flags())


def find(proto, feeds, policy="24(order=runtime)", fixed="8:5"):
    loaded = loading.from_proto(proto)
    return loaded, runtime_orders.find_orders(parse_policy(policy, fixed), loaded, lambda: feeds, 1)


def order_of(proto, feeds) -> Order:
    loaded, (policy, notes) = find(proto, feeds)
    (rule,) = policy.assign(loaded.nodes).values()
    assert not any("not known" in note for note in notes), notes
    return rule.accumulator.order


def nearest(exact: Fraction) -> np.float32:
    """The float32 next to a fraction, ties to even; through a float64 that is rounded to odd."""
    double = float(exact)
    if Fraction(double) != exact and np.float64(double).view(np.int64) % 2 == 0:
        beyond = np.inf if Fraction(double) < exact else -np.inf
        double = float(np.nextafter(double, beyond))
    return np.float32(double)


def added(order: Order, terms: Terms, a: np.ndarray, b: np.ndarray) -> np.float32:
    """The sum of products in float32: each product is fused with the addition of its register."""
    products = [Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a, b, strict=True)]
    for stage in order.stages(terms):
        sums = []
        for row in stage.groups.tolist():
            total = np.float32(0)
            for k in row:
                total = nearest(Fraction(float(total)) + products[k]) if k >= 0 else total
            sums.append(Fraction(float(total)))
        products = sums
    return np.float32(float(products[0]))


@pytest.mark.parametrize("depth", [7, 300, 600])
def test_a_product_of_matrices_has_onnxruntimes_bits_in_its_order(depth):
    w = RANDOM.standard_normal((depth, 24)).astype(np.float32)
    proto = model(f"(float[5,{depth}] x) => (float[r,c] y) {{ y = MatMul (x, w) }}", w=w)
    x = RANDOM.standard_normal((5, depth)).astype(np.float32)
    order = order_of(proto, {"x": x})
    (y,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    for row, column in ((0, 0), (4, 3), (2, 23)):
        assert added(order, Terms(depth), x[row], w[:, column]) == y[row, column], order
    if depth == 600:  # one after the other gives other bits: the test can fail
        other = [added(Sequential(), Terms(depth), x[row], w[:, 0]) for row in range(5)]
        assert order != Sequential() and not np.array_equal(other, y[:, 0])


@pytest.mark.parametrize(("channels", "maps"), [(3, 16), (32, 32)])
def test_a_convolution_has_onnxruntimes_bits_in_its_order(channels, maps):
    w = RANDOM.standard_normal((maps, channels, 3, 3)).astype(np.float32)
    body = f"(float[1,{channels},6,6] x) => (float[n,m,r,c] y) {{ y = Conv (x, w) }}"
    proto = model(body, w=w)
    x = RANDOM.standard_normal((1, channels, 6, 6)).astype(np.float32)
    order = order_of(proto, {"x": x})
    (y,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    for m, i, j in ((0, 0, 0), (maps - 1, 2, 3), (5, 3, 1)):
        window = x[0, :, i : i + 3, j : j + 3].reshape(-1)
        sums = added(order, Terms(channels, (3, 3)), w[m].reshape(-1), window)
        assert sums == y[0, m, i, j], order


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", ["Gemm", "one row", "Conv", "lenet"])
def test_a_wide_float_accumulator_has_onnxruntimes_bits(kind, tmp_path):
    """With FMA and the bias as the kernel adds them; in the order of k alone, bits differ."""
    w = RANDOM.standard_normal((32, 32, 3, 3) if kind == "Conv" else (600, 24)).astype(np.float32)
    if kind == "Conv":
        body = "(float[1,32,6,6] x) => (float[n,m,r,c] y) { y = Conv (x, w, b) }"
    else:
        rows = 5 if kind == "Gemm" else 1
        body = f"(float[{rows},600] x) => (float[r,c] y) {{ y = Gemm (x, w, b) }}"
    proto = model(body, w=w, b=RANDOM.standard_normal(w.shape[kind != "Conv"]).astype(np.float32))
    path = families.shipped("lenet", "torch") if kind == "lenet" else tmp_path / "net.onnx"
    if kind != "lenet":
        onnx.save(proto, path)
    equal = []
    for spelling in ("fp32(order=runtime)", "fp32"):
        runs = []
        tracer.interpret(
            path, accumulator=spelling, batch=4 if kind == "lenet" else None, threads=1,
            in_process=True, receive=lambda feeds, values, runs=runs: runs.append((feeds, values)),
        )  # fmt: skip
        ((feeds, (y,)),) = runs
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options)
        equal.append(np.array_equal(session.run(None, feeds.feeds)[0], y))
    assert equal == [True, False]


def saturated(value: int, bits: int = 14) -> int:
    return min(max(value, -(1 << bits - 1)), (1 << bits - 1) - 1)


def instructions(products: np.ndarray) -> int:
    """The sum of products in 14 bits, in blocks that one instruction adds.

    Without VNNI one adds pairs, which fit in 16 bits here, and another two of these.
    """
    if not HAS_VNNI:
        products = np.add.reduceat(products, np.arange(0, len(products), 2))
    size = 4 if HAS_VNNI else 2
    total = 0
    for k in range(0, len(products), size):
        inner = 0
        for product in products[k : k + size].tolist():
            inner = saturated(inner + product)
        total = saturated(total + inner)
    return total


def test_bytes_are_added_as_by_the_instructions_of_this_processor(tmp_path):
    """Weights of at most 60, so that pairs of 16 bits do not saturate anywhere."""
    x = RANDOM.integers(0, 256, (1, 6, 5, 5)).astype(np.uint8)
    w = RANDOM.integers(-60, 61, (8, 6, 3, 3)).astype(np.int8)
    one, scale = np.float32(1), np.float32(70)
    scales = {"s": one, "p": np.uint8(0), "q": np.int8(0), "t": scale, "z": np.uint8(128)}
    body = "y = QLinearConv <kernel_shape=[3,3]> (x, s, p, w, s, q, t, z)"
    proto = model(f"(uint8[1,6,5,5] x) => (uint8[1,8,3,3] y) {{ {body} }}", w=w, **scales)
    np.savez(tmp_path / "x.npz", x=x)
    outputs = []
    trace = tracer.interpret(
        proto, accumulator="14(order=runtime)", inputs=tmp_path / "x.npz", in_process=True,
        receive=lambda feeds, values: outputs.append(values[0]),
    )  # fmt: skip
    for m, i, j in np.ndindex(8, 3, 3):
        window = x[0, :, i : i + 3, j : j + 3].astype(int)
        by_position = (window * w[m].astype(int)).reshape(6, 9).T.reshape(-1)
        expected = np.clip(np.rint(np.float32(instructions(by_position)) / scale) + 128, 0, 255)
        assert outputs[0][0, m, i, j] == expected
    (sums,) = trace.runs[0].sums
    assert sums.tally.accumulator.order == named(
        f"positionwise(tiles({'4' if HAS_VNNI else '2:16,2'}))"
    )
    assert sums.tally.overflow(14).overflow_outputs.sum() > 0
    assert any(note.startswith("order of ") for note in trace.notes)


def test_a_node_without_a_known_order_is_summed_in_order_and_named():
    w = np.ones((4, 3, 2, 2), np.float32)
    proto = model("(float[1,4,3,3] x) => (float[n,m,r,c] y) { y = ConvTranspose (x, w) }", w=w)
    loaded, (policy, notes) = find(proto, {"x": np.ones((1, 4, 3, 3), np.float32)})
    (rule,) = policy.assign(loaded.nodes).values()
    assert rule.accumulator == Accumulator(24)
    assert len(notes) == 1 and "not known (" in notes[0] and notes[0].endswith(", in order")


def test_nodes_of_other_entries_keep_theirs():
    w = np.ones((4, 4), np.float32)
    body = "(float[2,4] x) => (float[r,c] y) { a = MatMul (x, w) y = Gemm (a, w) }"
    policy = "Gemm=12(order=tree),*=16(order=runtime)"
    loaded, (found, _) = find(model(body, w=w), {"x": np.ones((2, 4), np.float32)}, policy)
    rules = [rule.accumulator for rule in found.assign(loaded.nodes).values()]
    assert rules == [Accumulator(16), Accumulator(12, order=named("tree"))]


@pytest.mark.parametrize(
    ("program", "order"),
    [([0, 5, 9, 13, 17], "sequential"), ([0, 5, 8, 13, 2], "chunked(2)"), ([0, 4, 9, 2, 13], None)],
)
def test_a_revealed_order_has_a_spelling_or_is_not_known(program, order):
    """Terms 0 to 3 and a bias; 0, then the sum of 1 and 2, then 3 is an order without a name."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    kernel = Kernel(node, {}, {"w": np.ones((4, 2), np.float32)}, {"": 17})
    sums = {"program": program, "fused": True, "from_zero": True}
    facts = {"rows": [1], "columns": [2], "cells": [[0]], "sums": [sums]}
    if order is None:
        with pytest.raises(NotKnown, match="no order of accumulators"):
            runtime_orders.order_of_floats(kernel, kernel, facts)
    else:
        assert runtime_orders.order_of_floats(kernel, kernel, facts).order == named(order)


def test_where_no_kernel_runs_the_order_is_refused():
    with pytest.raises(UsageError, match="'runtime' is that of onnxruntime's kernels"):
        Accumulator(16, order="runtime").has_inner_widths(Terms(4))
    with pytest.raises(UsageError, match="runtime within loops"):
        named("positionwise(runtime)")
