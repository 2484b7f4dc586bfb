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
from tests.tracer.containment import hostile, programs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tested on Linux")


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
    code, err = ended(start("-c", programs.CRASHING))
    assert code == 5
    assert "x: error: the runtime crashed (SIGSEGV) while string_at ran (ctypes/__init__.py" in err


def test_what_cpp_would_print_of_an_exception_that_nothing_catches_is_told_in_one_line(start):
    code, err = ended(start("-c", programs.TERMINATING))
    assert code == 5
    assert err.startswith("x: error: the runtime crashed (SIGABRT)")
    assert err.count("\n") == 1


@pytest.mark.nightly
def test_a_search_that_is_killed_leaves_no_folder(start, folder):
    code, err = ended(start("-c", programs.SEARCHING))
    assert (code, err.count("\n")) == (5, 1)
    assert not list((folder / "tmp").glob("tracer-*"))


def test_what_dies_as_its_time_is_up_is_out_of_time_and_not_searched(start):
    code, err = ended(start("-c", programs.DYING_LATE))
    assert (code, err.count("\n"), "the time limit was reached" in err) == (4, 1, True)


def test_limits_of_time_and_memory_end_a_run_with_what_to_raise(start):
    endless = start("-m", "tracer", "profile", "endless.onnx", "--max-seconds", "1")
    greedy = start("-m", "tracer", "profile", "greedy.onnx", "--max-memory", "1000")
    allowed = "raise --max-memory (now 1,000 MiB)."
    for process, option in ((endless, "--max-seconds"), (greedy, allowed)):
        code, err = ended(process)
        assert (code, err.count("\n")) == (4, 1)
        assert option in err


def test_native_code_without_end_is_ended_when_patience_ends(start):
    code, err = ended(start("-c", programs.IMPATIENT, "1", "profile", "endless.onnx"))
    assert (code, err.count("\n")) == (4, 1)
    assert "endless.onnx: no step ended in 1 s while onnxruntime" in err
    assert "Set --max-seconds" in err


def test_a_process_that_ends_itself_is_told(start):
    _, err = ended(start("-c", programs.LEAVING))
    assert err.startswith("x: error: the process ended itself (exit code 9).")


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_ends_an_endless_run_of_onnxruntime(name, code, start, folder):
    process = start("-c", programs.WATCHED, "ran the model", "profile", "endless.onnx")
    assert process.stdout.readline()
    process.send_signal(getattr(signal, name))
    words = {"SIGINT": "interrupted", "SIGTERM": "terminated"}
    ending, err = ended(process)
    assert (ending, err.strip()) == (code, f"tracer: {words[name]}")  # click ends the line of ^C
    assert not leftovers(folder)


def test_the_child_dies_with_its_supervisor_and_the_next_command_sweeps(start, folder):
    process = start(
        "-c", programs.WATCHED, "ran the model", "profile", "harmless.onnx", "--min-time", "300"
    )
    child = int(process.stdout.readline())
    process.kill()
    process.wait()
    end = time.monotonic() + 20
    while _lives(child) and time.monotonic() < end:
        time.sleep(0.01)
    assert not _lives(child)
    assert leftovers(folder)
    assert ended(start("-c", programs.STUCK, "0.1"))[0] == 4
    assert not leftovers(folder)


def test_a_child_that_the_system_kills_is_told(start, folder):
    process = start(
        "-c", programs.WATCHED, "ran the model", "profile", "harmless.onnx", "--min-time", "300"
    )
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
        "-c",
        programs.WATCHED,
        r"profiling, ([5-9]|\d\d)",
        "profile",
        *long,
        *options,
        "asked.trace",
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


def test_the_runs_of_an_interrupted_profile_are_shown(start):
    process = start(
        "-c", programs.READING_LONG + programs.WATCHED, r"profiling, ([5-9]|\d\d)", "profile",
        "harmless.onnx", "--min-time", "300", "--threads", "1", "--no-roofline",
    )  # fmt: skip
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    page, err = process.communicate(timeout=60)
    assert (process.returncode, err.strip()) == (130, "tracer: interrupted")
    runs = re.match(r"harmless\.onnx · .* · ([\d,]+) runs\n", page)
    assert runs and int(runs[1].replace(",", "")) >= 5
    assert "note: incomplete: interrupted; it has the runs until then" in page


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
    process = start(
        "-c", programs.ASKED_DURING, module, function, "profile", "fused.onnx", *options
    )
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
    assert ended(start("-c", programs.GOING_ON, module, function, *arguments)) == (
        143, "tracer: terminated\n"
    )  # fmt: skip


@pytest.mark.nightly
def test_a_comparison_that_is_ended_keeps_the_complete_sessions(start, folder):
    # its runs are long enough that the thread which looks gets its turn between them
    model = str(Path("models/lenet/lenet.onnx").resolve())
    sides = (model, f"{model}@ort:none", "--by", "op", "--sessions", "1000")
    files = [f"ended.{extension}" for extension in ("json", "md", "csv", "svg")]
    outputs = [word for file in files for word in ("-o", file)]
    process = start(
        "-c", programs.WATCHED, r"comparing layers, ([3-9]|\d\d)", "compare", *sides, *outputs
    )
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
    process = start("-c", programs.DROPPING.replace("LIMITED", str(number == signal.SIGALRM)))
    assert process.stdout.readline() == "freed\n"
    if number != signal.SIGALRM:
        process.send_signal(number)
    code, err = ended(process)
    raised = {signal.SIGALRM: "TimeUp", signal.SIGINT: "KeyboardInterrupt"}.get(
        number, "Terminated"
    )
    assert (code != 0, raised in err) == (True, True)


def test_a_command_that_no_signal_reaches_is_ended_by_its_supervisor(start):
    late, asked = start("-c", programs.STUCK, "0.2"), start("-c", programs.STUCK, "300")
    assert asked.stdout.readline()
    asked.terminate()
    assert ended(asked) == (143, "tracer: terminated\n")
    code, err = ended(late)
    assert (code, err.count("\n")) == (4, 1)
    assert "the time limit was reached" in err


@pytest.mark.nightly
@pytest.mark.parametrize("lingering", ["freed", "exit"])
def test_an_error_near_the_deadline_is_one_line_whatever_lingers(lingering, start, folder):
    (folder / "net.py").write_text(programs.LEAVING_NET)
    arguments = ["export", f"net.py:{lingering}", "--input-shape", "1,2", "-o", "net_of_ours.onnx"]
    code, err = ended(start("-c", programs.LINGERING, *arguments, "--max-seconds", "300"))
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


def test_nothing_is_left_open(start):
    process = start("-W", "error", "-m", "tracer", "count", "harmless.onnx", "--top", "1")
    code, err = ended(process)
    assert (code, "Warning" in err) == (0, False)
