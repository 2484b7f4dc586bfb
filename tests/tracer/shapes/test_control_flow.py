"""Types in bodies, branches and trip counts that computed shapes decide."""

import numpy as np
import onnx.parser
import pytest

from tracer.analyzers.cost import Cost, cost
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.graph import loading
from tracer.graph.model import Model
from tracer.interpreter.interpreter import Interpreter
from tracer.shapes import infer

HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'

BY_RANK = """
g (float[N,K] x) => (float[?,?] y) <int64 wide = {8}, int64 axis = {1}>
{ s = Shape (x)  k = Gather (s, axis)  is_wide = Equal (k, wide)
  [choice] y = If (is_wide) <
    then_branch = a () => (float[?,?] p) { [large] p = MatMul (x, w) },
    else_branch = b () => (float[?,?] q) { [small] q = MatMul (x, v) }>
  [after] z = Relu (y) }
"""

BY_SHAPE = """
g (float[N,4] x) => (float[?,4] y, float[?,?,4] all) <int64 axis = {0}, bool go = {1}>
{ s = Shape (x)  n = Gather (s, axis)
  [loop] y, all = Loop (n, go, x) <body = step (int64 i, bool on, float[?,?] state)
    => (bool on_out, float[?,?] next, float[?,?] kept) {
      on_out = Identity (on)
      [product] next = MatMul (state, v)
      kept = Identity (next) }> }
"""

GROWING = """
g (float[1,4] x) => (float[?,4] y) <int64 three = {3}, bool go = {1}>
{ [loop] y = Loop (three, go, x) <body = step (int64 i, bool on, float[?,?] state)
    => (bool on_out, float[?,?] next) {
      on_out = Identity (on)
      [twice] next = Concat <axis = 0> (state, state) }>
  [after] z = Relu (y) }
"""


WEIGHTS = {"w": np.ones((8, 4), np.float32), "v": np.ones((4, 4), np.float32)}


def with_weights(text: str) -> Model:
    """Returns the model of a text, with the stored tensors `w` and `v`."""
    proto = onnx.parser.parse_model(HEAD + text)
    for name, array in WEIGHTS.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return loading.from_proto(proto)


def counted(text: str, shape: tuple[int, ...]) -> tuple[Cost, TypedModel]:
    """Returns the cost of a model for an input `x`, and the model with its types."""
    model = with_weights(text)
    typed = TypedModel(model, infer(model, {"x": shape}))
    return cost(typed), typed


@pytest.mark.parametrize(
    ("k", "branch", "other"),
    [(8, "then_branch/large", "else_branch/small"), (4, "else_branch/small", "then_branch/large")],
)
def test_of_a_branch_that_shapes_decide_only_the_taken_one_counts(k, branch, other):
    result, typed = counted(BY_RANK, (3, k))
    assert result.table.loc[f"choice.{branch}", "macs"] == 3 * k * 4
    assert result.table.loc[f"choice.{other}", "flops"] == 0
    assert result.idle == (f"choice.{other}",)
    assert result.table["macs"].sum() == 3 * k * 4
    assert result.unknown == result.causes == ()
    assert result.notes == (
        f"parameters are those of the whole model; {(12 - k) * 4} are of branches that do not run",
    )
    assert typed.types.of("z", typed.model.scopes[0]).concrete == (3, 4)


@pytest.mark.parametrize("rows", [1, 5])
def test_a_loop_over_a_size_counts_its_trips_and_stacks_them(rows):
    result, typed = counted(BY_SHAPE, (rows, 4))
    assert result.table.loc["loop.body/product", "macs"] == rows * rows * 4 * 4
    assert result.notes == result.unknown == ()
    x = np.ones((rows, 4), np.float32)
    ran = Interpreter(typed.model).run(None, {"x": x})
    scope = typed.model.scopes[0]
    assert [typed.types.of(name, scope).concrete for name in ("y", "all")] == [
        value.shape for value in ran
    ]


def test_a_state_that_grows_has_no_shape():
    result, typed = counted(GROWING, (1, 4))
    scopes = {scope.path: scope for scope in typed.model.scopes}
    assert typed.types.of("next", scopes["loop.body"]).concrete is None
    assert typed.types.of("y", scopes[""]).concrete is None
    assert result.causes == ("after behind 'loop' (Loop), whose shape depends on data",)


def test_a_loop_whose_condition_is_false_does_not_run():
    result, _ = counted(BY_SHAPE.replace("bool go = {1}", "bool go = {0}"), (3, 4))
    assert result.idle == ("loop.body/Identity_0", "loop.body/product", "loop.body/Identity_2")
    assert result.table["macs"].sum() == 0


def test_a_condition_that_depends_on_data_leaves_the_maximum_and_says_so():
    text = BY_SHAPE.replace("on_out = Identity (on)", "").replace(
        "kept = Identity (next)",
        "kept = Identity (next)  sum = ReduceSum <keepdims = 0> (next)  "
        "on_out = Cast <to = 9> (sum)",
    )
    result, _ = counted(text, (3, 4))
    assert result.notes == (
        "loop (Loop): the body is counted 3 times, the maximum; its condition may end it before",
    )
