"""An error of tracer itself: one line, and a file for the report that holds no data."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

import tracer.cli
from tests.graphs import residual
from tracer.cli import _messages
from tracer.support import files

SECRET = "weights of a customer"


@pytest.fixture
def failing(tmp_path, monkeypatch):
    """Returns a command that fails inside tracer."""
    onnx.save(residual(), tmp_path / "m.onnx")

    def broken(model, **options):
        values = np.arange(3), SECRET
        raise ZeroDivisionError(f"\x1b[2Jline 1\nline 2 {'n' * 1_000_000}{len(values)}")

    monkeypatch.setattr("tracer.api.count.count", broken)
    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path / "cache/tracer")
    return ["count", str(tmp_path / "m.onnx")]


def test_the_line_names_a_file_with_traceback_versions_and_command(failing, capfd):
    assert tracer.cli.main(failing) == 70
    err = capfd.readouterr().err
    assert err.startswith(r"tracer: internal error: ZeroDivisionError: \x1b[2Jline 1⏎line 2 nnn")
    assert err.count("\n") == 1 and len(err) < 600
    file = Path(re.search(r"with the file (\S+)\.$", err)[1])
    text = file.read_text()
    assert f"command: tracer {' '.join(failing)}" in text
    assert f"onnx: {onnx.__version__}" in text
    assert "in broken" in text and "Traceback" in text
    assert "\x1b" not in text and len(text) < 20_000
    assert "[0 1 2]" not in text


def test_old_files_go(failing, capfd, tmp_path):
    folder = tmp_path / "cache/tracer/errors"
    for _ in range(25):
        assert tracer.cli.main(failing) == 70
    assert len(list(folder.iterdir())) == 20


def test_a_cache_that_cannot_be_written_leaves_the_folder_for_temporary_files(
    failing, capfd, tmp_path, monkeypatch
):
    (tmp_path / "cache").write_text("in the way")
    system = SimpleNamespace(gettempdir=lambda: str(tmp_path))
    monkeypatch.setattr(_messages, "tempfile", system)
    assert tracer.cli.main(failing) == 70
    assert f"with the file {tmp_path}/internal-error-" in capfd.readouterr().err
    system.gettempdir = lambda: str(tmp_path / "none")
    (tmp_path / "none").write_text("in the way as well")
    assert tracer.cli.main(failing) == 70
    assert capfd.readouterr().err.endswith("--debug shows the traceback.\n")


CLOSED = "import os, sys; [os.close(n) for n in {fds}]; os.execv(sys.executable, {command})"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("fds", [(2,), (0, 1, 2)])
def test_closed_streams_are_no_internal_error(fds, tmp_path):
    """A file names the result, so nothing has to be printed."""
    onnx.save(residual(), tmp_path / "m.onnx")
    command = [sys.executable, "-m", "tracer", "count", str(tmp_path / "m.onnx")]
    code = CLOSED.format(fds=fds, command=[*command, "-o", str(tmp_path / "c.json")])
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert ended.returncode == 0
    assert (tmp_path / "c.json").stat().st_size > 100


@pytest.mark.nightly
def test_streams_of_ascii_lose_characters_and_no_command(tmp_path):
    onnx.save(residual(), tmp_path / "m.onnx")
    command = [sys.executable, "-m", "tracer", "interpret", str(tmp_path / "m.onnx")]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ended = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert ended.returncode == 0
    assert b"m.onnx ? batch 1" in ended.stdout
