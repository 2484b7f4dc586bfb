from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner

from models import train
from models.training.loop import Epoch
from models.training.tensorboard import Board, graph_def
from tracer.errors import UsageError
from tracer.graph import loading

pytestmark = pytest.mark.needs("tensorboardX")


def events(folder: Path) -> Iterator[object]:
    """The records of the event files: length, checksum, protobuf, checksum."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    content = b"".join(file.read_bytes() for file in folder.glob("events.out.tfevents.*"))
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        data = content[12 : 12 + length]
        assert struct.unpack("<I", content[12 + length : 16 + length])[0] == masked_crc32c(data)
        yield Event.FromString(data)
        content = content[16 + length :]


def scalars(folder: Path) -> dict[tuple[str, int], float]:
    return {
        (value.tag, event.step): value.simple_value
        for event in events(folder)
        for value in event.summary.value
    }


def graph_of(text: str):
    return loading.from_proto(onnx.parser.parse_model(text))


def test_every_epoch_is_a_point_on_every_curve(tmp_path):
    board = Board(tmp_path)
    board.add_epoch(Epoch(1, 2.0, 0.25, 2.5, 0.125, 3.0))
    board.add_epoch(Epoch(2, 1.0, 0.5, 1.5, 0.25, 4.0, 0.5, 2.0))
    board.close()
    assert scalars(tmp_path) == {
        ("loss/train", 1): 2.0,
        ("accuracy/train", 1): 0.25,
        ("loss/validation", 1): 2.5,
        ("accuracy/validation", 1): 0.125,
        ("seconds", 1): 3.0,
        ("loss/train", 2): 1.0,
        ("accuracy/train", 2): 0.5,
        ("loss/validation", 2): 1.5,
        ("accuracy/validation", 2): 0.25,
        ("seconds", 2): 4.0,
        ("batch/load_ms", 2): 0.5,
        ("batch/learn_ms", 2): 2.0,
    }


@pytest.mark.nightly
def test_a_training_run_leaves_its_curves_and_its_graph(tmp_path, tiny_data):
    pytest.importorskip("torch")
    from tensorboardX.proto.graph_pb2 import GraphDef

    out, folder = tmp_path / "run", tmp_path / "board"
    args = ["lenet", "--data", str(tiny_data), "--out", str(out), "--tensorboard", str(folder)]
    result = CliRunner().invoke(train.command, [*args, "--epochs", "2"])
    assert result.exit_code == 0, result.output
    assert {step for _, step in scalars(folder)} == {1, 2}
    (graph,) = (GraphDef.FromString(e.graph_def) for e in events(folder) if e.graph_def)
    names = {node.name for node in graph.node}
    model = loading.load(out / "model.onnx")
    assert len(names) == len(graph.node) == len(model.nodes) + 2
    assert all(source in names for node in graph.node for source in node.input)
    assert any(name.startswith("conv1/") for name in names)
    (conv,) = (node for node in graph.node if node.name.startswith("conv2/"))
    assert conv.op == "Conv"
    assert b"kernel_shape" in conv.attr["kernel_shape"].s
    assert b"torch_net.py" in conv.attr["source"].s


def test_edges_follow_tensors_and_leave_weights_out():
    model = graph_of(
        """<ir_version: 10, opset_import: ["" : 20]>
        g (float[2] x, bool c) => (float[2] z, float[2] w) <float[2] w = {1, 2}> {
            [first] y = Add (x, w)
            [choice] z = If (c) <
                then_branch = t () => (float[2] a) { a = Neg (y) },
                else_branch = e () => (float[2] b) { b = Abs (y) }
            >
        }"""
    )
    edges = {node.name: list(node.input) for node in graph_def(model).node}
    assert edges == {
        "inputs/x": [],
        "inputs/c": [],
        "first": ["inputs/x"],
        "choice": ["inputs/c", "first", "first"],
        "outputs/z": ["choice"],
        "outputs/w": [],
    }


@pytest.mark.nightly
@pytest.mark.needs("torch")
def test_a_new_folder_gets_the_epochs_before_the_resume_and_an_old_one_does_not(
    tmp_path, tiny_data
):
    args = ["lenet", "--data", str(tiny_data), "--out", str(tmp_path / "run")]
    first, late = tmp_path / "first", tmp_path / "late"
    for epochs, board in ((1, first), (2, late), (3, first)):
        more = ["--epochs", str(epochs), "--tensorboard", str(board)]
        resume = ["--resume"] if epochs > 1 else []
        result = CliRunner().invoke(train.command, [*args, *more, *resume])
        assert result.exit_code == 0, result.output
    assert {step for _, step in scalars(late)} == {1, 2}
    points = [(value.tag, event.step) for event in events(first) for value in event.summary.value]
    assert sorted({step for _, step in points}) == [1, 3]
    assert len(points) == len(set(points))


def test_boards_that_open_in_one_second_keep_what_each_has(tmp_path):
    for epoch in (1, 2, 3):
        board = Board(tmp_path)
        assert board.is_new == (epoch == 1)
        board.add_epoch(Epoch(epoch, 2.0, 0.25, 2.5, 0.125, 3.0))
        board.close()
    assert {step for _, step in scalars(tmp_path)} == {1, 2, 3}


def test_a_missing_tensorboardx_is_told_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(UsageError, match=r"needs 'tensorboardX'.*'tracer-onnx\[train\]'"):
        Board(tmp_path)
