"""What a process tells its supervisor, the memory it may take, and what it leaves when it dies."""

import os
import subprocess
import sys
import time

import onnx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tracer.containment import activity, memory, signals, supervisor, watch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tested on Linux")


@given(*[st.text(max_size=900)] * 3)
@example("a" * 500, "\0", "\U0001f600" * 401)
def test_an_activity_is_read_as_it_was_written_up_to_a_length(where, action, remedy):
    page = activity.Page.anonymous(alarm=-1)
    page.write(activity.Activity("an earlier one " * 9, "ran", "", "a task"))
    page.write(activity.Activity(where, action, remedy))
    expected = [part[:400].replace("\0", " ") for part in (where, action, remedy)]
    read = page.read()
    assert [read.where, read.action, read.remedy, read.task] == [*expected, ""]


def test_an_activity_ends_with_its_block_and_has_the_steps_of_the_progress(monkeypatch):
    page = activity.Page.anonymous(alarm=-1)
    monkeypatch.setattr(activity, "_page", page)
    monkeypatch.setattr(activity, "_now", activity.Activity())  # commands of other tests leave one
    steps = []
    with activity.doing("m.onnx", "onnxruntime ran the model"):
        activity.noting(lambda *step: steps.append(step))(1234, 5000, "profiling")
        with activity.doing("m.onnx", "onnx inferred the shapes"):
            assert str(page.read()) == "onnx inferred the shapes"
        activity.noting(lambda *step: steps.append(step))(1235, 5000, "profiling")
        assert str(activity.now()) == "onnxruntime ran the model (profiling, 1,235 of 5,000)"
    assert str(page.read()) == ""
    assert steps == [(1234, 5000, "profiling"), (1235, 5000, "profiling")]


def test_a_process_that_noticed_a_signal_gets_more_time_only_for_what_it_keeps(monkeypatch):
    page = activity.Page.anonymous(alarm=os.open(os.devnull, os.O_WRONLY))
    monkeypatch.setattr(activity, "_page", page)
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    alarm = watch.Alarm(os.getpid())

    def left(deadline, noticed):
        page.set_times(deadline, noticed and 1030.0)
        return [alarm.seconds_left(page, asked) for asked in (1000.0, 0.0)]

    # docs/security.md: 2 s after the deadline, 1.2 s after a signal
    assert left(1000.0, noticed=False) == left(1000.0, noticed=True) == pytest.approx([1.2, 2.0])
    signals.keep(True)
    assert left(0.0, noticed=False)[0] == 8.0
    assert left(1000.0, noticed=True) == [30.0, 30.0]
    with signals.keep_nothing():
        signals.keep(True)
    assert left(1000.0, noticed=True) == pytest.approx([1.2, 2.0])


def test_patience_begins_again_with_each_step_and_only_native_code_needs_it(monkeypatch):
    page = activity.Page.anonymous(alarm=os.open(os.devnull, os.O_WRONLY))
    monkeypatch.setattr(activity, "_page", page)
    assert page.stalls_at is None
    with activity.doing("m.onnx", "onnxruntime ran the model"):
        ends = [page.stalls_at]
        for step in (activity.step, lambda: activity.noting(lambda *_: None)(1, 2, "profiling")):
            step()
            ends.append(page.stalls_at)
        with activity.doing("m.onnx", "the interpreter ran the model", patient=True):
            activity.step()
            assert page.stalls_at is None
        ends.append(page.stalls_at)
        assert ends == sorted({*ends})
        assert ends[0] > time.monotonic() + activity.PATIENCE_S / 2
        page.set_times(time.monotonic() + 1e6, 0.0)  # a time limit replaces patience
        assert page.stalls_at is None
    assert page.stalls_at is None


@pytest.mark.parametrize(
    ("code", "where", "words"),
    [
        (-11, "m.onnx", "m.onnx: the runtime crashed (SIGSEGV) while onnx checked it"),
        (-9, "m.onnx", "m.onnx: the process was killed (SIGKILL) while onnx checked it"),
        (1, "", "the process ended itself (exit code 1) while onnx checked it"),
        (-64, "", "the runtime crashed (SIGRTMAX) while onnx checked it"),
    ],
)
def test_a_death_is_told_with_its_signal(code, where, words):
    error = supervisor.crash(code, activity.Activity(where, "onnx checked it"), "")
    assert error.what == words
    assert error.exit_code == 5


def test_a_crash_is_in_the_thread_that_had_it():
    waiting = (
        'Thread 0x1 (most recent call first):\n  File "/lib/tracer/waiting.py", line 1 in wait\n'
    )
    died = 'Current thread 0x2:\n  File "/lib/numpy/linalg/_linalg.py", line 17 in svd\n'
    error = supervisor.crash(-11, activity.Activity(), f"{waiting}\n{died}")
    assert "svd ran (linalg/_linalg.py:17)" in str(error)


def test_a_death_outside_every_activity_is_told_by_the_last_frame():
    frames = 'Fatal Python error\n\n  File "/lib/numpy/linalg/_linalg.py", line 17 in svd\n'
    error = supervisor.crash(-6, activity.Activity(), frames)
    assert error.what == "the runtime crashed (SIGABRT) while svd ran (linalg/_linalg.py:17)"


def test_free_memory_is_what_the_machine_and_the_control_group_leave(tmp_path, monkeypatch):
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 8000 kB\n")
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    assert memory.free_bytes() == 8000 * 1024
    (tmp_path / "memory.max").write_text("5000000\n")
    (tmp_path / "memory.current").write_text("3000000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 500000\n")
    assert memory.free_bytes() == 2_500_000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_bytes() == 8000 * 1024
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "absent")
    assert memory.free_bytes() is None


def test_an_allocation_beyond_the_limit_fails_and_leaves_the_process_alive():
    code = (
        "from tracer.containment import memory; import numpy as np\n"
        "memory.limit(600 << 20)\n"
        "try: np.ones(100 << 20)\n"
        "except MemoryError: print(np.ones(10 << 20).sum())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == f"{float(10 << 20)}\n"


@pytest.mark.skipif(sys.platform == "win32", reason="no such limits")
@pytest.mark.parametrize("option", ["-v", "-d"])
def test_the_error_of_an_allocation_tells_the_limit_that_a_shell_set(option):
    """`ulimit` takes KiB; an allocation of a GiB fails under it, which no option can change."""
    program = (
        "from tracer.containment import memory\n"
        "try: bytearray(1 << 30)\n"
        "except MemoryError: print(memory.out_of_memory('no room'))"
    )
    command = f'ulimit {option} {700 << 10}; exec "{sys.executable}" -c "$0"'
    ran = subprocess.run(["sh", "-c", command, program], capture_output=True, text=True)
    told = f"no room. Try a smaller batch, or raise ulimit {option} (now 700 MiB).\n"
    assert ran.stdout == told, ran.stderr


def test_no_command_opens_a_socket_or_leaves_onnxruntimes_telemetry(tmp_path):
    from tests.tracer.containment import hostile

    hostile.save_all(tmp_path)
    code = (
        "import sys\n"
        "def hook(event, arguments):\n"
        "    if event.startswith('socket.'): print(event, arguments)\n"
        "sys.addaudithook(hook)\n"
        "from tracer.cli import main\n"
        "main(['profile', 'harmless.onnx', '--runs', '3', '--no-roofline', '-o', 'r.trace'])\n"
        "main(['report', 'r.trace', '-o', 'r.csv'])\n"
    )
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("ORT_DISABLE_TELEMETRY", None)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert "harmless.onnx" in done.stdout
    assert "socket." not in done.stdout + done.stderr
    assert not [path for path in tmp_path.rglob("*") if "Microsoft" in path.name]


_WITHIN = """
from tracer.containment import memory
memory.limit_to_share()
with memory.at_most(64 << 20):
    try:
        bytearray(128 << 20)
    except MemoryError:
        print("refused")
    bytearray(16 << 20)
bytearray(128 << 20)
memory.limit(1 << 30)
with memory.at_most(64 << 20):
    bytearray(128 << 20)
print(memory.is_default())
"""


def test_a_block_takes_less_than_the_default_but_not_than_what_was_asked_for():
    command = [sys.executable, "-c", _WITHIN]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["refused", "False"]


_PROFILE = """
import sys
from tracer.graph import stored_weights
stored_weights._RUNTIME, stored_weights._A_CORE, stored_weights._PART = 128 << 20, 0, 1 << 20
from tracer.__main__ import main
sys.exit(main())
"""
_TEXTS = {
    "a Loop that doubles": (4, "(float[2] x) => (float[N] y) { n = Constant<value_int=25>()"
        "y = Loop(n, , x) <body = b (int64 i, bool k, float[M] s) => (bool l, float[K] r) {"
        "l = Identity(k) r = Concat<axis=0>(s, s) }> }"),
    "a size that a constant sets": (4, "(float[1] x) => (float y) {"
        "s = Constant<value_ints=[45000000]>() e = Expand(x, s) y = ReduceMax<keepdims=0>(e) }"),
    "copies of an input": (0, "(float[1000000] x) => (float y) {"
        "s = Constant<value_ints=[45]>() e = Tile(x, s) y = ReduceMax<keepdims=0>(e) }"),
}  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", _TEXTS)
def test_a_profile_takes_memory_in_proportion_to_the_model(name, tmp_path):
    code, text = _TEXTS[name]
    made = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> g {text}')
    onnx.save(made, tmp_path / "m.onnx")
    command = [sys.executable, "-c", _PROFILE, "profile", "m.onnx", "--runs", "1", "--no-roofline"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert ("ran out of memory" in done.stderr) == (code == 4)
