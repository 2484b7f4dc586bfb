import onnx.parser
from hypothesis import given
from hypothesis import strategies as st

from tests.graphs import BRANCHES, residual
from tracer.graph import loading
from tracer.graph.model import expanded_keys

FUNCTIONS = """
<ir_version: 9, opset_import: ["" : 18, "local" : 1]>
main (float[N,4] x, bool c) => (float[N,4] y) {
  t = local.f (x)
  y = If (c) <then_branch = a () => (float[N,4] p) { p = local.f (t) },
              else_branch = b () => (float[N,4] q) { q = Relu (t) }>
}
<domain: "local", opset_import: ["" : 18, "local" : 1]>
f (x) => (y) { a = Relu (x)
  y = local.g (a) }
<domain: "local", opset_import: ["" : 18]>
g (x) => (y) { y = Tanh (x) }
"""


def test_nodes_of_functions_and_bodies_are_keyed_by_the_path_of_their_parents():
    model = loading.from_proto(onnx.parser.parse_model(FUNCTIONS))
    assert [node.key for node in model.nodes] == [
        "f_0/Relu_0",
        "f_0/g_1/Tanh_0",
        "If_1",
        "If_1.then_branch/f_0/Relu_0",
        "If_1.then_branch/f_0/g_1/Tanh_0",
        "If_1.else_branch/Relu_0",
    ]


def test_a_body_sees_the_graphs_around_it():
    model = loading.from_proto(onnx.parser.parse_model(BRANCHES))
    body = next(node for node in model.nodes if node.op_type == "Exp")
    assert [scope.path for scope in body.scope.outward()] == ["If_0.then_branch", ""]
    assert body.scope.owner is model.nodes[0]


@given(st.lists(st.sampled_from(["", "conv", "Relu_0", "Relu_1", "Relu_1_", 'a"b', "\x1b[31m"])))
def test_keys_are_unique_whatever_the_names_and_names_that_are_unique_are_kept(names):
    proto = onnx.ModelProto()
    for name in names:
        proto.graph.node.add(op_type="Relu", name=name)
    keys = expanded_keys(proto)
    assert len(set(keys)) == len(names)
    for name, key in zip(names, keys, strict=True):
        assert name == "" or names.count(name) > 1 or key == name


def test_the_key_of_a_node_does_not_depend_on_the_nodes_after_it():
    proto = residual(named=False)
    before = expanded_keys(proto)
    proto.graph.node.add(op_type="Relu")
    assert expanded_keys(proto)[: len(before)] == before


def test_a_name_that_looks_like_the_path_of_another_node_does_not_collide():
    text = FUNCTIONS.replace("y = If (c)", "u = Relu (x)  y = If (c)")
    proto = onnx.parser.parse_model(text)
    proto.graph.node[1].name = "f_0/Relu_0"
    keys = [node.key for node in loading.from_proto(proto).nodes]
    assert len(set(keys)) == len(keys)
