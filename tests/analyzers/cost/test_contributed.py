"""Work of contributed, classical and training operators, against loops or values by hand."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.backend.test.loader import load_model_tests

from tests.interpreter.models import fused, normal
from tracer.analyzers.cost import cost
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.graph import loading
from tracer.shapes import infer

TRAINING = "ai.onnx.preview.training"
TREES = {
    # numbers of nodes and leaves below each node, and whether they are leaves
    "even": ([1, 0, 2], [0, 1, 1], [2, 1, 3], [0, 1, 1], [0], 2, 2),
    "uneven": ([0, 1], [1, 1], [1, 2], [0, 1], [0], 1, 2),
    "two": ([0, 2], [1, 1], [1, 3], [1, 1], [0, 1], 2, 2),
}


def counted(proto):
    model = loading.from_proto(proto)
    return cost(TypedModel(model, infer(model, {})))


def row_of(op_type, *arrays, **attributes):
    feeds = {f"x{index}": array for index, array in enumerate(arrays)}
    stored = [name for name, array in feeds.items() if array is not None and name != "x0"]
    costs = counted(fused(op_type, feeds, stored=stored, **attributes))
    assert costs.unknown == ()
    return costs.table.iloc[0]


def test_an_attention_of_bytes_has_the_products_of_its_floats():
    zero = np.array(3, np.uint8)
    bytes_, scale = np.ones((2, 5, 16), np.uint8), np.array(0.1, np.float32)
    weights = np.ones((16, 48), np.int8)
    quantised = row_of("QAttention", bytes_, weights, normal(48), scale, scale, None, zero,
                       num_heads=4)  # fmt: skip
    floats = row_of("Attention", normal(2, 5, 16), normal(16, 48), normal(48), num_heads=4)
    assert quantised["macs"] == floats["macs"] == 2 * 5 * 16 * 48 + 2 * 2 * 4 * 5 * 5 * 4
    outputs, centred = 2 * 5 * 48, 2 * 5 * 16
    assert quantised["flops"] - floats["flops"] == outputs + centred


@pytest.mark.parametrize("cross", [False, True])
def test_a_new_token_attends_to_what_is_filled(cross):
    query, cache = normal(2, 1, 8), normal(2, 2, 9, 4)
    if cross:
        rest, keys = (cache, cache), 9
    else:
        rest, keys = (query, query, None, None, cache, cache, np.array([3], np.int32)), 4
    row = row_of("DecoderMaskedMultiHeadAttention", query, *rest, num_heads=2,
                 past_present_share_buffer=int(not cross))  # fmt: skip
    assert row["macs"] == 2 * (2 * 2 * keys * 4)


def test_attention_with_bodies_is_attention():
    arrays = {"q": normal(2, 4, 3, 8), "k": normal(2, 4, 5, 8), "v": normal(2, 4, 5, 6)}

    def alone(op_type, domain):
        proto = fused(op_type, arrays, domain=domain)
        proto.opset_import[0].version = 24
        proto.opset_import.append(helper.make_opsetid("ai.onnx.preview", 1))
        return counted(proto)

    flexible, plain = alone("FlexAttention", "ai.onnx.preview"), alone("Attention", "")
    assert flexible.unknown == plain.unknown == ()
    assert flexible.table["flops"].sum() == plain.table["flops"].sum() > 0


def test_words_are_convolved_over_all_windows():
    row = row_of("WordConvEmbedding", np.ones((5, 8), np.int32), normal(6, 1, 3, 4), normal(6),
                 normal(9, 4))  # fmt: skip
    scores = 5 * (8 - 3 + 1) * 6
    assert row["macs"] == scores * 3 * 4
    assert row["flops"] == scores * (2 * 3 * 4 + 3)  # bias, tanh, the largest
    assert row["params"] == 6 * 3 * 4 + 6 + 9 * 4


def test_distances_and_paths():
    assert row_of("CDist", normal(4, 3), normal(5, 3), metric="euclidean")["flops"] == 20 * 10
    assert row_of("CDist", normal(4, 3), normal(5, 3), metric="sqeuclidean")["flops"] == 20 * 9


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_an_inverse_is_an_elimination(size):
    """Gauss-Jordan in place, one operation after the other."""
    matrix = normal(size, size) + 5 * np.eye(size, dtype=np.float32)
    inverse, tally = matrix.astype(float), {"adds": 0, "muls": 0, "divisions": 0}
    for pivot in range(size):
        divisor, inverse[pivot, pivot] = inverse[pivot, pivot], 1
        for column in range(size):
            inverse[pivot, column] /= divisor
            tally["divisions"] += 1
        for row in (each for each in range(size) if each != pivot):
            factor, inverse[row, pivot] = inverse[row, pivot], 0
            for column in range(size):
                inverse[row, column] -= factor * inverse[pivot, column]
                tally["adds"] += column != pivot  # from 0 it is a product alone
                tally["muls"] += 1
    np.testing.assert_allclose(inverse @ matrix, np.eye(size), atol=1e-4)
    row = row_of("Inverse", matrix)
    assert (row["adds"], row["muls"]) == (tally["adds"], tally["muls"])
    assert row["flops"] == sum(tally.values())


@pytest.mark.parametrize(("mode", "neighbours"), [("bilinear", 4), ("nearest", 1)])
def test_regions_are_interpolated(mode, neighbours):
    row = row_of("CropAndResize", normal(1, 3, 5, 6), normal(2, 4), np.zeros(2, np.int32),
                 np.array([4, 4], np.int32), mode=mode)  # fmt: skip
    assert row["flops"] == (2 * neighbours - 1) * 2 * 3 * 16 * (neighbours > 1)


def test_what_tokens_decide_is_unknown_and_the_reason_is_told():
    """The nodes of its decoder run as often as no one knows."""
    body = helper.make_graph(
        [helper.make_node("Relu", ["i"], ["o"])], "body",
        [helper.make_tensor_value_info("i", 1, [4])], [helper.make_tensor_value_info("o", 1, [4])],
    )  # fmt: skip
    costs = counted(fused("GreedySearch", {"ids": np.zeros((1, 2), np.int32)}, decoder=body))
    assert any("tokens that it generates" in reason for reason in costs.unknown)


def test_optimizers_have_the_work_of_their_formulas():
    """ONNX's own cases have one weight tensor or two; nothing is left unknown."""
    per_weight = {"test_adagrad": 9, "test_adagrad_multiple": 9, "test_adam": 14,
                  "test_adam_multiple": 14, "test_momentum": 7, "test_momentum_multiple": 7,
                  "test_nesterov_momentum": 9}  # fmt: skip
    cases = {case.name: case for case in load_model_tests(kind="node") if case.name in per_weight}
    assert set(cases) == set(per_weight)
    for name, case in cases.items():
        costs = counted(case.model)
        assert costs.unknown == ()
        outputs = case.data_sets[0][1]
        updated = sum(array.size for array in outputs) // (3 if "adam" in name else 2)
        assert costs.table["flops"].sum() == per_weight[name] * updated, name


@pytest.mark.parametrize("name", TREES)
def test_trees_compare_from_root_to_leaf(name):
    yes, yes_leaf, no, no_leaf, roots, least, most = TREES[name]
    node = helper.make_node(
        "TreeEnsemble", ["x"], ["y"], "trees", domain="ai.onnx.ml", n_targets=1,
        nodes_truenodeids=yes, nodes_trueleafs=yes_leaf, nodes_falsenodeids=no,
        nodes_falseleafs=no_leaf, tree_roots=roots, nodes_featureids=[0] * len(yes),
        nodes_splits=helper.make_tensor("s", 1, [len(yes)], [0.5] * len(yes)),
        nodes_modes=helper.make_tensor("m", 2, [len(yes)], [0] * len(yes)),
        leaf_targetids=[0] * 4, leaf_weights=helper.make_tensor("w", 1, [4], [0.0] * 4),
    )  # fmt: skip
    values = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [7, 2]), ("y", [7, 1]))]
    graph = helper.make_graph([node], "trees", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 5)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    onnx.checker.check_model(proto)
    costs = counted(proto)
    if least == most:
        assert costs.unknown == ()
        assert costs.table["flops"].sum() == 7 * (least + len(roots))
    else:
        assert f"({least} to {most} comparisons for a row)" in costs.unknown[0]
