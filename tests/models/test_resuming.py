"""A run is continued only where its files agree with each other and with what is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from models.training import session
from models.training.folder import RunFolder
from tracer.errors import InputError, UsageError

pytestmark = pytest.mark.needs("torch")


@pytest.fixture
def finished(tmp_path, tiny_data) -> RunFolder:
    """A run of two epochs."""
    folder = RunFolder(tmp_path / "run")
    request = {"family": "lenet", "data": str(tiny_data), "batch": 12, "epochs": 2}
    list(session.start(request, folder, Path()).epochs(lambda done, total, what: None))
    return folder


def contents(folder: RunFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.path.iterdir()}


def test_a_finished_run_can_be_resumed_with_nothing_left_to_do(finished):
    before = contents(finished)
    assert session.resume({}, finished, Path()).done == 2
    assert contents(finished) == before


@pytest.mark.parametrize("kept", [0, 1, None])
def test_a_log_that_does_not_reach_the_snapshot_is_refused(finished, kept):
    log = finished.path / "log.jsonl"
    lines = log.read_text("utf-8").splitlines(keepends=True)
    if kept is None:
        log.unlink()
    else:
        log.write_text("".join(lines[:kept]), "utf-8")
    before = contents(finished)
    with pytest.raises(InputError, match=r"does not fit snapshot.pt \(epochs done: 2\)"):
        session.resume({"epochs": 3}, finished, Path())
    assert contents(finished) == before


def test_a_log_without_its_snapshot_is_refused(finished):
    (finished.path / "snapshot.pt").unlink()
    with pytest.raises(InputError, match=r"log.jsonl: does not fit snapshot.pt \(epochs done: 0\)"):
        session.resume({}, finished, Path())


@pytest.mark.parametrize("line", ["[1]", "{}", '{"epoch": "1"}', "nothing", '{"epoch": true}'])
def test_a_log_of_something_else_is_refused(finished, line):
    (finished.path / "log.jsonl").write_text(line + "\n", "utf-8")
    with pytest.raises(InputError, match="not the log of a run"):
        session.resume({}, finished, Path())


def test_fewer_epochs_than_are_done_are_refused_and_the_settings_stay(finished):
    before = contents(finished)
    with pytest.raises(
        UsageError, match=r"is at epoch 2, past the 1 asked for.*Give --epochs 2 or mo"
    ):
        session.resume({"epochs": 1}, finished, Path())
    assert contents(finished) == before


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("input_shape", "3x32x32"),
        ("input_shape", [3, "32", 32]),
        ("input_shape", [3, 32]),
        ("input_shape", [3, 0, 32]),
        ("epochs", "2"),
        ("epochs", True),
        ("batch", 0),
        ("lr", "fast"),
        ("seed", -1),
        ("framework", "caffe"),
        ("family", None),
        ("arguments", []),
        ("colour", "red"),
    ],
)
def test_settings_that_were_spoilt_are_refused_by_name(finished, name, value):
    file = finished.path / "settings.json"
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | {name: value}), "utf-8")
    with pytest.raises(InputError, match=rf"not settings of a run \({name}\)"):
        session.resume({}, finished, Path())


@pytest.mark.parametrize("text", ["[]", "{", "{}"])
def test_a_settings_file_without_settings_is_refused(finished, text):
    (finished.path / "settings.json").write_text(text, "utf-8")
    with pytest.raises(InputError, match=r"settings|JSON"):
        session.resume({}, finished, Path())


def test_every_file_of_a_run_is_as_readable_as_any_other(finished, tmp_path):
    (tmp_path / "other").write_text("made by open()")
    finished.finish(session.resume({}, finished, Path()).learner)
    modes = {path.stat().st_mode for path in finished.path.iterdir()}
    assert modes == {(tmp_path / "other").stat().st_mode}
