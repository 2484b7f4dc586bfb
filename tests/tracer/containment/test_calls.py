"""Calls from Python in a child process."""

import os
import signal
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import numpy as np
import pytest

import tracer
from tests.tracer.containment import hostile
from tracer.containment import calls, memory, supervisor
from tracer.errors import CrashError, LimitError, ModelError
from tracer.limits import Limits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tested on Linux")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile")
    hostile.save_all(path)
    return path


@pytest.fixture(autouse=True)
def children(monkeypatch):
    """Undoes what the other tests set: calls run in child processes here."""
    monkeypatch.setattr(supervisor, "in_process", lambda: False)


def test_a_result_an_error_and_progress_come_back_from_one_child(folder):
    steps = []
    trace = tracer.profile(
        folder / "harmless.onnx", runs=3, progress=lambda *step: steps.append(step)
    )
    assert trace.nodes["node"].tolist() == ["relu"]
    assert trace.runs[0].wall_us.size >= 3
    assert np.isfinite(trace.nodes["time_us"]).all()
    assert ("profiling" in {task for _, _, task in steps}) and steps[-1][0] == steps[-1][1]
    (worker,) = calls._idle
    with pytest.raises(ModelError) as raised:
        tracer.profile(folder / "nowhere.onnx")
    assert raised.value.hint == "Name an .onnx file or a folder with model.onnx."
    assert calls._idle == [worker]
    assert worker.is_alive


def test_checks_of_several_tests_of_pytest_share_a_child(folder, monkeypatch):
    children = []
    for test in ("test_a.py::test_a (call)", "test_a.py::test_b (call)"):
        monkeypatch.setenv("PYTEST_CURRENT_TEST", test)
        tracer.count(folder / "harmless.onnx")
        children += calls._idle
    assert children[0] is children[1]


def test_a_crash_raises_and_the_next_call_gets_a_new_child(folder):
    with pytest.raises(CrashError, match=r"\(SIGFPE\) .* ran node division \(Div\)"):
        tracer.profile(folder / "division.onnx", runs=3)
    tracer.profile(folder / "harmless.onnx", runs=3)
    with pytest.raises(LimitError, match=r"endless.onnx: the time limit .* while onnxruntime"):
        tracer.profile(folder / "endless.onnx", limits=Limits(seconds=1))


def test_an_interrupt_of_the_caller_ends_the_child(folder):
    ran = threading.Event()
    waiting = calls.Worker.reply

    def interrupt(worker):
        while "ran the model" not in worker.page.read().action:
            time.sleep(0.01)
        ran.set()
        os.kill(os.getpid(), signal.SIGINT)

    workers = []

    def reply(worker, *arguments):
        workers.append(worker)
        threading.Thread(target=interrupt, args=(worker,)).start()
        return waiting(worker, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls.Worker, "reply", reply)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                tracer.profile(folder / "endless.onnx")
        finally:
            signal.signal(signal.SIGINT, before)
    assert ran.is_set()
    assert not workers[0].is_alive
    assert not calls._idle


@pytest.mark.nightly
def test_callbacks_are_called_here_with_what_the_child_computed(folder):
    seen = []
    trace = tracer.interpret(
        folder / "harmless.onnx",
        runs=1,
        receive=lambda feedset, outputs: seen.append((os.getpid(), feedset.feeds, outputs)),
    )
    assert trace.nodes["node"].tolist() == ["relu"]
    (pid, feeds, outputs) = seen[0]
    assert pid == os.getpid()
    np.testing.assert_array_equal(outputs[0], np.maximum(feeds["x"], 0))
    with pytest.raises(ZeroDivisionError):
        tracer.interpret(folder / "harmless.onnx", runs=1, receive=lambda *_: 1 / 0)
    assert not calls._idle  # the child was ended with the call


def test_what_cannot_be_pickled_stays_in_this_process(monkeypatch):
    def local():
        return None

    class Local:
        """Of a module that only this process has."""

    module = types.ModuleType("only_here")
    module.Local, Local.__module__, Local.__qualname__ = Local, "only_here", "Local"
    monkeypatch.setitem(sys.modules, "only_here", module)
    there = Local()
    assert calls.contained(os.getpid, {}) != os.getpid()
    assert calls.contained(dict, {"function": local})["function"] is local
    assert calls.contained(dict, {"object": there})["object"] is there
    assert len(calls._idle) == 1


def test_a_limit_of_memory_is_of_one_call():
    usual = calls.contained(memory.limited_to, {})
    assert usual != 1 << 30
    assert calls.contained(memory.limited_to, {}, nbytes=1 << 30) == 1 << 30
    assert calls.contained(memory.limited_to, {}) == usual


@pytest.mark.nightly
def test_a_script_from_standard_input_needs_no_guard(folder):
    script = (
        "import tracer\n"
        f"trace = tracer.fusions({str(folder / 'harmless.onnx')!r})\n"
        "print(type(trace).__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-"],
        input=script,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    assert (done.stdout, done.stderr) == ("Fusions\n", "")


def test_a_child_outlives_the_thread_that_asked_for_it(folder):
    """Linux kills a child with the thread that made it; each thread here ends after its call."""
    calls._end_workers()
    counted, children = [], []

    def count():
        counted.append(tracer.count(folder / "harmless.onnx").model.nodes)
        children.extend(calls._idle)

    for _ in range(3):
        thread = threading.Thread(target=count)
        thread.start()
        thread.join()
        time.sleep(0.05)  # the system kills after the thread has ended
    assert counted == [1, 1, 1]
    assert all(each is children[0] for each in children)
    assert tracer.count(folder / "harmless.onnx").model.nodes == 1
    assert calls._idle == children[:1]


def test_calls_come_from_a_process_without_standard_streams(folder, tmp_path):
    """Daemons close them; a child opens its own over what has their numbers."""
    code = (
        "import os, sys, tracer\n"
        "for number in range(3): os.close(number)\n"
        f"trace = tracer.profile({str(folder / 'harmless.onnx')!r}, runs=2)\n"
        f"open({str(tmp_path / 'done')!r}, 'w').write(str(len(trace.nodes)))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    assert int((tmp_path / "done").read_text()) > 0
