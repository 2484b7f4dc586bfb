import onnx.parser
import pytest

from tracer import loading
from tracer.errors import ModelError

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


def test_an_empty_file_is_named_as_such(tmp_path):
    (tmp_path / "m.onnx").touch()
    with pytest.raises(ModelError, match=r"m\.onnx: the file is empty"):
        loading.load(tmp_path / "m.onnx")
