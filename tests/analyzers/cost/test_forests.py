"""Forests: their work is that of scikit-learn's trees, and their tables are not copied."""

import numpy as np
import onnx
import pytest

import tracer
from tracer.graph import loading, shape_inference, stored_weights

ROWS = 7


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 4)).astype(np.float32)
    return x, (x[:, 0] * x[:, 1] > 0).astype(int) + (x[:, 2] > 1)


def exported(model, x):
    skl2onnx = pytest.importorskip("skl2onnx")
    options = {} if not hasattr(model, "classes_") else {type(model): {"zipmap": False}}
    return skl2onnx.to_onnx(model, x[:ROWS], target_opset=17, options=options)


def leaf_depths(tree, node=0, depth=0):
    below = (tree.children_left[node], tree.children_right[node])
    if below[0] == below[1]:  # both are -1 at a leaf
        return [depth]
    return [each for child in below for each in leaf_depths(tree, child, depth + 1)]


@pytest.mark.parametrize("kind", ["RandomForestClassifier", "ExtraTreesRegressor"])
def test_least_and_most_comparisons_are_those_of_the_trees(kind, data):
    ensemble = pytest.importorskip("sklearn.ensemble")
    x, y = data
    model = getattr(ensemble, kind)(9, max_depth=6, random_state=0).fit(x, y)
    depths = [leaf_depths(tree.tree_) for tree in model.estimators_]
    least, most = sum(map(min, depths)), sum(map(max, depths))
    (note,) = [n for n in tracer.count(exported(model, x)).notes if "comparisons" in n]
    assert f"({least:,} to {most:,} comparisons for a row)" in note


def test_trees_whose_leaves_lie_at_one_depth_are_counted(data):
    tree = pytest.importorskip("sklearn.tree").DecisionTreeRegressor(max_depth=1, random_state=0)
    x, y = data
    nodes = tracer.count(exported(tree.fit(x, y), x), batch=ROWS).nodes.set_index("op_type")
    assert nodes.loc["TreeEnsembleRegressor", "flops"] == ROWS * (1 + 1)


def forest(nodes):
    """A regressor of stumps: every tree is a branch and two leaves."""
    trees = np.arange(nodes) // 3
    node = onnx.helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1,
        nodes_treeids=trees, nodes_nodeids=np.arange(nodes) % 3, nodes_featureids=[0] * nodes,
        nodes_values=[0.5] * nodes, nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"] * (nodes // 3),
        nodes_truenodeids=[1, 0, 0] * (nodes // 3), nodes_falsenodeids=[2, 0, 0] * (nodes // 3),
        target_treeids=trees[::3], target_nodeids=[1] * (nodes // 3),
        target_ids=[0] * (nodes // 3), target_weights=[1.0] * (nodes // 3),
    )  # fmt: skip
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph([node], "g", [value("x", 1, ["N", 2])], [value("y", 1, None)])
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("ai.onnx.ml", 1)]
    return loading.from_proto(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8))


def test_inference_gets_no_tables_and_a_run_the_memory_for_them(monkeypatch):
    small, large = forest(30), forest(30_000)
    given = []
    infer_shapes = onnx.shape_inference.infer_shapes

    def recorded(model, **options):
        given.append(len(model))
        return infer_shapes(model, **options)

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", recorded)
    for model in (small, large):
        shape_inference.infer(model, {"x": (ROWS, 2)})
    assert max(given) < 10_000
    room = [
        stored_weights.memory_of_runtime(stored_weights.given_bytes(each, ()))
        for each in (small, large)
    ]
    assert room[1] - room[0] > large.proto.ByteSize()


def test_a_large_forest_is_counted():
    trace = tracer.count(forest(30_000).proto, batch=ROWS)
    (row,) = trace.nodes.to_dict("records")
    assert (row["flops"], row["output_shapes"]) == (ROWS * 2 * 10_000, f"float32[{ROWS},1]")
