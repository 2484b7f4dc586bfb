"""The core: scopes, functions, observers, operators of the user's, errors, memory, determinism."""

import inspect
import os
import textwrap
from collections import Counter
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper

from benchmarks import _networks as networks
from tests import graphs
from tests.interpreter.models import normal, onnxruntime, parsed, single
from tracer.errors import InputError, ModelError, UsageError
from tracer.graph.loading import open_model
from tracer.interpreter.interpreter import Execution, Interpreter
from tracer.interpreter.numeric import parallel
from tracer.interpreter.observers import TensorRecorder
from tracer.interpreter.operators import Operator, Registry
from tracer.interpreter.plan import Planner, schedule
from tracer.limits import Limits, enforced
from tracer.support.types import type_text

CAPTURE = """
<ir_version: 9, opset_import: ["" : 18]>
main (float[2] x, bool c) => (float[2] y, float[2] z) {
  t = Add (x, x)
  y = If (c) <
    then_branch = a () => (float[2] p) {
      u = Add (t, x)
      p = If (c) <then_branch = b () => (float[2] q) { q = Mul (u, t) },
                  else_branch = d () => (float[2] r) { r = Identity (x) }>
    },
    else_branch = e () => (float[2] s) { s = Neg (t) }>
  z = Relu (t)
}
"""
FUNCTIONS = """
<ir_version: 9, opset_import: ["" : 18, "local" : 1]>
main (float[2] x) => (float[2] y) {
  y = local.twice <alpha: float = 3.0> (x)
}
<domain: "local", opset_import: ["" : 17]>
twice <alpha> (x) => (y) {
  a = Elu <alpha: float = @alpha> (x)
  axes = Constant <value_ints = [0]> ()
  s = ReduceSum <keepdims = 1> (a, axes)
  y = Add (a, s)
}
"""


class Recorder:
    """Notes what it sees, and replaces the values it is asked to."""

    def __init__(self, replace=None):
        self.seen = []
        self.replace = replace or {}

    def before(self, node, inputs):
        self.seen.append(("before", node.key, [type_text(v) for v in inputs]))

    def after(self, node, inputs, outputs):
        self.seen.append(("after", node.key, [type_text(v) for v in outputs]))
        return self.replace.get(node.key)


@pytest.mark.parametrize("condition", [True, False])
def test_bodies_read_the_values_around_them(condition):
    model = parsed(CAPTURE)
    feeds = {"x": np.array([1, -2], np.float32), "c": np.array(condition)}
    for ours, theirs in zip(
        Interpreter(model).run(None, feeds), onnxruntime(model, feeds), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_a_function_of_another_opset_runs_with_its_own_and_with_the_calls_attributes():
    x = np.array([1, -2], np.float32)
    result = Interpreter(parsed(FUNCTIONS)).run(None, {"x": x})[0]
    elu = np.where(x < 0, 3 * np.expm1(x), x)
    np.testing.assert_allclose(result, elu + elu.sum(), rtol=1e-6)


def test_outputs_come_in_the_requested_order():
    feeds = {"x": np.array([1, -2], np.float32), "c": np.array(True)}
    interpreter = Interpreter(parsed(CAPTURE))
    y, z = interpreter.run(None, feeds)
    np.testing.assert_array_equal(interpreter.run(["z", "y"], feeds), [z, y])
    with pytest.raises(UsageError, match=r"no output 'w'.*Its outputs: y, z"):
        interpreter.run(["w"], feeds)


def test_an_observer_sees_every_node_and_can_replace_what_it_made():
    seven = np.array([7, 7], np.float32)
    recorder = Recorder({"Add_0": [seven]})
    feeds = {"x": np.array([1, -2], np.float32), "c": np.array(True)}
    y, z = Interpreter(parsed(CAPTURE), observers=[recorder]).run(None, feeds)
    np.testing.assert_array_equal(z, seven)
    np.testing.assert_array_equal(y, (7 + feeds["x"]) * 7)
    keys = [key for moment, key, _ in recorder.seen if moment == "after"]
    inner = "If_1.then_branch/If_1"
    assert keys == [
        "Add_0", "If_1.then_branch/Add_0", f"{inner}.then_branch/Mul_0", inner, "If_1", "Relu_2",
    ]  # fmt: skip
    assert recorder.seen[0] == ("before", "Add_0", ["float32[2]", "float32[2]"])


def test_a_users_operator_wins_and_knows_its_node():
    def doubled_relu(X, *, ctx):  # noqa: N803
        return 2 * np.maximum(X, 0) + (ctx.node.key == "Relu_0") + ctx.opset

    x = np.array([-1, 3], np.float32)
    model = single("Relu", {"x": x})
    result = Interpreter(model, operators=[Operator("Relu", 14, doubled_relu)]).run(None, {"x": x})
    np.testing.assert_array_equal(result[0], [22, 28])
    older = Interpreter(model, operators=[Operator("Relu", 22, doubled_relu)])
    np.testing.assert_array_equal(older.run(None, {"x": x})[0], [0, 3])


def test_a_users_operator_of_an_unknown_domain():
    node = helper.make_node("Twice", ["x"], ["y"], domain="my.ops", times=3)
    info = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    out = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    model = helper.make_model(
        helper.make_graph([node], "g", [info], [out]),
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("my.ops", 1)],
        ir_version=9,
    )
    with pytest.raises(
        ModelError, match=r"my\.ops\.Twice \(node 'Twice_0'\)\..*--operators FILE\.py"
    ):
        Interpreter(model)

    def twice(x, *, times=2):
        return x * times

    interpreter = Interpreter(model, operators=[Operator("Twice", 1, twice, "my.ops")])
    assert interpreter.run(None, {"x": np.ones(1, np.float32)})[0] == 3


def test_a_registry_knows_versions_and_refuses_duplicates():
    first, second = Operator("Abs", 1, np.abs), Operator("Abs", 13, np.absolute)
    registry = Registry([first, second])
    assert registry.find("", "Abs", 12) is first
    assert registry.find("ai.onnx", "Abs", 20) is second
    assert registry.find("", "Neg", 20) is None
    with pytest.raises(UsageError, match="Abs of version 13 is registered twice"):
        registry.add(Operator("Abs", 13, np.abs))


def test_an_error_names_node_operator_opset_and_input_types():
    x, shape = np.zeros((2, 3), np.float32), np.array([4, 4])
    model = single("Reshape", {"x": x, "shape": shape}, opset=19)
    with pytest.raises(ModelError) as caught:
        Interpreter(model).run(None, {"x": x, "shape": shape})
    assert "node 'Reshape_0' (Reshape, opset 19)" in str(caught.value)
    assert "x: float32[2,3], shape: int64[2]" in str(caught.value)
    assert "cannot reshape array of size 6" in str(caught.value)


def test_an_error_in_a_body_is_located_once_at_the_inner_node():
    text = CAPTURE.replace("s = Neg (t)", "s = Reshape (t, t)")
    feeds = {"x": np.array([1, -2], np.float32), "c": np.array(False)}
    with pytest.raises(ModelError) as caught:
        Interpreter(parsed(text)).run(None, feeds)
    assert "node 'If_1.else_branch/Reshape_0'" in str(caught.value)
    assert str(caught.value).count("node '") == 1


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, r"input 'x' is missing"),
        ({"x": np.zeros((2, 2), np.float32), "w": np.zeros(1)}, r"no input 'w'.*Its inputs: x"),
        ({"x": np.zeros((2, 2))}, r"is float32\[2,2\], but float64\[2,2\] was fed"),
        ({"x": np.zeros((2, 3), np.float32)}, r"is float32\[2,2\], but float32\[2,3\] was fed"),
    ],
)
def test_feeds_that_do_not_fit_are_told(feeds, message):
    model = single("Relu", {"x": np.zeros((2, 2), np.float32)})
    with pytest.raises(InputError, match=message):
        Interpreter(model).run(None, feeds)


def test_neither_feeds_nor_weights_can_be_written_through_outputs():
    x = np.ones(3, np.float32)
    result = Interpreter(single("Identity", {"x": x})).run(None, {"x": x})[0]
    result[0] = 5
    assert x[0] == 1


def test_peak_bytes_are_those_of_a_liveness_analysis():
    model = networks.resnet20(batch=2)
    sizes: dict[str, int] = {}

    class Sizes:
        def before(self, node, inputs):
            pass

        def after(self, node, inputs, outputs):
            for name, value in zip(node.outputs, outputs, strict=True):
                sizes[name] = value.nbytes

    x = np.zeros((2, 3, 32, 32), np.float32)
    interpreter = Interpreter(model, observers=[Sizes()])
    interpreter.run(None, {"x": x})
    assert interpreter.peak_bytes == _predicted_peak(model.graph, sizes | {"x": x.nbytes})


def _predicted_peak(graph, sizes):
    """While a node runs, what is live is what some later node reads, its inputs and outputs."""
    kept = {value.name for value in graph.output}
    peak = 0
    for index, node in enumerate(graph.node):
        later = Counter(name for after in graph.node[index:] for name in after.input)
        computed = {"x"}.union(*(before.output for before in graph.node[: index + 1]))
        live = {name for name in computed if name in later or name in kept or name in node.output}
        peak = max(peak, sum(sizes[name] for name in live))
    return peak


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["resnet20", "mobilenet", "encoder"])
def test_the_same_bits_whatever_the_number_of_threads(name):
    model = {
        "resnet20": lambda: networks.resnet20(batch=5),
        "mobilenet": lambda: networks.mobilenet(batch=1),
        "encoder": lambda: networks.encoder(length=40, layers=1),
    }[name]()
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    result = [Interpreter(model, threads=n).run(None, {"x": x})[0] for n in (1, 2, 3, 1)]
    for other in result[1:]:
        np.testing.assert_array_equal(result[0], other)


def test_there_are_no_more_threads_than_processors(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
    used = []

    class Watch:
        def before(self, node, inputs):
            used.append(parallel.allowed())

        def after(self, node, inputs, outputs):
            pass

    x = np.zeros((3, 4), np.float32)
    for threads in (1, 2, 3, 64):
        Interpreter(single("Relu", {"x": x}), threads=threads, observers=[Watch()]).run(
            None, {"x": x}
        )
    assert used == [1, 2, 2, 2]


def test_random_operators_give_the_same_bits_in_every_run():
    model = single("RandomNormalLike", {"x": np.zeros((3, 4), np.float32)})
    runs = [Interpreter(model).run(None, {"x": np.zeros((3, 4), np.float32)})[0] for _ in "ab"]
    np.testing.assert_array_equal(*runs)
    assert runs[0].std() > 0.1


def test_a_run_can_go_on_from_any_step():
    feeds = {"x": normal(2, 3, 16, 16)}
    interpreter = Interpreter(graphs.residual())
    whole = interpreter.run(None, feeds)
    begun = interpreter.begin(feeds)
    for stop in range(len(interpreter.steps) + 1):
        alive = interpreter.advance(begun, 0, stop)
        done = interpreter.advance(alive, stop)
        for ours, expected in zip(interpreter.outputs(done), whole, strict=True):
            np.testing.assert_array_equal(ours, expected)


def test_the_example_of_the_docstring_prints_the_largest_output_of_each_node(
    tmp_path, monkeypatch, capsys
):
    x = np.array([-1, 3], np.float32)
    onnx.save(single("Relu", {"x": x}), tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    text = inspect.getdoc(Interpreter)
    example = text[text.index("    class Largest") : text.index("`after` may")]
    exec(textwrap.dedent(example), {"Interpreter": Interpreter, "x": x})
    assert capsys.readouterr().out == "Relu_0 3.0\n"


def test_a_task_may_stand_for_several_nodes():
    def fused(inputs, bodies):
        doubled = np.add(inputs[0], inputs[0])
        return [doubled, np.maximum(doubled, 0)]

    text = """
    <ir_version: 9, opset_import: ["" : 18]>
    main (float[2] x) => (float[2] z) { t = Add (x, x) y = Relu (t) z = Sub (y, t) }
    """
    model = open_model(parsed(text))
    add, relu, subtract = (s.task for s in Planner(model, Registry(), None).plan().steps)
    both = replace(add, nodes=(*add.nodes, *relu.nodes), kernel=fused, writes=("t", "y"))
    plan = schedule([both, subtract], ("x",), ("z",), (None,), {})
    with enforced(Limits()) as budget:
        run = Execution(model, (), budget)
        outputs = run.graph(plan, [np.array([-1, 2], np.float32)])
        np.testing.assert_array_equal(outputs[0], [2, 0])
        assert budget.peak == 3 * 8  # x is freed before z comes
        assert budget.live == 0
        with pytest.raises(ModelError, match=r"nodes 'Add_0', 'Relu_1' \(Add, Relu, opset 18\)"):
            run.graph(plan, [np.array(["a"])])


def test_what_follows_from_weights_is_computed_once_and_kept_read_only():
    text = """
    <ir_version: 9, opset_import: ["" : 18]>
    main (float[2] x) => (float[2] y, float[2] t)
    <int8[2] w = {-3, 5}, float s = {0.5}, int8 z = {1}> {
      d = DequantizeLinear (w, s, z)
      t = Neg (d)
      y = Add (x, t)
    }
    """
    x = np.array([1, 2], np.float32)
    interpreter = Interpreter(parsed(text))
    recorders = [TensorRecorder(), TensorRecorder()]
    for recorder in recorders:
        y, t = interpreter.with_observers(recorder).run(None, {"x": x})
        np.testing.assert_array_equal(t, [2, -2])
        np.testing.assert_array_equal(y, x + t)
        t[:] = 7
    first, second = (recorder.tensors for recorder in recorders)
    assert all(np.shares_memory(first[name], second[name]) for name in "dt")
    assert not np.shares_memory(first["y"], second["y"])
    replacing = Recorder({"DequantizeLinear_0": [np.array([8, 8], np.float32)]})
    y, _ = interpreter.with_observers(replacing).run(None, {"x": x})
    np.testing.assert_array_equal(y, x - 8)
    np.testing.assert_array_equal(interpreter.run(["t"], {"x": x})[0], [2, -2])
