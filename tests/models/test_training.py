from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from models import families, train
from models.training import loop, session
from models.training.folder import RunFolder
from models.training.learner import new_learner
from tests.examples import at_night
from tracer import cli
from tracer.errors import InputError, TracerError, UsageError

CASES = [
    ("lenet", "torch", {}),
    ("lenet", "chainer", {}),
    ("resnet_cifar", "torch", {"depth": 8}),
    ("resnet_cifar", "chainer", {"depth": 8}),
    ("mnist", "torch", {}),  # its dropout draws random numbers
]


def silent(done: int, total: int, what: str) -> None:
    pass


def asked(family, framework, data, **more):
    return {"family": family, "framework": framework, "data": str(data), "batch": 12, **more}


def weights_of(learner) -> Iterator[tuple[str, np.ndarray]]:
    if hasattr(learner.model, "state_dict"):
        yield from ((name, t.numpy()) for name, t in learner.model.state_dict().items())
    else:
        from models.weights import chainer_arrays

        yield from chainer_arrays(learner.model).items()


def trained(begin, request, folder) -> session.Session:
    run = begin(request, folder, Path())
    list(run.epochs(silent))
    return run


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("family", "framework", "arguments"), at_night(CASES, but=[*CASES[:2], CASES[-1]])
)
def test_a_resumed_run_ends_bit_for_bit_as_if_it_had_never_stopped(
    family, framework, arguments, tmp_path, tiny_data
):
    request = asked(family, framework, tiny_data, arguments=arguments)
    whole = trained(session.start, {**request, "epochs": 3}, RunFolder(tmp_path / "whole"))
    trained(session.start, {**request, "epochs": 1}, RunFolder(tmp_path / "parts"))
    parts = trained(session.resume, {"epochs": 3}, RunFolder(tmp_path / "parts"))
    for (name, expected), (other, results) in zip(
        weights_of(whole.learner), weights_of(parts.learner), strict=True
    ):
        assert name == other
        np.testing.assert_array_equal(results, expected, err_msg=name)
    assert [row.epoch for row in parts.rows] == [1, 2, 3]
    assert [row.loss for row in parts.rows] == [row.loss for row in whole.rows]
    assert [r.validation_loss for r in parts.rows] == [r.validation_loss for r in whole.rows]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("framework", families.FRAMEWORKS)
def test_training_learns_and_the_seed_decides_what(framework, tmp_path, tiny_data):
    request = asked("lenet", framework, tiny_data, epochs=12)
    first = trained(session.start, request, RunFolder(tmp_path / "1"))
    second = trained(session.start, {**request, "seed": 1, "epochs": 1}, RunFolder(tmp_path / "2"))
    assert first.rows[-1].validation_accuracy == 1
    assert first.rows[-1].loss < 0.1 < first.rows[0].loss
    assert second.rows[0].loss != first.rows[0].loss


@pytest.mark.parametrize("framework", families.FRAMEWORKS)
def test_scoring_learns_nothing(framework, tmp_path, tiny_data):
    run = session.start(
        asked("resnet_cifar", framework, tiny_data, arguments={"depth": 8}),
        RunFolder(tmp_path),
        Path(),
    )
    before = {name: array.copy() for name, array in weights_of(run.learner)}
    loss, accuracy = loop.evaluate(run.learner, run.dataset.train)
    for name, array in weights_of(run.learner):
        np.testing.assert_array_equal(array, before[name])
    assert loss > 0
    assert accuracy * len(run.dataset.train) == pytest.approx(round(accuracy * 32))


def test_the_loss_is_softmax_cross_entropy_in_nats():
    """A beginner without any opinion loses log(classes) nats an image."""
    learner = new_learner("lenet", "torch", {"classes": 4}, 1e-3, 0)
    for parameter in learner.model.parameters():
        parameter.data.zero_()
    loss, _ = learner.score(np.zeros((5, 3, 32, 32), np.float32), np.zeros(5, np.int64))
    assert loss == pytest.approx(5 * np.log(4))


def test_every_epoch_sees_every_image_once_in_an_order_of_its_own():
    first, again, second = loop.order(0, 1, 50), loop.order(0, 1, 50), loop.order(0, 2, 50)
    assert sorted(first) == list(range(50))
    assert first.tolist() == again.tolist() != second.tolist()


def test_a_log_ahead_of_its_snapshot_is_cut_when_resumed(tmp_path, tiny_data):
    folder = RunFolder(tmp_path / "run")
    trained(session.start, asked("lenet", "torch", tiny_data, epochs=2), folder)
    log = tmp_path / "run" / "log.jsonl"
    lines = log.read_text("utf-8").splitlines(keepends=True)
    log.write_text("".join(lines) + lines[1].replace('"epoch": 2', '"epoch": 3'), "utf-8")
    assert [row.epoch for row in session.resume({}, folder, Path()).rows] == [1, 2]


def test_a_diverging_run_stops_with_advice(tmp_path, tiny_data):
    run = session.start(asked("lenet", "torch", tiny_data, lr=1e30), RunFolder(tmp_path), Path())
    with pytest.raises(TracerError, match=r"training diverged: the loss of epoch .* Lower --lr"):
        list(run.epochs(silent))


def test_resuming_with_other_settings_is_refused(tmp_path, tiny_data):
    folder = RunFolder(tmp_path / "run")
    session.start(asked("lenet", "torch", tiny_data, lr=0.01), folder, Path())
    with pytest.raises(UsageError, match=r"the run was started with lr 0.01, not 0.02"):
        session.resume({"family": "lenet", "lr": 0.02, "epochs": 5}, folder, Path())
    with pytest.raises(UsageError, match="family lenet, not mnist"):
        session.resume({"family": "mnist"}, folder, Path())
    with pytest.raises(UsageError, match=r"holds a run already\. Continue it with --resume"):
        session.start(asked("lenet", "torch", tiny_data), folder, Path())
    with pytest.raises(UsageError, match="no run to resume"):
        session.resume({}, RunFolder(tmp_path / "other"), Path())


@pytest.mark.parametrize("framework", families.FRAMEWORKS)
def test_a_broken_or_foreign_snapshot_is_refused(framework, tmp_path, tiny_data):
    folder = RunFolder(tmp_path / "run")
    run = trained(session.start, asked("lenet", framework, tiny_data, epochs=1), folder)
    snapshot = tmp_path / "run" / f"snapshot{run.learner.snapshot_suffix}"
    whole = snapshot.read_bytes()
    other = new_learner("lenet", framework, {"classes": 5}, 1e-3, 0)
    broken = r"snapshot\.\w+: not a snapshot of this model\. It is broken or of another run"
    with pytest.raises(InputError, match=broken):
        other.restore(snapshot)
    for content in (b"", whole[: len(whole) // 2], b"garbage", b"101\n"):
        snapshot.write_bytes(content)
        with pytest.raises(InputError, match=broken):
            session.resume({}, folder, Path())


def test_a_snapshot_that_would_run_code_is_refused(tmp_path):
    import torch

    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "exploded"),)

    torch.save({"epoch": 1, "model": Bomb()}, tmp_path / "snapshot.pt")
    learner = new_learner("lenet", "torch", {}, 1e-3, 0)
    with pytest.raises(InputError, match="not a snapshot"):
        learner.restore(tmp_path / "snapshot.pt")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"input_shape": (3, 16, 16)}, r"lenet cannot take images of \(3, 16, 16\)"),
        ({"arguments": {"classes": 2}}, "has 3 classes, not 2"),
    ],
)
@pytest.mark.parametrize("framework", families.FRAMEWORKS)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(
    framework, more, message, tmp_path, tiny_data
):
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(UsageError, match=message):
        session.start(asked("lenet", framework, tiny_data, **more), folder, Path())
    assert not folder.path.exists()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("framework", families.FRAMEWORKS)
def test_the_command_prints_a_row_an_epoch_and_leaves_weights_and_model(
    framework, tmp_path, tiny_data
):
    out = tmp_path / "run"
    args = ["lenet", "--framework", framework, "--data", str(tiny_data), "--out", str(out)]
    result = CliRunner().invoke(train.command, [*args, "--epochs", "2"])
    assert result.exit_code == 0, result.output
    rows = result.stdout.splitlines()
    assert rows[0].split()[:3] == ["epoch", "loss", "accuracy"]
    assert [row.split()[0] for row in rows[1:]] == ["1", "2"]
    assert f"wrote {out / 'model.onnx'}: 12 nodes" in result.stderr
    assert f"within 0.01% of the range of {framework}'s outputs" in result.stderr
    logged = [json.loads(line) for line in (out / "log.jsonl").read_text("utf-8").splitlines()]
    assert [f"{row['loss']:.4f}" for row in logged] == [row.split()[1] for row in rows[1:]]

    again = CliRunner().invoke(train.command, [*args, "--resume", "--epochs", "3"])
    assert again.exit_code == 0, again.output
    assert again.stdout.splitlines()[:3] == rows
    assert len(again.stdout.splitlines()) == 4
    fresh = new_learner("lenet", framework, {"classes": 3}, 1e-3, 5)
    if framework == "torch":
        from safetensors.torch import load_file

        fresh.model.load_state_dict(load_file(out / "weights.safetensors"))
    else:
        from chainer import serializers

        serializers.load_npz(out / "weights.npz", fresh.model)
    kept = new_learner("lenet", framework, {"classes": 3}, 1e-3, 6)
    kept.restore(out / f"snapshot{kept.snapshot_suffix}")
    for (_, results), (_, expected) in zip(weights_of(fresh), weights_of(kept), strict=True):
        np.testing.assert_array_equal(results, expected)


def test_the_help_lists_the_families():
    messages = CliRunner().invoke(train.command, ["--help"]).output
    assert f"Families: {', '.join(families.names())}" in " ".join(messages.split())


@pytest.mark.nightly
def test_an_interrupted_command_keeps_its_epochs_and_says_how_to_go_on(tmp_path, tiny_data):
    out = tmp_path / "run"
    args = ["lenet", "--data", str(tiny_data), "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "models.train", *args, "--epochs", "100000"],
        cwd=families.FOLDER.parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    log = out / "log.jsonl"
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        if log.is_file() and log.read_text("utf-8").count("\n") >= 2:  # the first is safe
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    try:
        _, messages = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, messages
    assert "continue with --resume" in messages
    assert "Traceback" not in messages
    assert "stopped in epoch" in messages
    done = len(log.read_text("utf-8").splitlines())
    resumed = session.resume({"epochs": done + 2}, RunFolder(out), Path())
    assert resumed.done in (done, done - 1)  # a log may be one ahead of its snapshot
    left = done + 2 - resumed.done
    assert len(list(resumed.epochs(silent))) == left


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["alexnet"], 2, "no model family 'alexnet'"),
        (["lenet", "--data", "svhn"], 2, "no data set 'svhn'"),
        (["lenet", "--data", "mnist", "--data-dir", "nowhere"], 3, "MNIST is not in nowhere"),
        (["lenet", "--epochs", "0"], 2, "0 is not in the range"),
        (["lenet", "--arg", "depth"], 2, "'depth' is not of the form key=value"),
        (["lenet", "--framework", "caffe"], 2, "'caffe' is not one of"),
        (["mnist", "--framework", "chainer"], 2, "mnist is not defined in chainer"),
        (["lenet", "--resume", "--out", "nowhere"], 2, "nowhere: no run to resume"),
        (["lenet", "--out", "README.md/run"], 3, "cannot be written"),
        (["lenet", "--tensorboard", "README.md/board"], 3, "README.md/board: cannot be written"),
    ],
)
def test_bad_arguments_end_with_one_line_and_their_code(
    args, code, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("a file")
    assert cli.run(train.command, "models.train", args) == code
    assert message in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize("framework", families.FRAMEWORKS)
def test_a_row_holds_the_time_to_load_a_batch_and_to_learn_from_it(
    framework, tmp_path, tiny_data, monkeypatch
):
    """A loader that sleeps shows up as such, in the log and in the printed row."""
    run = session.start(
        asked("lenet", framework, tiny_data, epochs=1), RunFolder(tmp_path / "run"), Path()
    )
    quick = type(run.dataset.train).batch

    def slow(split, indices):
        time.sleep(0.05)
        return quick(split, indices)

    monkeypatch.setattr(type(run.dataset.train), "batch", slow)
    (row,) = run.epochs(silent)
    assert row.loading_ms >= 50
    assert 0 < row.learning_ms < row.seconds * 1e3
    assert json.loads((tmp_path / "run" / "log.jsonl").read_text())["loading_ms"] == row.loading_ms
    assert train._line(row).split()[-2:] == [f"{row.loading_ms:.2f}", f"{row.learning_ms:.2f}"]


def test_a_run_of_an_older_version_goes_on(tmp_path, tiny_data):
    """Its settings have no device, and its log no times of batches."""
    folder = RunFolder(tmp_path / "run")
    trained(session.start, asked("lenet", "torch", tiny_data, epochs=1), folder)
    settings, log = tmp_path / "run" / "settings.json", tmp_path / "run" / "log.jsonl"
    for file, new in ((settings, ["device"]), (log, ["loading_ms", "learning_ms"])):
        values = json.loads(file.read_text())
        file.write_text(json.dumps({k: v for k, v in values.items() if k not in new}) + "\n")
    first, second = trained(session.resume, {"epochs": 2}, folder).rows
    assert (first.loading_ms, first.learning_ms) == (None, None)
    assert second.loading_ms > 0
    assert len(train._line(first).split()) == 6


@pytest.mark.parametrize(
    ("framework", "device", "words"),
    [
        ("torch", "cuda", "torch sees no cuda device. Leave --device out; torch can use: cpu"),
        ("torch", "mps", "torch sees no mps device"),
        ("chainer", "cuda", "Chainer cannot use cuda here"),
    ],
)
def test_a_device_that_is_not_there_is_an_error_before_anything_is_written(
    framework, device, words, tmp_path, tiny_data, monkeypatch
):
    if framework == "torch":
        import torch

        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    out = tmp_path / "run"
    args = ["lenet", "--framework", framework, "--data", str(tiny_data), "--out", str(out)]
    result = CliRunner().invoke(train.command, [*args, "--device", device])
    assert isinstance(result.exception, UsageError)
    assert words in f"{result.exception.what}. {result.exception.hint}"
    assert not out.exists()


def test_a_device_that_does_not_exist_is_refused():
    result = CliRunner().invoke(train.command, ["lenet", "--device", "tpu"])
    assert result.exit_code == 2
    assert "'cpu', 'cuda', 'mps'" in result.output


def test_a_run_stays_on_its_device(tmp_path, tiny_data):
    folder = RunFolder(tmp_path / "run")
    trained(session.start, asked("lenet", "torch", tiny_data, epochs=1), folder)
    with pytest.raises(UsageError, match="was started with device cpu, not cuda"):
        session.resume({"device": "cuda"}, folder, Path())
