import textwrap

import pytest

from tracer.cli import main
from tracer.graph import loading

torch = pytest.importorskip("torch")

NET = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self, classes):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, bias=False)
            self.bn = nn.BatchNorm2d(4)
            self.fc = nn.Linear(4, classes)

        def forward(self, x):
            return self.fc(torch.relu(self.bn(self.conv(x))).mean((2, 3)))
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(textwrap.dedent(NET))
    return tmp_path


def run(capsys, *args):
    code = main(["export", *args])
    captured = capsys.readouterr()
    assert captured.out == ""
    return code, captured.err


MAKE = ("net.py:Net", "--arg", "classes=5", "--input-shape", "1,3,8,8")


def test_a_model_is_written_and_what_was_done_is_said(here, capsys):
    code, messages = run(capsys, *MAKE, "-o", "net.onnx")
    assert code == 0
    assert messages.startswith(
        "wrote net.onnx (4 nodes, opset 20, any batch; checked against torch"
    )
    first, *box = messages.splitlines()
    assert first.endswith(")") and "Next: tracer profile net.onnx" in box[1]
    assert run(capsys, *MAKE, "-o", "quiet.onnx", "-q") == (0, "")
    conv = loading.load(here / "net.onnx").nodes[0]
    assert (conv.module, conv.source) == ("conv", "net.py:13")


@pytest.mark.nightly
def test_options_reach_the_exporter(here, capsys):
    flags = ("--keep-batchnorm", "--static-batch", "--opset", "18")
    code, messages = run(capsys, *MAKE, *flags, "-o", "net.onnx")
    assert code == 0
    assert "(5 nodes, opset 18, batch 1;" in messages


@pytest.mark.nightly
def test_no_overwriting_unless_forced(here, capsys):
    (here / "net.onnx").write_bytes(b"mine")
    code, messages = run(capsys, *MAKE, "-o", "net.onnx")
    assert (code, messages) == (
        3,
        "tracer: error: net.onnx: the file exists. Choose another name, or give --force.\n",
    )
    assert run(capsys, *MAKE, "-o", "net.onnx", "--force")[0] == 0


def test_a_pickle_needs_trust(here, capsys):
    class Odd:
        pass

    torch.save({"fc.weight": torch.nn.Linear(2, 2)}, here / "w.pt")
    code, messages = run(capsys, *MAKE, "--weights", "w.pt", "-o", "net.onnx")
    assert code == 3
    assert "--trust" in messages


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("net.py:Net", "--input-shape", "1,3,8,8"), 2, "needs arguments: classes"),
        (("net.py:Net", "--arg", "classes"), 2, "'classes' is not of the form key=value"),
        ((*MAKE[:3], "--input-shape", "1,a"), 2, "--input-shape 1,a is not a shape"),
        ((*MAKE[:3], "--input-shape", "1,4,8,8"), 3, "Net does not run on 2x4x8x8: RuntimeError: "),
        (("gone.py:Net",), 3, "gone.py: no such file"),
        ((*MAKE, "--weights", "gone.pt"), 3, "gone.pt: no such file"),
        ((*MAKE, "--framework", "chainer"), 2, "is not a chainer model"),
    ],
)
def test_an_error_is_one_line_with_its_exit_code_and_writes_nothing(
    here, capsys, args, code, message
):
    ended, messages = run(capsys, *args, "-o", "net.onnx")
    assert ended == code
    assert message in messages
    assert messages.count("\n") == 1
    assert not (here / "net.onnx").exists()


def test_what_a_model_prints_is_no_data_of_ours(here, capsys):
    (here / "loud.py").write_text(
        "import torch\nprint('made')\nclass Net(torch.nn.Module):\n"
        "    def forward(self, x):\n        print('run')\n        return x + 1\n"
    )
    code, messages = run(capsys, "loud.py:Net", "--input-shape", "2,3", "-o", "net.onnx")
    assert code == 0
    assert {"made", "run"} <= set(messages.splitlines())


RESIZED = """
    import chainer

    class Net(chainer.Chain):
        def forward(self, x):
            return -chainer.functions.resize_images(x, (7, 7))
"""


def test_a_model_that_differs_is_exit_1_with_the_first_node_and_no_file(here, capsys):
    pytest.importorskip("six")
    pytest.importorskip("filelock")
    (here / "resized.py").write_text(textwrap.dedent(RESIZED))
    # before opset 11 ONNX cannot align the corners of an image
    options = ("--input-shape", "2,3,4,4", "--opset", "9", "-o", "net.onnx")
    code, messages = run(capsys, "resized.py:Net", *options)
    assert code == 1
    assert "first node that differs is 'ResizeImages_0' (Upsample) of resized.py:6" in messages
    assert [file.name for file in here.iterdir() if file.suffix == ".onnx"] == []


def test_the_help_page_has_an_example(capsys):
    assert main(["export", "--help"]) == 0
    assert "tracer export net.py:Net --input-shape 1,3,32,32 -o net.onnx" in capsys.readouterr().out


DEAD = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self, bias):
            super().__init__()
            self.fc = nn.Linear(4, 3)
            nn.init.constant_(self.fc.bias, bias)

        def forward(self, x):
            y = torch.relu(self.fc(x))
            return y, torch.softmax(1e6 * y.sum((1, 2)), 0), x
"""


@pytest.mark.nightly
@pytest.mark.parametrize(("bias", "dead"), [(-100, ["relu"]), (1, [])])
def test_an_output_that_hardly_depends_on_the_input_is_named(here, capsys, bias, dead):
    (here / "dead.py").write_text(textwrap.dedent(DEAD))
    arguments = ("dead.py:Net", "--arg", f"bias={bias}", "--input-shape", "2,5,4", "-o", "d.onnx")
    code, messages = run(capsys, *arguments)
    named = [line.split("'")[1] for line in messages.splitlines() if "hardly depends" in line]
    assert code == 0
    assert [name for name in named if "relu" in name] == dead
    assert ("changes by at most 0, and values reach 0" in messages) == bool(dead)
