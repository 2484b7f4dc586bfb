from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from models import families, predict
from models.classification import classify
from tracer import cli
from tracer.errors import ModelError
from tracer.graph import loading


@pytest.fixture
def bars(tmp_path):
    """A classifier of 1×2×3 images that scores a class by the sum of its column."""
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 2, 3])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", 3])
    axes = helper.make_tensor("axes", TensorProto.INT64, [2], [1, 2])
    node = helper.make_node("ReduceSum", ["image", "axes"], ["scores"], keepdims=0)
    graph = helper.make_graph([node], "bars", [image], [scores], [axes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    model.metadata_props.add(
        key="io.github.tracer-onnx.labels", value=json.dumps(["left", "middle", "right"])
    )
    onnx.save(model, tmp_path / "bars.onnx")
    return tmp_path / "bars.onnx"


def run(capsys, *args) -> tuple[int, str, str]:
    code = cli.run(predict.command, "models.predict", [str(arg) for arg in args])
    messages = capsys.readouterr()
    return code, messages.out, messages.err.replace("\n", " ")


def test_probabilities_are_the_softmax_of_the_scores(bars):
    pixels = np.array([[[[0.0, 1, 3], [0, 1, 3]]]], np.float32)
    guesses = classify(loading.load(bars), pixels, top=2)
    exact = np.exp([0.0, 2, 6]) / np.exp([0.0, 2, 6]).sum()
    assert [(guess.index, guess.label) for guess in guesses] == [(2, "right"), (1, "middle")]
    assert [guess.probability for guess in guesses] == pytest.approx([exact[2], exact[1]])


def test_an_image_file_is_classified_by_name(bars, tmp_path, capsys):
    from PIL import Image

    Image.fromarray(np.array([[0, 255, 0], [0, 255, 0]], np.uint8)).save(tmp_path / "a.png")
    code, out, _ = run(capsys, bars, "--image", tmp_path / "a.png")
    assert code == 0
    assert out.splitlines()[:2] == ["top-1  middle  78.70%", "top-3"]  # e² / (e² + 2)
    assert out.splitlines()[2].split() == ["1", "middle", "78.70%"]


def test_a_test_image_of_a_data_set_is_shown_with_its_label(bars, tmp_path, capsys):
    x = np.zeros((4, 2, 3), np.uint8)
    x[:, :, 2] = 255
    path = tmp_path / "set.npz"
    np.savez(path, x=x, y=np.array([0, 1, 2, 1]), x_test=x, y_test=np.array([0, 1, 2, 1]))
    code, out, _ = run(capsys, bars, "--data", path, "--index", 2)
    assert code == 0
    assert out.splitlines()[:2] == ["label  2", "top-1  right  78.70%"]
    code, _, err = run(capsys, bars, "--data", path, "--index", 4)
    assert code == 3
    assert "has no test image 4. Give --index from 0 to 3" in err


@pytest.mark.parametrize("framework", ["torch", "chainer"])
@pytest.mark.parametrize("family", ["lenet", "resnet_cifar"])
def test_a_shipped_model_is_found_by_its_family(family, framework, capsys):
    code, out, _ = run(capsys, family, "--framework", framework, "--data", "digits", "--index", 0)
    label, first, top, *rest = out.splitlines()
    assert code == 0
    assert first.split()[1] == label.split()[1]
    assert (top, len(rest)) == ("top-5", 5)


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["lenet"], 2, "Give --image FILE, or --data NAME --index N"),
        (["lenet", "--image", "a.png", "--data", "digits"], 2, "are two images. Give one"),
        (["lenet", "--image", "a.png", "--index", "0"], 2, "--index is for --data"),
        (["lenet", "--index", "4"], 2, "no image is named"),
        (["lenet", "--image", "nowhere.png"], 3, "nowhere.png: no such file"),
        (["nowhere.onnx", "--data", "digits"], 3, "nowhere.onnx: no such file"),
        (["mnist", "--data", "digits"], 2, "no trained torch model of mnist is shipped"),
    ],
)
def test_bad_arguments_end_with_one_line_and_their_code(args, code, message, capsys):
    result, out, err = run(capsys, *args)
    assert (result, out) == (code, "")
    assert message in err


def test_a_model_that_classifies_nothing_is_refused_before_a_label_is_printed(tmp_path, capsys):
    text = (
        '<ir_version: 10, opset_import: ["" : 20]> g (float[N,1,2,3] x) => (float[N,1,2,3] z)'
        " { z = Neg (x) }"
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    code, out, err = run(capsys, tmp_path / "m.onnx", "--data", "digits")
    assert (code, out) == (3, "")
    assert "not [1, classes]" in err


def examples() -> list[list[str]]:
    """The documented commands that need no file of the reader's."""
    guide = (families.FOLDER.parent / "docs" / "models.md").read_text("utf-8")
    lines = [*guide.splitlines(), *str(predict.command.help).splitlines()]
    calls = [line.split("models.predict ")[1] for line in lines if "models.predict " in line]
    return [call.split() for call in calls if "--data digits" in call]


def test_the_documented_examples_are_classified_correctly(capsys):
    assert len(examples()) == 2
    for example in examples():
        _, out, _ = run(capsys, *example)
        label, first, *_ = out.splitlines()
        assert first.split()[1] == label.split()[1], example


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ("float[N,3] x", r"its inputs \(float32\[N,3\]\) are not one float32 image"),
        ("float[N,1,2,3] x, float[2] y", "are not one float32 image"),
        ("float[N,1,H,W] x", "takes images of any size"),
        ("float[N,1,2,3] x", r"has shape \(1, 1, 2, 3\), not \[1, classes\]"),
    ],
)
def test_a_model_that_is_no_image_classifier_is_refused(declared, message, tmp_path):
    head = '<ir_version: 10, opset_import: ["" : 20]>'
    text = f"g ({declared}) => (float[A,B,C,D] z) {{ z = Neg (x) }}"
    onnx.save(onnx.parser.parse_model(head + text), tmp_path / "m.onnx")
    with pytest.raises(ModelError, match=message):
        classify(loading.load(tmp_path / "m.onnx"), np.zeros((1, 1, 2, 3), np.uint8))
