"""Folders on the command line: TensorBoard's, and one for every format that fits."""

import json
import re
from pathlib import Path

import pytest

import tracer
import tracer.cli
from tracer.analyzers import views
from tracer.records.trace import Trace

SUMS = Path("tests/fixtures/traces/sums.trace").absolute()


def run(capfd, *args):
    code = tracer.cli.main(["report", str(SUMS), *map(str, args)])
    out, err = capfd.readouterr()
    return code, out, err


@pytest.mark.nightly
def test_a_folder_gets_every_format_that_fits(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capfd, "-o", "all/")
    assert code == 0
    written = {path.name.removeprefix("all.") for path in (tmp_path / "all").iterdir()}
    left_out = set(re.findall(r"left out \.(\S+):", err))
    assert written | left_out == set(views.formats(Trace)) and not written & left_out
    assert "annotated.onnx" in left_out  # this trace does not say where its model is
    assert {"csv", "html", "netron.json", "perfetto.json", "pprof", "tfevents"} <= written
    assert json.loads((tmp_path / "all" / "all.json").read_text())["runs"]
    code, _, err = run(capfd, "-o", "all/")
    assert code == 3 and "the file exists" in err


@pytest.mark.parametrize("folder", ["tb/", "run.tb/"])
def test_a_folder_for_tensorboard_has_one_file_of_events(folder, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capfd, "-o", folder)
    assert code == 0 and f"wrote {folder}events.out.tfevents" in err
    (file,) = (tmp_path / folder).iterdir()
    assert file.read_bytes() == views.render(tracer.load(SUMS), "tfevents")


def test_a_folder_that_cannot_be_is_refused_before_anything_is_written(
    capfd, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    for name, message in (("no/all/", "does not exist"), ("file/", "is a file, not a folder")):
        code, _, err = run(capfd, "-o", "x.csv", "-o", name)
        assert code == 3 and message in err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_help_has_a_line_for_every_format(capfd):
    assert tracer.cli.main(["report", "--help"]) == 0
    shown = capfd.readouterr().out.partition("Formats of -o FILE:")[2]
    for extension in views.formats(Trace):
        prefix, _, kind = extension.rpartition(".")
        known = (f".{extension}", f".{prefix}" if kind in ("png", "svg") and prefix else "")
        assert any(each and each in shown for each in known) or extension.startswith("headroom")
    assert "after .headroom" in shown
