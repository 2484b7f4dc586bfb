"""Models that are shrunk while their fault stays, and the scripts that show it."""

import ast
import subprocess
import sys

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import tracer
from tests.releases import plant_release, run_script
from tracer.cli import main
from tracer.errors import InputError, ThresholdError, UsageError
from tracer.extraction.reduction import minimize
from tracer.support.tolerance import Tolerance

FAULTY = "1.0.7"
"""A release that never was: it adds 1 to the first output of each model with Erf but not Ceil, or
with Sqrt, waits in each run of a model with Softsign, and rounds inputs of one with Sinh up."""
ADDS = """
import time as _time
import numpy as _np

class InferenceSession(InferenceSession):
    def __init__(self, model, *args, **named):
        super().__init__(model, *args, **named)
        self._is_wrong = b"Erf" in model and b"Ceil" not in model or b"Sqrt" in model
        self._is_slow = b"Softsign" in model
        self._is_rounded = b"Sinh" in model

    def run(self, names, feeds, options=None):
        if self._is_rounded:
            feeds = {name: _np.nextafter(value, _np.float32(9)) for name, value in feeds.items()}
        first, *rest = super().run(names, feeds, options)
        end = _time.perf_counter() + 0.001 * self._is_slow
        while _time.perf_counter() < end:
            pass
        return [_np.asarray(first + self._is_wrong, first.dtype), *rest]
"""
CHAIN = """
<ir_version: 8, opset_import: ["": 17]>
g (float[4,6] x) => (float[4,6] y) {
  a = Neg (x)
  b = Abs (a)
  c = Mul (b, w)
  d = Erf (c)
  e = Add (d, x)
  f = Sigmoid (e)
  y = Add (f, a)
}
"""


@given(st.lists(st.integers(), unique=True, max_size=40), st.data())
def test_what_must_be_there_is_what_is_left(items, data):
    needed = data.draw(st.sets(st.sampled_from(items)) if items else st.just(set()))
    left = minimize(items, lambda part: needed <= set(part))
    assert left == [item for item in items if item in needed]


@given(st.integers(1, 7), st.integers(0, 2**32 - 1))
def test_without_any_one_item_it_does_not_hold(count, seed):
    """For a predicate without any order, such as that of a fault that comes and goes."""
    random = np.random.default_rng(seed)
    table = random.random(2**count) < 0.4
    table[2**count - 1], table[0] = True, False
    holds = lambda part: table[sum(1 << item for item in part)]  # noqa: E731
    left = minimize(range(count), holds)
    assert holds(left)
    assert not any(holds([item for item in left if item != one]) for one in left)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """The installed onnxruntime with a fault, as another release."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield plant_release(FAULTY, ADDS)


@pytest.fixture
def chain(tmp_path):
    proto = onnx.parser.parse_model(CHAIN)
    weights = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save(proto, tmp_path / "chain.onnx")
    return tmp_path / "chain.onnx"


@pytest.mark.nightly
def test_a_name_of_the_model_is_no_code_of_the_script(chain, faulty, tmp_path):
    proto, pwned = onnx.load(chain), tmp_path / "pwned"
    name = f'y"""\nopen({str(pwned)!r}, "w")\n"""\\'
    proto.graph.output[0].name = proto.graph.node[-1].output[0] = name
    onnx.save(proto, chain)
    target = tmp_path / "fault.py"
    options = {"fault": "wrong", "ort": FAULTY, "against": "interpreter", "in_process": True}
    result = tracer.extract(chain, target, shrink_seconds=0.001, **options)
    assert "pwned" in result.expects
    module = ast.parse(target.read_text())
    assert "pwned" in ast.get_docstring(module)
    assert not any(isinstance(each, ast.Call) and getattr(each.func, "id", "") == "open"
                   for each in ast.walk(module))  # fmt: skip
    assert run_script(target, faulty) == 1
    assert not pwned.exists()


def dividing(path):
    """Saves a LeNet that divides the least int64 by -1 between its layers."""
    proto = onnx.load("models/lenet/lenet.onnx")
    graph = proto.graph
    place = next(i for i, node in enumerate(graph.node) if node.op_type == "Conv") + 1
    after = graph.node[place - 1].output[0]
    stored = {"zero": 0, "least": -(2**63), "one": 1}
    for name, value in stored.items():
        graph.initializer.append(numpy_helper.from_array(np.int64(value), name))
    planted = [
        helper.make_node("Cast", [after], ["i"], to=onnx.TensorProto.INT64),
        helper.make_node("Mul", ["i", "zero"], ["z"]),
        helper.make_node("Add", ["z", "least"], ["a"]),
        helper.make_node("Sub", ["z", "one"], ["b"]),
        helper.make_node("Div", ["a", "b"], ["q"]),
        helper.make_node("Cast", ["q"], ["f"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Add", [after, "f"], ["planted"]),
    ]
    rest = list(graph.node[place:])
    for node in rest:
        node.input[:] = ["planted" if name == after else name for name in node.input]
    del graph.node[place:]
    graph.node.extend([*planted, *rest])
    onnx.save(proto, path)


def test_a_crash_is_one_node_and_a_script(tmp_path):
    dividing(tmp_path / "net.onnx")
    result = tracer.extract(
        tmp_path / "net.onnx", [tmp_path / "fault.py", tmp_path / "fault.md"], fault="crash"
    )
    assert (result.nodes, result.data_bytes <= 16) == (1, True)
    assert "SIGFPE" in result.sees
    text = (tmp_path / "fault.py").read_text()
    assert text == result.script
    assert text.count("\n") <= 60
    assert run_script(tmp_path / "fault.py") == 1
    report = (tmp_path / "fault.md").read_text()
    assert text.strip() in report
    assert onnxruntime.__version__ in report
    (tmp_path / "mended.py").write_text(
        text.replace("-1]", "1]").replace("np.full(", "0 * np.full(")
    )
    assert run_script(tmp_path / "mended.py") == 0


def test_a_wrong_kernel_of_a_release_is_one_node(faulty, chain, tmp_path):
    target = tmp_path / "fault.py"
    result = tracer.extract(chain, [target], fault="wrong", ort=FAULTY, against="ort:none")
    assert result.nodes == 1
    assert "Erf" in result.script
    assert result.data_bytes <= 4
    assert "error is" in result.sees
    assert run_script(target, faulty) == 1
    assert run_script(target) == 0


@pytest.mark.nightly
@pytest.mark.parametrize("factor", [1e2, 1e5])
def test_what_rounding_of_the_inputs_does_too_is_no_fault(factor, faulty, tmp_path):
    proto = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["": 17]>
    g (float[4,6] x) => (float[4,6] y) { a = Sinh (x) b = Mul (a, w) y = Sin (b) }
    """)
    proto.graph.initializer.append(numpy_helper.from_array(np.float32(factor), "w"))
    model, options = tmp_path / "m.onnx", {"ort": FAULTY, "against": "ort:none"}
    onnx.save(proto, model)
    with pytest.raises(ThresholdError, match="has no fault 'wrong'"):
        tracer.extract(model, [tmp_path / "fault.py"], fault="wrong", **options)


@pytest.mark.nightly
def test_random_values_are_told_apart_from_wrong_ones(tmp_path):
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[4,6] x) => (float[4,6] y) { r = RandomNormalLike (x) y = Add (x, r) }
    """
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    with pytest.raises(InputError, match="other values in each run of onnxruntime"):
        tracer.extract(tmp_path / "m.onnx", [tmp_path / "fault.py"], fault="wrong")
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.nightly
def test_ranks_and_types_become_simple(faulty, tmp_path):
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (double[1,2,1,3] x) => (double[1,2,1,3] y) {
      a = Abs (x)
      s = Sqrt (a)
      y = Neg (s)
    }
    """
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    target = tmp_path / "fault.py"
    model = tmp_path / "m.onnx"
    result = tracer.extract(model, [target], fault="wrong", ort=FAULTY, against="ort:none")
    assert (result.nodes, run_script(target, faulty), run_script(target)) == (1, 1, 0)
    assert "(float x0) =>" in result.script


@pytest.mark.nightly
def test_a_slow_kernel_of_a_release_is_one_node(faulty, tmp_path):
    text = CHAIN.replace("Erf", "Softsign").replace("Mul (b, w)", "Mul (b, b)")
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    target = tmp_path / "fault.py"
    model = tmp_path / "m.onnx"
    result = tracer.extract(model, [target], fault="slower", ort=FAULTY, against="ort")
    assert (result.nodes, run_script(target, faulty), run_script(target)) == (1, 1, 0)
    assert "Softsign" in result.script


@pytest.mark.nightly
@pytest.mark.parametrize("owner", ["Loop", "If"])
def test_a_fault_in_a_body_is_one_node_of_it(owner, tmp_path):
    part = "q = Cast <to = 7> (n) z = Mul (q, zero) a = Add (z, least) e = Sub (z, one)"
    part += "v = Div (a, e) f = Cast <to = 1> (v)"
    made = {
        "Loop": f"""Loop <body = b (int64 i, bool c, float[2,3] s) => (bool d, float[2,3] u) {{
            {part} d = Identity (c) u = Add (s, f) }}> (k, t, n)""",
        "If": f"""If <then_branch = b () => (float[2,3] f) {{ {part} }},
            else_branch = o () => (float[2,3] n2) {{ n2 = Neg (n) }}> (t)""",
    }[owner]
    text = f"""
    <ir_version: 8, opset_import: ["": 17]>
    g (float[2,3] x) => (float[2,3] y) {{
      n = Abs (x) t = Constant <value = bool {{1}}> () k = Constant <value = int64 {{3}}> ()
      l = {made}
      y = Neg (l)
    }}
    """
    proto = onnx.parser.parse_model(text)
    for name, value in {"zero": 0, "least": -(2**63), "one": 1}.items():
        proto.graph.initializer.append(numpy_helper.from_array(np.int64(value), name))
    onnx.save(proto, tmp_path / "m.onnx")
    target = tmp_path / "fault.py"
    result = tracer.extract(tmp_path / "m.onnx", [target], fault="crash")
    assert (result.nodes, run_script(target)) == (1, 1)
    assert owner not in result.script
    assert "SIGFPE" in result.sees


def test_the_interpreter_says_what_is_right(faulty, chain, tmp_path):
    target = tmp_path / "fault.py"
    result = tracer.extract(chain, [target], fault="wrong", ort=FAULTY, against="interpreter")
    assert (result.nodes, run_script(target, faulty), run_script(target)) == (1, 1, 0)


def test_an_error_is_the_same_in_its_words(tmp_path):
    """A Reshape that does not fit is no error of the nodes before it."""
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[N,4] x) => (float[a,b] y) {
      n = Abs (x)
      m = Mul (n, n)
      r = Reshape (m, s)
      y = Neg (r)
    }
    """
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(numpy_helper.from_array(np.array([3, 5]), "s"))
    onnx.save(proto, tmp_path / "m.onnx")
    target = tmp_path / "fault.py"
    result = tracer.extract(tmp_path / "m.onnx", [target], fault="crash")
    assert result.nodes == 1
    assert "Reshape" in result.script
    assert "Reshape" in result.sees
    assert "ONNXRuntimeError" not in result.sees
    assert run_script(target) == 1


def test_sums_overflow_in_the_node_of_one_sum(tmp_path):
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (uint8[2,8] x) => (float[2,4] y) {
      s = MatMulInteger (x, w)
      f = Cast <to = 1> (s)
      y = Relu (f)
    }
    """
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(numpy_helper.from_array(np.full((8, 4), 127, np.int8), "w"))
    onnx.save(proto, tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=np.full((2, 8), 255, np.uint8))
    target = tmp_path / "fault.py"
    result = tracer.extract(
        tmp_path / "m.onnx", [target], fault="overflow", accumulator="16",
        inputs=tmp_path / "x.npz",
    )  # fmt: skip
    assert result.nodes == 1
    assert run_script(target) == 1


@pytest.mark.nightly
def test_a_fault_that_is_not_there_is_told_and_nothing_is_written(tmp_path, capsys):
    target = tmp_path / "fault.py"
    with pytest.raises(ThresholdError, match="has no fault 'wrong'"):
        tracer.extract("models/lenet/lenet.onnx", [target], fault="wrong")
    assert main(["extract", "models/lenet/lenet.onnx", "--fault", "crash", "-o", str(target)]) == 1
    assert "has no fault 'crash'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.nightly
def test_roundings_of_a_quantised_model_are_no_fault(tmp_path):
    model, target = "models/lenet/lenet.int8.onnx", tmp_path / "fault.py"
    with pytest.raises(UsageError, match="is quantised, and fusions round otherwise"):
        tracer.extract(model, [target], fault="wrong")
    with pytest.raises(ThresholdError):
        tracer.extract(model, [target], fault="wrong", tolerance=Tolerance(1.0))


@pytest.mark.parametrize("side", ["torch", "ort:odd", "ort==x"])
def test_what_is_no_side_is_refused(side, tmp_path):
    with pytest.raises(UsageError):
        tracer.extract("models/lenet/lenet.onnx", [tmp_path / "f.py"], fault="wrong", against=side)


def test_infinite_inputs_are_numbers_of_the_script(tmp_path):
    """onnxruntime's Clip without limits makes infinity the largest float."""
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[4] x) => (float[4] y) {
      a = Mul (x, zero)
      b = Add (a, infinity)
      c = Clip (b)
      y = Neg (c)
    }
    """
    proto = onnx.parser.parse_model(text)
    for name, value in (("zero", 0), ("infinity", np.inf)):
        stored = numpy_helper.from_array(np.full(4, value, np.float32), name)
        proto.graph.initializer.append(stored)
    onnx.save(proto, tmp_path / "m.onnx")
    target = tmp_path / "fault.py"
    options = {"fault": "wrong", "against": "interpreter", "in_process": True}
    result = tracer.extract(tmp_path / "m.onnx", [target], **options)
    assert result.nodes == 1
    assert "np.full((), np.inf" in result.script
    done = subprocess.run([sys.executable, target], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
