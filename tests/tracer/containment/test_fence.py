"""The fence: what is behind it writes where it was asked to, and reaches no network."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tracer.containment import fence

pytestmark = pytest.mark.skipif(
    not fence.kept_by().startswith("Landlock"), reason="a kernel with Landlock and seccomp"
)
LENET = str(Path("models/lenet/lenet.onnx").resolve())

TRIES = """
import os, socket, subprocess, sys
from pathlib import Path
def tried():
    def told(name, action):
        try:
            action()
            print(name, "done", file=sys.stderr)
        except PermissionError:
            print(name, "refused", file=sys.stderr)
    told("inside", lambda: Path("in/new").write_text("x"))
    told("inside, renamed", lambda: os.replace("in/new", "in/renamed"))
    told("outside", lambda: Path("out/new").write_text("x"))
    told("outside, appended", lambda: open("out/old", "a"))
    told("read", lambda: Path("out/old").read_text())
    told("outside, removed", lambda: os.unlink("out/old"))
    told("outside, moved", lambda: os.replace("in/renamed", "out/moved"))
    told("a socket", lambda: socket.socket())
    told("a local socket", lambda: socket.socket(socket.AF_UNIX))
    code = "open('out/by a child', 'w')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True)
    print("a child", "done" if ended.returncode == 0 else "refused", file=sys.stderr)
"""
EXPECTED = {
    "inside": "done", "inside, renamed": "done", "outside": "refused",
    "outside, appended": "refused", "outside, removed": "refused", "outside, moved": "refused",
    "read": "done", "a socket": "refused", "a local socket": "refused", "a child": "refused",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    for name in ("in", "out", "tmp"):
        (tmp_path / name).mkdir()
    (tmp_path / "out" / "old").write_text("old")
    return tmp_path


def run(folder, code, *arguments, **environment):
    import os

    env = {**os.environ, "TMPDIR": str(folder / "tmp"), **environment,
           "PYTHONPATH": str(Path.cwd())}  # fmt: skip
    env.pop("TRACER_IN_PROCESS", None)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=folder, env=env, capture_output=True,
        text=True,
    )  # fmt: skip
    found = (line.rpartition(" ") for line in done.stderr.splitlines())
    return {name: how for name, _, how in found if name in EXPECTED}, done


def test_a_process_behind_the_fence(folder):
    code = f"{TRIES}\nfrom tracer.containment import fence\nfence.build([Path('in')])\ntried()"
    assert run(folder, code)[0] == EXPECTED


COMMAND = f"""{TRIES}
import tracer.api.count
def counting(count):
    def call(*args, **named):
        tried()
        return count(*args, **named)
    return call
tracer.api.count.count = counting(tracer.api.count.count)
from tracer.__main__ import main
sys.exit(main())
"""


def test_a_command_is_behind_the_fence_unless_it_is_told_not_to_be(folder):
    line = ("count", LENET, "-o", "in/n.csv")
    found, done = run(folder, COMMAND, *line)
    assert (found, done.returncode) == (EXPECTED, 0), done.stderr
    assert (folder / "in" / "n.csv").exists()
    found, _ = run(folder, COMMAND, *line, "--force", TRACER_NO_FENCE="1")
    assert found["outside"] == found["a socket"] == "done"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "line",
    [
        ("profile", LENET, "--runs", "3", "--no-roofline", "-o", "in/p.trace", "-o", "in/p.png",
         "-o", "svg:in/a:b.svg", "-o", "in/all/"),
        ("interpret", LENET, "-o", "in/values", "--accumulator", "20", "--fixed", "8:5/8:7",
         "--certificate", "in/c.json"),
        ("quantize", LENET, "--calibrate", "digits", "--limit", "8", "--test-limit", "8", "-o",
         "in/q.onnx"),
        ("compare", LENET, f"{LENET}@ort:none", "--sessions", "2", "-o", "in/c.html"),
    ],
    ids=lambda line: line[0],
)  # fmt: skip
def test_commands_work_behind_it_with_empty_caches(line, folder):
    pytest.importorskip("sklearn")
    code = "import sys\nfrom tracer.__main__ import main\nsys.exit(main())"
    _, done = run(folder, code, *line, XDG_CACHE_HOME=str(folder / "out" / "cache"))
    assert done.returncode == 0, done.stderr
    assert any((folder / "in").iterdir())
    assert "Traceback" not in done.stderr and "Matplotlib" not in done.stderr


def test_commands_need_no_cache_that_they_may_look_for(tmp_path):
    """As under the home of another user, in a container."""
    import os

    closed = tmp_path / "closed"
    closed.mkdir(0o000)
    # root may look everywhere, unless it gives that up
    before = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] * (os.geteuid() == 0)
    if before and shutil.which("setpriv") is None:
        pytest.skip("root without setpriv may look everywhere")
    environment = {**os.environ, "HOME": str(closed)}
    environment.pop("XDG_CACHE_HOME", None)
    command = [*before, sys.executable, "-m", "tracer", "-q", "count", LENET, "-o", "count.json"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**environment, "PYTHONPATH": str(Path.cwd())},
        capture_output=True, text=True,
    )  # fmt: skip
    closed.chmod(0o700)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "count.json").exists()
