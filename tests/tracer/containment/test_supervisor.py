"""Commands whose native code crashes, hangs or takes all memory, as a user starts them."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tracer
from tests.tracer.containment import hostile

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tested on Linux")

WATCHED = """
import os, re, sys, threading, time
from tracer.containment import activity
from tracer.containment.supervisor import supervised

def watch():
    while not re.search(sys.argv[1], str(activity.now())):
        time.sleep(0.002)
    os.write(1, b"%d\\n" % os.getpid())

def command():
    threading.Thread(target=watch, daemon=True).start()
    from tracer.cli import main
    return main(sys.argv[2:])

sys.exit(supervised(command, "tracer"))
"""
"""`tracer`, which prints the number of its child process once its first argument matches what that
does. A step may be shorter than the time between two looks, so patterns match later ones too."""

STUCK = """
import signal, sys, time
from tracer.containment import signals, supervisor, watch

def command():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGALRM})
    signals.limit_seconds(float(sys.argv[1]))
    print("stuck", flush=True)
    time.sleep(60)

watch.GRACE_S = watch.ASKED_GRACE_S = 0.2
sys.exit(supervisor.supervised(command, "tracer"))
"""
"""A command that no signal reaches, as native code is that does not return."""


CRASHING = """
import ctypes, sys
from tracer.containment.supervisor import supervised
sys.exit(supervised(lambda: ctypes.string_at(0), "x"))
"""


TERMINATING = """
import ctypes, sys
from tracer.containment.supervisor import supervised
sys.exit(supervised(ctypes.CDLL("libstdc++.so.6")._ZSt9terminatev, "x"))
"""
"""std::terminate(), which C++ calls for an exception that nothing catches."""

SEARCHING = """
import ctypes, sys, time
from tracer.containment import activity, watch
from tracer.containment.supervisor import supervised
from tracer.support.temporary import TemporaryFolder

def trial():
    folder, memory = TemporaryFolder(), b"1" * (1 << 30)
    time.sleep(60)

def command():
    with activity.doing("m.onnx", "a runtime ran it", runs_model=True):
        if watch.is_search():
            watch.crashes(trial)
        ctypes.string_at(0)

watch.MOST_SEARCH_S = 2
sys.exit(supervised(command, "x"))
"""
"""A crash whose search takes too long, and is killed together with what it tries."""

DYING_LATE = """
import os, signal, sys, time
from tracer.containment import activity, signals
from tracer.containment.supervisor import supervised

def command():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    signals.limit_seconds(0.2)
    with activity.doing("m.onnx", "a runtime ran it", runs_model=True):
        time.sleep(0.4)
        os.abort()

sys.exit(supervised(command, "x"))
"""
"""Native code that dies as its run is ended at the time limit, as a runtime may."""

IMPATIENT = """
import sys
from tracer.containment import activity
from tracer.containment.supervisor import supervised

def command():
    from tracer.cli import main
    return main(sys.argv[2:])

activity.PATIENCE_S = float(sys.argv[1])
sys.exit(supervised(command, "tracer"))
"""
"""`tracer`, which waits for a step of native code for as many seconds as its first argument."""

ASKED_DURING = """
import importlib, os, signal, sys
from tracer.containment.supervisor import supervised

def command():
    from tracer.cli import main
    module = importlib.import_module(sys.argv[1])
    called = getattr(module, sys.argv[2])

    def calling(*arguments):
        setattr(module, sys.argv[2], called)
        os.kill(os.getpid(), signal.SIGTERM)
        return called(*arguments)

    setattr(module, sys.argv[2], calling)
    return main(sys.argv[3:])

sys.exit(supervised(command, "tracer"))
"""
"""`tracer`, which is asked to end while it calls a function, named by its first two arguments."""

GOING_ON = """
import importlib, os, signal, sys, time
from tracer.containment.supervisor import supervised

def command():
    from tracer.cli import main
    from tracer.executors.onnxruntime import profile_events
    read = profile_events.read

    def reading(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        return read(*arguments)

    profile_events.read = reading
    module = importlib.import_module(sys.argv[1])
    setattr(module, sys.argv[2], lambda *arguments: time.sleep(600))
    return main(sys.argv[3:])

sys.exit(supervised(command, "tracer"))
"""
"""`tracer`, which is asked to end during a profile; what its first two arguments name would follow,
and never end."""

LEAVING_NET = """
import atexit, sys, time, torch
from tracer.containment import activity

class Lingering:
    def __del__(self):
        time.sleep(60)

class Net(torch.nn.Module):
    def __init__(self, lingers):
        super().__init__()
        self.lingers = lingers

    def forward(self, x):
        held = self.lingers()
        activity.page().set_times(time.monotonic() + 2.0, 0.0)
        sys.exit(5)

def freed():
    return Net(Lingering)

def exit():
    return Net(lambda: atexit.register(time.sleep, 60))
"""
"""Nets that end the program two seconds before the deadline, and then do not let it end."""

LINGERING = """
import sys
from tracer.__main__ import main
from tracer.containment import watch

watch.GRACE_S = 0.5
sys.exit(main())
"""
"""`tracer`, whose supervisor waits for half a second after the deadline."""

DROPPING = """
import time, weakref
from tracer.containment import signals

class Referred:
    pass

def freed(_):
    print("freed", flush=True)
    time.sleep(30)

with signals.raising():
    if LIMITED:
        signals.limit_seconds(0.3)
    referred = Referred()
    reference = weakref.ref(referred, freed)
    del referred
    time.sleep(30)
"""
"""A signal that arrives in the callback of a weak reference, which drops its exception."""

LEAVING = """
import os
from tracer.containment.supervisor import supervised
supervised(lambda: os._exit(9), "x")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile")
    hostile.save_all(path)
    (path / "tmp").mkdir()
    return path


@pytest.fixture
def start(folder):
    """Starts Python with arguments in the folder of the models; its temporary folder is `tmp`."""
    with contextlib.ExitStack() as started:

        def starting(*arguments):
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=folder,
                env={**os.environ, "TMPDIR": str(folder / "tmp"), "PYTHONPATH": str(Path.cwd())},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )
            started.enter_context(process)
            started.callback(process.kill)
            return process

        yield starting


def ended(process):
    """Exit code and standard error."""
    _, err = process.communicate(timeout=60)
    return process.returncode, err


def leftovers(folder):
    return [path.name for path in (folder / "tmp").iterdir()]


CRASHES = {
    "division": ("profile", "SIGFPE", "onnxruntime", "ran node division (Div)"),
    "normalization": ("profile", "SIGSEGV", "onnxruntime", "Try --optimization basic"),
}


def test_a_crash_of_native_code_is_one_line_that_names_model_signal_and_activity(start, folder):
    running = {
        name: start("-m", "tracer", command, f"{name}.onnx")
        for name, (command, *_) in CRASHES.items()
    }
    for name, (_, *words) in CRASHES.items():
        code, err = ended(running[name])
        assert (code, err.count("\n")) == (5, 1)
        assert err.startswith(f"tracer: error: {name}.onnx: the runtime crashed (")
        assert all(word in err for word in words)
    assert not leftovers(folder)


def test_a_crash_that_nothing_announced_is_told_by_the_last_python_frame(start):
    code, err = ended(start("-c", CRASHING))
    assert code == 5
    assert "x: error: the runtime crashed (SIGSEGV) while string_at ran (ctypes/__init__.py" in err


def test_what_cpp_would_print_of_an_exception_that_nothing_catches_is_told_in_one_line(start):
    code, err = ended(start("-c", TERMINATING))
    assert code == 5
    assert err.startswith("x: error: the runtime crashed (SIGABRT)")
    assert err.count("\n") == 1


@pytest.mark.nightly
def test_a_search_that_is_killed_leaves_no_folder(start, folder):
    code, err = ended(start("-c", SEARCHING))
    assert (code, err.count("\n")) == (5, 1)
    assert not list((folder / "tmp").glob("tracer-*"))


def test_what_dies_as_its_time_is_up_is_out_of_time_and_not_searched(start):
    code, err = ended(start("-c", DYING_LATE))
    assert (code, err.count("\n"), "the time limit was reached" in err) == (4, 1, True)


def test_limits_of_time_and_memory_end_a_run_with_what_to_raise(start):
    endless = start("-m", "tracer", "profile", "endless.onnx", "--max-seconds", "1")
    greedy = start("-m", "tracer", "profile", "greedy.onnx", "--max-memory", "1000")
    for process, option in ((endless, "--max-seconds"), (greedy, "--max-memory")):
        code, err = ended(process)
        assert (code, err.count("\n")) == (4, 1)
        assert option in err


def test_native_code_without_end_is_ended_when_patience_ends(start):
    code, err = ended(start("-c", IMPATIENT, "1", "profile", "endless.onnx"))
    assert (code, err.count("\n")) == (4, 1)
    assert "endless.onnx: no step ended in 1 s while onnxruntime" in err
    assert "Set --max-seconds" in err


def test_a_process_that_ends_itself_is_told(start):
    _, err = ended(start("-c", LEAVING))
    assert err.startswith("x: error: the process ended itself (exit code 9).")


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_ends_an_endless_run_of_onnxruntime(name, code, start, folder):
    process = start("-c", WATCHED, "ran the model", "profile", "endless.onnx")
    assert process.stdout.readline()
    process.send_signal(getattr(signal, name))
    words = {"SIGINT": "interrupted", "SIGTERM": "terminated"}
    ending, err = ended(process)
    assert (ending, err.strip()) == (code, f"tracer: {words[name]}")  # click ends the line of ^C
    assert not leftovers(folder)


def test_the_child_dies_with_its_supervisor_and_the_next_command_sweeps(start, folder):
    process = start("-c", WATCHED, "ran the model", "profile", "harmless.onnx", "--min-time", "300")
    child = int(process.stdout.readline())
    process.kill()
    process.wait()
    end = time.monotonic() + 20
    while _lives(child) and time.monotonic() < end:
        time.sleep(0.01)
    assert not _lives(child)
    assert leftovers(folder)
    assert ended(start("-c", STUCK, "0.1"))[0] == 4
    assert not leftovers(folder)


def test_a_child_that_the_system_kills_is_told(start, folder):
    process = start("-c", WATCHED, "ran the model", "profile", "harmless.onnx", "--min-time", "300")
    os.kill(int(process.stdout.readline()), signal.SIGKILL)
    code, err = ended(process)
    assert (code, err.count("\n")) == (5, 1)
    assert "the process was killed (SIGKILL) while " in err
    assert not leftovers(folder)


@pytest.mark.nightly
def test_what_was_recorded_before_the_end_is_kept_as_an_incomplete_trace(start, folder):
    options = ("--threads", "1", "--no-roofline", "-o")
    long = ("harmless.onnx", "--min-time", "300")
    asked = start(
        "-c", WATCHED, r"profiling, ([5-9]|\d\d)", "profile", *long, *options, "asked.trace"
    )
    crashed = start(
        "-m", "tracer", "profile", "pairs.onnx", "--batch", "1,2", *options, "crashed.trace"
    )
    assert asked.stdout.readline()
    asked.terminate()
    assert ended(asked) == (143, "wrote asked.trace\ntracer: terminated\n")
    code, err = ended(crashed)
    assert (code, "ran node Div_3 (Div)" in err) == (5, True)
    assert err.startswith("wrote crashed.trace\n")
    kept = {name: tracer.load(folder / f"{name}.trace") for name in ("asked", "crashed")}
    assert [trace.is_incomplete for trace in kept.values()] == [True, True]
    assert kept["asked"].notes[0].startswith("incomplete: terminated")
    assert len(kept["asked"].runs[0].samples) >= 5
    assert [run.batch for run in kept["crashed"].runs] == [1]
    assert "1 of 2 configurations" in kept["crashed"].notes[0]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("module", "function"),
    [
        ("tracer.executors.onnxruntime.profile_events", "read"),
        pytest.param(
            "tracer.executors.onnxruntime.kernel_nodes", "kernels", marks=pytest.mark.nightly
        ),
        pytest.param("tracer.api._profile", "attribute", marks=pytest.mark.nightly),
        ("tracer.api._assembly", "matched"),
    ],
)
def test_what_was_recorded_is_kept_whatever_follows(module, function, start, folder):
    options = ("--runs", "5", "--threads", "1", "--no-roofline", "-o", f"{function}.trace")
    process = start("-c", ASKED_DURING, module, function, "profile", "fused.onnx", *options)
    assert ended(process) == (143, f"wrote {function}.trace\ntracer: terminated\n")
    kept = tracer.load(folder / f"{function}.trace")
    assert kept.notes[0].startswith("incomplete: terminated")
    assert len(kept.runs[0].samples) > 0


@pytest.mark.parametrize(
    ("module", "function", "arguments"),
    [
        ("tracer.api._tune", "Search", ["tune", "fused.onnx"]),
        ("tracer.api.compare.running", "sessions", ["compare", "fused.onnx", "fused.onnx"]),
    ],
)
def test_a_command_that_is_asked_to_end_during_its_profile_does_not_go_on(
    module, function, arguments, start
):
    assert ended(start("-c", GOING_ON, module, function, *arguments)) == (
        143, "tracer: terminated\n"
    )  # fmt: skip


@pytest.mark.nightly
def test_a_comparison_that_is_ended_keeps_the_complete_sessions(start, folder):
    # its runs are long enough that the thread which looks gets its turn between them
    model = str(Path("models/lenet/lenet.onnx").resolve())
    sides = (model, f"{model}@ort:none", "--by", "op", "--sessions", "1000")
    files = [f"ended.{extension}" for extension in ("json", "md", "csv", "svg")]
    outputs = [word for file in files for word in ("-o", file)]
    process = start("-c", WATCHED, r"comparing layers, ([3-9]|\d\d)", "compare", *sides, *outputs)
    assert process.stdout.readline()
    process.terminate()
    page, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (
        143,
        "wrote ended.json\nwrote ended.md\ntracer: terminated\n",
    )
    kept = json.loads((folder / "ended.json").read_text())
    assert all(re.match(r"incomplete: terminated; it has \d+ sessions", side["notes"][0])
               and len(side["sessions_us"]) > 1 for side in kept["sides"])  # fmt: skip
    assert not kept["numbers"]
    for text in (page, (folder / "ended.md").read_text()):
        assert "incomplete: terminated" in text
    assert not [name for name in files[2:] if (folder / name).exists()]  # they have no notes


CLOSED = """
import os
from tracer.containment.supervisor import supervised
for number in range(3):
    os.close(number)
os._exit(supervised(lambda: min(os.pipe()) > 2, "x"))
"""


def test_no_file_gets_the_number_of_a_closed_stream(start):
    assert ended(start("-c", CLOSED))[0] == 1


@pytest.mark.one_in(3)
@pytest.mark.parametrize("number", [signal.SIGALRM, signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_a_callback_dropped_rises_again(number, start):
    process = start("-c", DROPPING.replace("LIMITED", str(number == signal.SIGALRM)))
    assert process.stdout.readline() == "freed\n"
    if number != signal.SIGALRM:
        process.send_signal(number)
    code, err = ended(process)
    raised = {signal.SIGALRM: "TimeUp", signal.SIGINT: "KeyboardInterrupt"}.get(
        number, "Terminated"
    )
    assert (code != 0, raised in err) == (True, True)


def test_a_command_that_no_signal_reaches_is_ended_by_its_supervisor(start):
    late, asked = start("-c", STUCK, "0.2"), start("-c", STUCK, "300")
    assert asked.stdout.readline()
    asked.terminate()
    assert ended(asked) == (143, "tracer: terminated\n")
    code, err = ended(late)
    assert (code, err.count("\n")) == (4, 1)
    assert "the time limit was reached" in err


@pytest.mark.nightly
@pytest.mark.parametrize("lingering", ["freed", "exit"])
def test_an_error_near_the_deadline_is_one_line_whatever_lingers(lingering, start, folder):
    (folder / "net.py").write_text(LEAVING_NET)
    arguments = ["export", f"net.py:{lingering}", "--input-shape", "1,2", "-o", "net_of_ours.onnx"]
    code, err = ended(start("-c", LINGERING, *arguments, "--max-seconds", "300"))
    assert (code, err) == (
        3, "tracer: error: Net ends the program (sys.exit) when it is run. Take that out of its "
        "code.\n",
    )  # fmt: skip


def _lives(process):
    """Whether a process runs; it may be a zombie where nobody reaps it."""
    try:
        with Path(f"/proc/{process}/stat").open() as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
