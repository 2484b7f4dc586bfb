"""The names that users import: all there, and the old ones with a warning."""

import inspect
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tracer
from tracer import quantization
from tracer.quantization import bit_reduction
from tracer.records.result import Result

FUNCTIONS = [name for name in tracer.__all__ if inspect.isfunction(getattr(tracer, name))]
SUBSYSTEMS = {
    "matplotlib", "sqlite3", "torch", "tracer.accumulators.emulation",
    "tracer.accumulators.spec.accumulator", "tracer.accumulators.statistics.partial_sums",
    "tracer.analyzers.views.exchange", "tracer.analyzers.views.report",
    "tracer.inputs.datasets.opening", "tracer.storage", "tracer.whatif",
}  # fmt: skip
"""What few commands need: accumulators, data sets, plots, files of other programs and our own."""
CONTAINED = sorted({*FUNCTIONS} - {"load", "merge", "save"})


def test_every_job_of_the_command_line_is_a_function():
    jobs = {"profile", "compare", "bisect", "count", "fusions", "interpret", "export", "quantize",
            "what_if", "narrow", "tune", "fingerprint", "replay", "reveal", "extract",
            "diff"}  # fmt: skip
    assert jobs | {"load", "merge", "save", "sweep", "profile_framework", "compare_bits"} == set(
        FUNCTIONS
    )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_has_a_module_of_its_own_and_says_what_it_raises(name):
    function = getattr(tracer, name)
    assert function.__module__.startswith("tracer.api.")
    assert "Raises" in function.__doc__


@pytest.mark.parametrize("name", CONTAINED)
def test_a_function_that_runs_models_can_be_limited_or_kept_in_this_process(name):
    parameters = inspect.signature(getattr(tracer, name)).parameters
    assert parameters["in_process"].default is False
    assert parameters["limits"].default is None
    defaults = [each.default for each in parameters.values() if each.default is not each.empty]
    assert pickle.loads(pickle.dumps(defaults)) == defaults  # else no call would leave it


def test_a_process_that_calls_imports_nothing_heavy_before_its_child_runs():
    script = (
        "import sys, tracer\n"
        f"assert all(callable(getattr(tracer, name)) for name in {CONTAINED})\n"
        "print(sorted({'numpy', 'onnx', 'pandas', 'onnxruntime'} & sys.modules.keys()))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_no_module_of_the_api_imports_a_compiler_or_a_framework():
    folder = Path(tracer.__file__).parent / "api"
    names = sorted(path.stem for path in folder.glob("[!_]*.py") if path.stem != "__init__")
    within = sorted(path.stem for path in folder.glob("_[!_]*.py"))
    script = (
        "import sys, importlib\n"
        f"for name in {names + within}: importlib.import_module(f'tracer.api.{{name}}')\n"
        "print(sorted({'numba', 'torch', 'matplotlib', 'sklearn', 'distributed'} & "
        "sys.modules.keys()))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("command", "unused"),
    [
        (("profile", "--runs", "5", "--no-roofline"), "tracer.quantization.from_qonnx"),
        (("count",), "onnxruntime"),
    ],
    ids=lambda case: case[0] if isinstance(case, tuple) else None,
)
def test_a_command_imports_no_subsystem_that_it_does_not_use(command, unused):
    name, *options = command
    script = (
        "import os, sys\n"
        "os.environ['TRACER_IN_PROCESS'] = '1'\n"
        "from tracer.cli import main\n"
        f"assert main([{name!r}, 'models/lenet/lenet.onnx', *{options}]) == 0\n"
        "print('modules:', *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.rpartition("modules:")[2].split())
    assert "tracer.analyzers.cost" in loaded  # it ran in that process
    assert loaded & {unused, *SUBSYSTEMS} == set()


def test_modules_that_moved_are_still_reached_by_their_old_names():
    with pytest.warns(DeprecationWarning, match=r"tracer\.comparison is now tracer\.api\.compare"):
        assert tracer.comparison.compare is tracer.compare
    with pytest.warns(DeprecationWarning):
        assert "time_us" in tracer.trace.COLUMNS
    with pytest.warns(DeprecationWarning, match=r"widths is now .*bit_reduction"):
        assert quantization.widths.narrow is bit_reduction.narrow


def test_a_saved_count_is_loaded_again(tmp_path):
    trace = tracer.count("models/lenet/lenet.onnx")
    assert isinstance(trace, Result)
    assert tracer.save(trace, tmp_path / "c.trace") == tmp_path / "c.trace"
    assert tracer.load(tmp_path / "c.trace").nodes.equals(trace.nodes)


def test_the_options_of_a_what_if_are_still_known_by_their_old_names():
    from tracer.whatif import options

    with pytest.warns(DeprecationWarning, match="Options is now WhatIfOptions"):
        old = options.Options(budget=0.5, limit=10)
    assert old == options.WhatIfOptions(accuracy_budget=0.5, limit=10)


@pytest.mark.parametrize(
    ("function", "name", "record"),
    [("profile", "limit", "inputs=tracer.Samples(limit=…)"),
     ("interpret", "data", "inputs=tracer.Samples(…)"),
     ("export", "force", "options=tracer.ExportOptions(force=…)")],
)  # fmt: skip
def test_an_argument_of_a_record_is_told_by_a_name_that_there_is(function, name, record):
    with pytest.raises(TypeError, match=re.escape(f"'{name}'. Give {record}")):
        getattr(tracer, function)("net.onnx", **{name: 1})
