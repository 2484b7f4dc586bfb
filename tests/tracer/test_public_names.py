"""The names that users import: all there, and the old ones with a warning."""

import inspect

import pytest

import tracer
from tracer.records.result import Result

FUNCTIONS = [name for name in tracer.__all__ if inspect.isfunction(getattr(tracer, name))]


def test_every_job_of_the_command_line_is_a_function():
    jobs = {"profile", "compare", "count", "fusions", "interpret", "export", "quantize", "what_if"}
    assert jobs | {"load", "save", "sweep", "profile_framework"} == set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_has_a_module_of_its_own_and_says_what_it_raises(name):
    function = getattr(tracer, name)
    assert function.__module__.startswith("tracer.api.")
    assert "Raises" in function.__doc__


def test_modules_that_moved_are_still_reached_by_their_old_names():
    with pytest.warns(DeprecationWarning, match=r"tracer\.comparison is now tracer\.api\.compare"):
        assert tracer.comparison.compare is tracer.compare
    with pytest.warns(DeprecationWarning):
        assert "time_us" in tracer.trace.COLUMNS


def test_a_saved_count_is_loaded_again(tmp_path):
    trace = tracer.count("models/lenet/lenet.onnx")
    assert isinstance(trace, Result)
    assert tracer.save(trace, tmp_path / "c.trace") == tmp_path / "c.trace"
    assert tracer.load(tmp_path / "c.trace").nodes.equals(trace.nodes)
