"""Property tests are given all the time they need: a busy machine fails nobody's build."""

import functools
import gc
import os
import sys
from dataclasses import replace
from itertools import groupby

# Before anything imports torch: two threads for each small tensor wait for each other, and where
# the tests share the processors they wait for long. Tests that need several threads ask for them.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

from tracer.records.environment import Peak, Peaks
from tracer.support import files

# A commit fails for its own faults: examples are those of the test's own source, and few. The long
# run, `make test-all`, takes others each time, and more. No example is too slow: machines are busy.
settings.register_profile("steady", deadline=None, derandomize=True, max_examples=15)
settings.register_profile("random", deadline=None, derandomize=False)
settings.load_profile("steady")

# Kineto reads it once for a process: tests that use torch's profiler themselves would let it talk.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items):
    """Of a test that is marked `one_in(n)`, each commit has the first case and each nth after it.

    Long tests begin first: at the end, all processors but one would wait for them.
    """
    days = [item for item in items if item.get_closest_marker("nightly") is None]
    for _, cases in groupby(days, lambda item: getattr(item, "function", None)):
        for position, item in enumerate(cases):
            if (mark := item.get_closest_marker("one_in")) and position % mark.args[0]:
                item.add_marker(pytest.mark.nightly)
    result = yield
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is imported for the tests is no garbage: no collection reads it, again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_runtest_setup():
    """torch builds its table of translations for each export: here, once for each opset.

    It takes half of the time of an export of a small network, and nothing in the tests adds to it.
    """
    module = sys.modules.get("torch.onnx._internal.exporter._registration")
    if module is None or hasattr(module.ONNXRegistry.from_torchlib, "tables"):
        return
    build = module.ONNXRegistry.from_torchlib
    tables = functools.cache(build)

    def from_torchlib(**options):  # as if anew where a test takes the package of the table away
        return (tables if sys.modules.get("onnxscript") else build)(**options)

    from_torchlib.tables = tables
    module.ONNXRegistry.from_torchlib = staticmethod(from_torchlib)


@pytest.fixture(scope="session", autouse=True)
def machine(tmp_path_factory):
    """Commands meet a machine whose peaks are told, not measured, and no cache of the user's.

    Calls run in this process, where tests replace parts; tests/tracer/containment is about others.
    """
    from tracer import host
    from tracer.containment import supervisor

    def told(threads):
        return Peaks(threads, Peak(1e11, "told"), Peak(2e10, "told"), Peak(2e11, "told"))

    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "measure", told)
        patch.setattr(files, "cache_folder", lambda: folder)
        patch.setattr(supervisor, "in_process", lambda: True)
        yield


@pytest.fixture(scope="session", autouse=True)
def comparison_seconds():
    """The seconds of a side of a comparison without a limit; in tests two have a third of one.

    Beside other tests none reaches its precision, so each would take all of its time.
    """
    from tracer.executors import measuring

    usual = measuring.SECONDS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "SECONDS", 0.15)
        yield usual


@pytest.fixture(scope="session", autouse=True)
def comparison_paces():
    """How long the sessions of comparisons are; in tests they have the least turns."""
    from tracer.api.compare import running

    usual = running.PACES
    with pytest.MonkeyPatch.context() as patch:
        short = {what: replace(pace, session_s=0.0) for what, pace in usual.items()}
        patch.setattr(running, "PACES", short)
        yield usual
