"""Operators of a user's own: the example of docs/custom-operators.md, and what goes wrong."""

import re
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import tracer
from tracer.errors import InputError, ModelError, UsageError
from tracer.exporters.subject import Code
from tracer.interpreter.interpreter import Interpreter

PAGE = Path(__file__).parents[2] / "docs" / "custom-operators.md"
MODEL = """
<ir_version: 8, opset_import: ["": 17, "my.domain": 1]>
m (float[2, 3] a, float[2, 3] b) => (float[r, c] y) {
    [own] h = my.domain.Hypot <scale = 2.0> (a, b)
    [after] y = Relu (h)
}
"""
A, B = np.float32([[3, 5, 8], [7, 9, 0]]), np.float32([[4, 12, 15], [24, 40, 1]])


@pytest.fixture
def files(tmp_path):
    """The model, and the file of the page."""
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    own, model = tmp_path / "my_operators.py", tmp_path / "model.onnx"
    own.write_text(example)
    onnx.save(onnx.parser.parse_model(MODEL), model)
    return model, own


def _run(model, **options):
    return Interpreter(model, **options).run(None, {"a": A, "b": B})[0]


def test_the_interpreter_takes_the_file_and_keeps_nothing(files):
    model, own = files
    np.testing.assert_array_equal(_run(model, operators=own), 2 * np.hypot(A, B))
    with pytest.raises(ModelError, match="no implementation"):
        _run(model)


def test_commands_take_the_file(files):
    model, own = files
    code = Code(str(model), operators=own)
    rows = tracer.count(code).nodes.set_index("node")
    assert rows.loc["own", ["flops", "adds", "muls"]].tolist() == [5 * 6, 6, 18]
    assert rows.loc["after", "flops"] == 6  # its shape is known
    trace = tracer.interpret(code, runs=1)
    assert trace.nodes["node"].tolist() == ["own", "after"] or len(trace.nodes) == 2
    without = tracer.count(str(model))
    assert any("no counting rule for my.domain.Hypot" in note for note in without.notes)


def test_a_value_in_place_of_a_file():
    operators = tracer.Operators("my.domain")
    operators.computes("Hypot")(lambda a, b, *, scale: a - b)
    proto = onnx.parser.parse_model(MODEL)
    np.testing.assert_array_equal(_run(proto, operators=operators), np.maximum(A - B, 0))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1 / 0", r"raised ZeroDivisionError.*line 1"),
        ("x = 3", "has no operators"),
        ("def f(:", "SyntaxError"),
    ],
)
def test_a_file_that_gives_none(files, text, problem):
    model, own = files
    own.write_text(text)
    with pytest.raises(InputError, match=problem):
        _run(model, operators=own)


def test_a_file_that_is_not_there(files):
    with pytest.raises(InputError, match="no such file"):
        _run(files[0], operators="none.py")


def test_what_cannot_be_an_operator():
    with pytest.raises(UsageError, match="need a domain"):
        tracer.Operators("")
    operators = tracer.Operators("my.domain")
    operators.computes("Hypot")(np.hypot)
    with pytest.raises(UsageError, match="two functions"):
        operators.computes("Hypot")(np.hypot)


def test_a_rule_that_fails_is_a_reason(files):
    model, own = files
    own.write_text(own.read_text().replace("Count(adds=1, muls=3, other=1)", "undefined"))
    notes = tracer.count(Code(str(model), operators=own)).notes
    assert any("its rule raised NameError" in note for note in notes)


def test_a_function_that_fails_is_told_with_its_node(files):
    model, own = files
    own.write_text(own.read_text().replace("np.hypot(a, b)", "np.hypot(a, b, c)"))
    with pytest.raises(ModelError, match="'own'"):
        _run(model, operators=own)
