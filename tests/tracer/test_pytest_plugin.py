"""The fixture `tracer` of pytest, in suites of tests that pytest runs apart."""

import importlib.metadata
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest

from tests.graphs import residual
from tracer.storage import trace_file

pytest_plugins = ["pytester"]
RECORDED = Path("tests/fixtures/traces/profile.trace").absolute()
IS_INSTALLED = "tracer" in importlib.metadata.entry_points(group="pytest11").names


class Imported:
    """A plugin that remembers the modules of a suite.

    pytester forgets them. Those that are imported again register operators twice, and have errors
    that others do not know.
    """

    def __init__(self):
        self.modules = {}

    def pytest_unconfigure(self):
        self.modules |= {name: each for name, each in sys.modules.items() if "tracer" in name}


@pytest.fixture
def imported():
    kept = Imported()
    yield kept
    sys.modules.update(kept.modules)  # after pytester has ended


@pytest.fixture
def suite(imported, pytester):
    """Runs a test with this body, among traces of one run whose times differ by a factor."""
    trace = trace_file.load(RECORDED)
    even = trace.runs[0].wall_us.mean() * np.random.default_rng(0).uniform(0.98, 1.02, 60)
    for name, times in {"main": even, "same": even, "slow": even * 1.2, "few": even[:1]}.items():
        run = replace(trace.runs[0], wall_us=times, use=None)
        (pytester.path / f"{name}.trace").write_bytes(trace_file.dumps(replace(trace, runs=(run,))))

    def run(body, *options):
        pytester.makepyfile(f"def test_speed(tracer):\n    {body}\n")
        plugin = () if IS_INSTALLED else ("-p", "tracer.pytest_plugin")
        return pytester.runpytest_inprocess(*plugin, *options, plugins=[imported])

    return run


def test_the_package_registers_the_plugin():
    registered = tomllib.loads(Path("pyproject.toml").read_text())["project"]["entry-points"]
    assert registered == {"pytest11": {"tracer": "tracer.pytest_plugin"}}


def test_pytest_loads_nothing_heavy_for_it():
    code = "import sys, tracer.pytest_plugin; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "pandas", "onnx", "onnxruntime", "rich"} & set(done.stdout.split())


@pytest.mark.nightly
def test_a_model_as_fast_passes_and_the_verdict_is_in_the_xml(suite, pytester):
    body = 'assert tracer.check("same.trace", against="main.trace", report="s.html").passed'
    suite(body, "--junitxml=all.xml").assert_outcomes(passed=1)
    (property_,) = ElementTree.parse(pytester.path / "all.xml").iter("property")
    assert property_.get("name") == "tracer --fail-above 5%"
    assert property_.get("value").startswith("pass: same.trace is as fast as main.trace (between")
    assert (pytester.path / "s.html").read_text().startswith("<!doctype html>")


def test_a_slower_model_fails_with_its_layers_and_the_interval(suite):
    result = suite('tracer.check("slow.trace", against="main.trace", max_slowdown=0.1)')
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([
        "FAIL: slow.trace is 20.0% slower than main.trace (between +*%, allowed +10.0%)",
        "*By layer, the largest change in time first*",
    ])  # fmt: skip
    assert "pytest_plugin.py" not in result.stdout.str()  # the tables are the message


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ('tracer.check("slow.trace", against="main.trace", max_slowdown=0.3)', "passed"),
        ('tracer.check("slow.trace", against="main.trace", max_slowdown=None)', "passed"),
        ('tracer.check("same.trace", against="main.trace", within=0.05)', "passed"),
        ('tracer.check("main.trace", against="slow.trace", within=0.05)', "failed"),
    ],
)
def test_the_gates_are_those_of_compare(suite, body, outcome):
    suite(body).assert_outcomes(**{outcome: 1})


@pytest.mark.nightly
def test_too_few_runs_are_undecided_which_is_no_pass(suite):
    result = suite('tracer.check("few.trace", against="main.trace")')
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["undecided: few.trace has too few runs*"])


def test_models_are_run_and_their_values_compared(suite, pytester):
    model = residual()
    onnx.save(model, pytester.path / "a.onnx")
    weights = model.graph.initializer[0]
    doubled = onnx.numpy_helper.to_array(weights) * 2
    weights.CopyFrom(onnx.numpy_helper.from_array(doubled, weights.name))
    onnx.save(model, pytester.path / "b.onnx")
    check = 'from tracer import SideSettings; tracer.check("{}.onnx", against="a.onnx", {})'
    quick = "max_slowdown=100, settings=SideSettings(threads=1, sessions=4, precision=1.0)"
    suite(check.format("a", quick)).assert_outcomes(passed=1)
    result = suite(check.format("b", quick))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["FAIL: b.onnx computes other values"])
    suite(check.format("b", f"values=False, {quick}")).assert_outcomes(passed=1)


def test_a_model_that_is_missing_is_an_error_of_the_test(suite):
    result = suite('tracer.check("none.onnx", against="main.trace")')
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*InputError: none.onnx: no such file*"])


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ('max_slowdown="5%"', "UsageError: max_slowdown is '5%'. Give a share, 0.05 for 5 %, *"),
        ("within=-1", "UsageError: within is -1. *"),
        ('report="none/s.html"', "InputError: none/s.html: the folder */none does not exist. *"),
        ('report="s.nothing"', "UsageError: s.nothing: the extension names no format. *"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_before_models_are_run_and_without_frames(suite, argument, message):
    result = suite(f'tracer.check("none.onnx", against="none.onnx", {argument})')
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([message])
    assert "pytest_plugin.py" not in result.stdout.str()
