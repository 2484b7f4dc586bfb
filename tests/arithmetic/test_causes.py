"""Facts of a machine's rules are changed on purpose: the comparison names the one that was."""

import itertools

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tracer.arithmetic import causes, runs
from tracer.arithmetic.kernel import Rule
from tracer.arithmetic.trees import ADD, BEGIN, JOIN
from tracer.executors.settings import OrtSettings
from tracer.graph import loading

TERMS = {"first": 144, "second": 72}
"""Terms of the sums of each convolution, whose number stands for the bias."""


@pytest.fixture(scope="module")
def model():
    """Two convolutions with a function between them, and a normalisation that folds into one."""
    random = np.random.default_rng(0)
    stored = {
        "w": random.normal(0, 0.05, (8, 16, 3, 3)), "b": random.normal(0, 1, 8),
        "v": random.normal(0, 0.05, (4, 8, 3, 3)), "c": random.normal(0, 1, 4),
        "scale": random.uniform(0.5, 2, 4), "shift": random.normal(0, 1, 4),
        "mean": random.normal(0, 1, 4), "var": random.uniform(0.5, 2, 4),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["p"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Exp", ["p"], ["q"], "exp"),
        helper.make_node("Conv", ["q", "v", "c"], ["r"], "second"),
        helper.make_node("BatchNormalization", ["r", "scale", "shift", "mean", "var"], ["y"], "bn"),
    ]
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 16, 6, 6])]
    outputs = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 4, 4, 4])]
    initializer = [numpy_helper.from_array(v.astype("f"), k) for k, v in stored.items()]
    graph = helper.make_graph(nodes, "net", inputs, outputs, initializer)
    opsets = [helper.make_opsetid("", 17)]
    return loading.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=8))


def graph_of(model, level="none"):
    return runs.SavedGraph.of(model, OrtSettings(optimization=level, threads=1))


def in_blocks(terms, size):
    """Returns the order that adds terms in blocks one after the other, then the blocks."""
    program = []
    for low in range(0, len(terms), size):
        first, *others = terms[low : low + size]
        program += [4 * first + BEGIN, *(4 * term + ADD for term in others)]
        program += [JOIN] * (low > 0)
    return program


def order(count, size=1 << 20, bias="last", backwards=False, **flags):
    """Returns the facts of a convolution, which change by the arguments."""
    terms = list(range(count))[:: -1 if backwards else 1]
    if bias == "first":
        first, *others = in_blocks(terms, size)
        program = [4 * count + BEGIN, first - BEGIN + ADD, *others]
    else:
        program = [*in_blocks(terms, size), 4 * count + ADD]
    return {"program": program, "fused": True, "from_zero": True, **flags}


def everywhere(facts):
    """Returns the facts of a convolution whose places all have one order."""
    return {"rows": [1], "columns": [1], "cells": [[0]], "sums": [facts]}


def side_of(model, graph, feeds, changes=()):
    """Returns a machine that is replayed, with the changed orders of its convolutions."""
    changed = dict(changes)

    def rule_of(kernel):
        if kernel.op_type == "Exp":
            return Rule("a polynomial", {"way": changed.get("exp", 0)})
        if kernel.op_type != "Conv":
            return Rule("rounded once", {})
        name = "first" if kernel.node.output[0] == "p" else "second"
        facts = order(TERMS[name], **changed.get(name, {}))
        return Rule("a sum", everywhere(facts))

    values = runs.replay_graph(graph, rule_of, feeds, keep=True).values
    return causes.Side(model, graph, rule_of, values, 16)


def drawn(seed):
    return {"x": np.random.default_rng(seed).standard_normal((1, 16, 6, 6)).astype("f")}


CHANGES = [
    ({"fused": False}, "FMA"),
    ({"size": 64}, "block size"),
    ({"size": 16}, "block size"),
    ({"size": 8}, "block size"),
    ({"bias": "first"}, "place of the bias"),
    ({"backwards": True}, "order of additions"),
    ({"backwards": True, "size": 16}, "order of additions"),
]


@pytest.mark.parametrize(("node", "change"), list(itertools.product(TERMS, CHANGES)), ids=str)
def test_a_fact_that_was_changed_is_the_cause(model, node, change):
    facts, cause = change
    graph = graph_of(model)
    sides = [side_of(model, graph, drawn(1), each) for each in ({}, {node: facts})]
    found, count = causes.first_difference(*sides)
    assert (found.node, found.causes, found.together) == (node, (cause,), False)
    assert count == 4


def test_two_facts_that_were_changed_are_the_cause_only_together(model):
    graph = graph_of(model)
    facts = {"fused": False, "size": 16}
    sides = [side_of(model, graph, drawn(1), each) for each in ({}, {"second": facts})]
    found, _ = causes.first_difference(*sides)
    assert set(found.causes) == {"FMA", "block size"}
    assert found.together


def test_what_is_changed_in_a_later_node_is_not_the_first_cause(model):
    graph = graph_of(model)
    changes = {"first": {"size": 16}, "second": {"fused": False}}
    found, _ = causes.first_difference(
        side_of(model, graph, drawn(1)), side_of(model, graph, drawn(1), changes)
    )
    assert (found.node, found.causes) == ("first", ("block size",))


def test_a_normalisation_that_is_folded_on_one_side_is_a_fusion(model):
    sides = [side_of(model, graph_of(model, level), drawn(1)) for level in ("none", "extended")]
    found, _ = causes.first_difference(*sides)
    assert (found.node, found.causes) == ("bn", ("fusion",))


def test_a_setting_is_named_before_the_fact(model):
    graph = graph_of(model)
    sides = [side_of(model, graph, drawn(1), each) for each in ({}, {"first": {"size": 16}})]
    found, _ = causes.first_difference(*sides, context="threads")
    assert found.causes == ("threads", "block size")


def test_what_no_fact_explains_is_not_known(model):
    graph = graph_of(model)
    here, there = side_of(model, graph, drawn(1)), side_of(model, graph, drawn(1))
    values = {**there.values, "p": np.nextafter(there.values["p"], np.float32(9))}
    found, _ = causes.first_difference(
        here, causes.Side(model, graph, there.rule_of, values, there.block)
    )
    assert (found.node, found.causes) == ("first", ())
    assert found.reason


def test_equal_machines_have_no_cause(model):
    graph = graph_of(model)
    for seed in range(50):
        sides = [side_of(model, graph, drawn(seed)) for _ in range(2)]
        assert causes.first_difference(*sides) == (None, 4)


def test_a_fused_bias_is_added_last_to_an_order_without_one():
    facts = order(4)
    bare = [step for step in facts["program"] if step // 4 != 4]
    fused = {**everywhere(facts), "activation": {"way": 0}}
    assert causes.adapt(everywhere({**facts, "program": bare}), fused) == fused


def by_position(channels, window, block):
    """Returns the facts of blocks of channels, each added position by position."""
    terms = range(channels * window)
    program = []
    for low in range(0, channels, block):
        part = [c * window + v for v in range(window) for c in range(low, low + block)]
        program += in_blocks(part, len(part)) + [JOIN] * (low > 0)
    return {"program": [*program, 4 * len(terms) + ADD], "fused": True, "from_zero": True}


def test_blocks_of_channels_of_another_size_are_a_block_size():
    sixteen, eight = by_position(32, 9, 16), by_position(32, 9, 8)
    assert causes.differences(sixteen, eight) == {"order": "block size"}
    backwards = order(288, backwards=True)
    assert causes.differences(sixteen, backwards) == {"order": "order of additions"}


@pytest.mark.parametrize(
    ("there", "cause"),
    [({"way": 1}, "order of additions"), ({"way": "channels"}, "saturation of pairs"),
     ({"rest": [3, 1]}, "what the C library computes"), ({"lanes": 4}, "number of lanes"),
     ({"pairs": True}, "saturation of pairs")],
)  # fmt: skip
def test_a_fact_has_the_cause_of_its_name(there, cause):
    here = (
        {"way": "exact"} if "channels" in there.values() else {"way": 0} if "way" in there else {}
    )
    (name,) = there
    assert causes.differences(here, there) == {name: cause}
    assert causes.switch(here, there, {name}) == there
    assert causes.switch(there, here, {name}) == here
