"""Text of strangers is shown on one line, without control characters, and cut."""

import csv
import io
import json
import unicodedata

import numpy as np
import onnx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import tracer
import tracer.cli
from tracer.analyzers.views import as_html, render
from tracer.errors import InputError, ModelError, locate_errors
from tracer.text import BRIEF, MESSAGE, NAME, message, printable

EVIL = "\x1b[31m\x1b[2J\x1b]0;owned\x07\nnote: all is well \u202e\x9b$a_{ [/nope] <b> | `"
"""Colours, a title, a line of its own, a change of direction, a formula, and three markups."""

anything = st.text(st.characters(exclude_categories=()), max_size=600)


@given(anything, st.sampled_from([60, BRIEF, NAME, MESSAGE]))
@example(EVIL * 100, NAME)
@example("\x1b" * 199, NAME)
@example("\r\n", NAME)
def test_what_is_shown_is_one_short_line_and_stays_as_it_is(text, most):
    shown = printable(text, most)
    hidden = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert not hidden & set(map(unicodedata.category, shown))
    assert len(shown) <= most
    assert len(shown.splitlines()) <= 1
    assert printable(shown, most) == shown


@given(st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), max_size=NAME))
def test_ordinary_text_is_shown_as_it_is(text):
    assert printable(text) == text


def test_a_cut_text_tells_its_length_and_keeps_both_ends():
    shown = printable("begin" + "x" * 1_000_000 + "end")
    assert shown.startswith("beginx") and shown.endswith("xend")
    assert "(1,000,008 characters)" in shown


def test_an_error_is_one_line_that_keeps_its_hint():
    error = str(InputError(f"m.onnx: node '{'n' * 1_000_000}\nnote: fine'", "Rename the node."))
    assert len(error) <= MESSAGE and "\n" not in error
    assert error.startswith("m.onnx: node 'nnn") and error.endswith(
        "⏎note: fine'. Rename the node."
    )
    assert message(error) == error


@pytest.fixture(scope="module")
def counted():
    """The counts of a model whose every name is hostile."""
    matrix = onnx.numpy_helper.from_array(np.ones((4, 4), np.float32), EVIL + "w")
    x = helper.make_tensor_value_info(EVIL, TensorProto.FLOAT, [EVIL + "N", 4])
    y = helper.make_tensor_value_info(EVIL + "y", TensorProto.FLOAT, [EVIL + "N", 4])
    node = helper.make_node("MatMul", [EVIL, EVIL + "w"], [EVIL + "y"], name=EVIL)
    module = node.metadata_props.add()
    module.key, module.value = "namespace", EVIL
    graph = helper.make_graph([node], EVIL, [x], [y], [matrix])
    return tracer.count(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]))


@pytest.mark.parametrize("extension", ["csv", "json", "md", "svg", "html", "repr"])
def test_no_view_passes_a_control_character_on(counted, extension):
    if extension == "svg":
        pytest.importorskip("matplotlib")
    text = {"html": lambda: as_html(counted), "repr": lambda: repr(counted)}.get(
        extension, lambda: render(counted, extension).decode()
    )()
    hidden = [c for c in text if unicodedata.category(c) in ("Cc", "Cf") and c != "\n"]
    assert hidden == []
    assert "note: all is well" not in text.splitlines()
    if extension == "json":  # escapes of JSON lose nothing
        assert json.loads(text)["runs"][0]["nodes"][0]["node"] == EVIL
    if extension == "csv":
        assert next(csv.DictReader(io.StringIO(text)))["node"].startswith(r"\x1b[31m")
    if extension == "html":
        assert "<b>\n" not in text and "&lt;b&gt;" in text


def test_a_quantiser_that_fails_says_one_line(tmp_path, capfd):
    square = onnx.numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    three = onnx.numpy_helper.from_array(np.array([3, 3]), "s")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Reshape", ["a", "s"], ["y"], name=EVIL),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], [square, three])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=np.ones((5, 4), np.float32))
    files = [str(tmp_path / name) for name in ("m.onnx", "x.npz", "q.onnx")]
    code = tracer.cli.main(["quantize", files[0], "--calibrate", files[1], "-o", files[2]])
    err = capfd.readouterr().err  # onnxruntime would log to the file descriptor
    assert code == 3
    assert err.startswith("tracer: error: ") and err.count("\n") == 1
    assert "\x1b" not in err and len(err) < 600


def test_an_error_names_its_place_before_what_it_says_and_once_where_that_is_asked_for():
    for once, expected in ((False, "net.py: net.py: broken"), (True, "net.py: broken")):
        with pytest.raises(ModelError) as caught, locate_errors("net.py", once):
            raise ModelError("net.py: broken", "Mend it.")
        assert (caught.value.what, caught.value.hint) == (expected, "Mend it.")
        with pytest.raises(ModelError, match=r"^net\.py: broken"), locate_errors("net.py", once):
            raise ModelError("broken")
