"""The first release or file with a fault: planted ones, and releases that never were."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import junitparser
import numpy as np
import onnx
import onnxruntime
import pytest

import tracer
import tracer.cli
from tests.graphs import parse, residual
from tests.releases import plant_release
from tracer.analyzers.compare import compare
from tracer.analyzers.compare.bisection import Attempts, Round, bisection
from tracer.analyzers.compare.sides import measured_side
from tracer.api.compare import SideSettings
from tracer.errors import InputError, UsageError
from tracer.executors.releases import releases_of
from tracer.records.trace import Turns
from tracer.storage import trace_file

QUICK = SideSettings(threads=1, sessions=4, precision=1.0)
POOL = 2  # among the kernels of the trace

SLOW = """
import time as _time
_run = InferenceSession.run
def _slow(self, *arguments):
    end = _time.perf_counter() + 0.0004
    while _time.perf_counter() < end:
        pass
    return _run(self, *arguments)
InferenceSession.run = _slow
"""
OTHER_VALUES = """
_values = InferenceSession.run
InferenceSession.run = lambda self, *arguments: [
    1.5 * each if each.dtype.kind == "f" else each for each in _values(self, *arguments)]
"""
REFUSES = """
def _refuse(self, *arguments, **named):
    raise RuntimeError("this release knows no such model")
InferenceSession.__init__ = _refuse
"""
DIES = """
import os as _os
InferenceSession.__init__ = lambda self, *arguments, **named: _os.abort()
"""


@pytest.fixture
def model(tmp_path):
    onnx.save(residual(), tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


@pytest.fixture
def plant(tmp_path, monkeypatch):
    """Makes releases by version, as v1_30_7, each of the installed onnxruntime and further code."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")

    def made(**code_by_version):
        for name, code in code_by_version.items():
            plant_release(name.strip("v").replace("_", "."), code)

    return made


@pytest.fixture(scope="module")
def trace():
    return trace_file.load("tests/fixtures/traces/profile.trace")


def planted(trace, factors, noise=0.01, seed=0):
    """What is found of models whose pooling takes these times those of the first."""
    chance, run = np.random.default_rng(seed), trace.runs[0]
    kernels = tuple(kernel.name for kernel in run.kernels)
    sides = []
    for place, factor in enumerate(factors):
        sessions, blocks = [], []
        for _ in range(12):
            speed = chance.normal(1, noise)
            samples = speed * np.full((4, 5, len(kernels)), 100.0)
            samples *= chance.normal(1, 0.1 * noise, samples.shape)
            samples[..., POOL] *= factor
            whole = samples.sum(axis=2)
            sessions.append(Turns(kernels, samples, whole, whole[0], None))
            blocks.append(whole.mean(axis=1))
        sides.append(measured_side(f"1.{place}", trace, sessions, blocks))
    names = [side.label for side in sides]
    places = tuple(range(len(sides)))
    tried = Attempts(names, dict.fromkeys(places, ""), [Round(places, compare(sides))], {})
    return bisection("m.onnx", "release", tried, ["slower"], 0.02)


def of_whole(result):
    return result.table[result.table["layer"] == "(whole run)"].set_index("name")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("at", [1, 3, 5])
def test_the_first_slower_one_and_its_layer_are_named(trace, at):
    result = planted(trace, [1.0] * at + [2.0] * (6 - at))
    (found,) = result.findings
    assert (found.name, found.before) == (f"1.{at}", f"1.{at - 1}")
    row, kernels = of_whole(result).loc[f"1.{at}"], len(trace.runs[0].kernels)
    assert row["ratio_low"] <= 1 + 1 / kernels <= row["ratio_high"]
    slower = result.table[result.table["significant"] & (result.table["layer"] != "(whole run)")]
    (name,) = set(slower["name"])
    (layer,) = set(slower["layer"])
    assert name == found.name and layer == trace.runs[0].kernels[POOL].name
    assert layer in found.text


@pytest.mark.nightly
def test_what_is_always_the_same_is_not_called_slower(trace):
    results = [planted(trace, [1.0] * 6, seed=seed, noise=0.03) for seed in range(10)]
    assert sum(bool(result.faults) for result in results) <= 1
    assert "no release is slower than the one before" in results[0].findings[0].text
    marked = sum(result.table["significant"].any() for result in results)
    assert marked <= 1  # of each, the chance is 1 %


def test_a_layer_that_alone_is_slower_is_named(trace):
    result = planted(trace, [1.0, 1.1], noise=0.002)  # of ten kernels, so the run by 1 %
    (found,) = result.findings
    assert not found.name
    assert "no release is slower" in found.text
    assert "; the layer node_max_pool2d (MaxPool) is, in 1.1: 1.10 times" in found.text


@pytest.mark.nightly
def test_what_chance_may_have_made_is_not_called_the_same(trace):
    result = planted(trace, [1.0, *[1.5] * 5], noise=0.04, seed=9)  # each run by 5 %
    (found,) = result.findings
    assert found.text.startswith("not certain: 1.1 takes ") and not found.name


def test_one_that_becomes_faster_is_no_fault(trace):
    result = planted(trace, [1.0, 1.0, 0.5, 0.5])
    assert not result.faults and of_whole(result).loc["1.2", "significant"]


def test_a_change_that_goes_away_again_is_in_the_table(trace):
    result = planted(trace, [1.0, 1.0, 2.0, 1.0, 1.0])
    assert [each.name for each in result.faults] == ["1.2"]
    assert of_whole(result)["significant"].tolist() == [False, False, True, True, False]


def test_small_steps_that_add_up_are_told_as_such(trace):
    kernels = len(trace.runs[0].kernels)
    result = planted(trace, [1 + 0.015 * kernels * step for step in range(6)], noise=0.002)
    (found,) = result.findings
    assert (found.name, found.before) == ("1.5", "1.0")
    assert found.text.startswith("slower by small steps")


def test_a_row_that_was_broken_off_says_so(trace):
    result = planted(trace, [1.0, 1.0])
    assert not result.is_incomplete and "1.1" in result._repr_html_()
    assert replace(result, notes=("incomplete: interrupted",)).is_incomplete


def test_values_of_a_quantised_model_are_not_judged(capfd):
    files = ("models/lenet/lenet.onnx", "models/lenet/lenet.int8.onnx")
    quick = ("--sessions", "4", "--precision", "100%", "--threads", "1")
    code = tracer.cli.main(["bisect", *files, "--fault", "values", *quick, "--json"])
    found = json.loads(capfd.readouterr().out)
    (finding,) = found["findings"]
    assert (code, finding["name"]) == (0, "")
    assert finding["text"] == "not known: lenet.int8.onnx is quantised and the other is not"
    told = {row["name"]: row["values"] for row in found["rows"] if row["layer"] == "(whole run)"}
    assert told["lenet.int8.onnx"] == "not judged"


@pytest.mark.nightly
def test_each_fault_is_found_in_releases_that_have_it(model, plant, capfd, tmp_path):
    plant(v1_0_1="", v1_0_2="", v1_0_4=OTHER_VALUES, v1_0_5=REFUSES, v1_0_6=DIES)
    files = [part for name in ("b.json", "b.csv", "b.md", "b.junit.xml")
             for part in ("-o", str(tmp_path / name))]  # fmt: skip
    code = tracer.cli.main(["bisect", model, "--ort", "1.0.1:1.0.6", "--every", "--threads", "1",
                            "--fault", "values,crash", "--sessions", "4", "--precision", "100%",
                            *files])  # fmt: skip
    out = " ".join(capfd.readouterr().out.replace("\\\n", "").split())  # a long line goes on
    assert code == 1
    found = json.loads((tmp_path / "b.json").read_text())
    named = {each["fault"]: (each["before"], each["name"]) for each in found["findings"]}
    assert named == {"values": ("1.0.2", "1.0.4"), "crash": ("1.0.4", "1.0.5")}
    errors = {row["name"]: row["error"] for row in found["rows"] if row["layer"] == "(whole run)"}
    assert "this release knows no such model" in errors["1.0.5"]
    assert "SIGABRT" in errors["1.0.6"]
    assert [errors[f"1.0.{patch}"] for patch in (1, 2, 4)] == [""] * 3
    assert f"tracer compare {model}@ort==1.0.2 {model}@ort==1.0.4 --threads 1" in out
    suite = junitparser.JUnitXml.fromfile(str(tmp_path / "b.junit.xml"))
    assert suite.failures == 2
    assert "1.0.4" in (tmp_path / "b.md").read_text()


@pytest.mark.nightly  # it times runs, which a busy machine may hide
def test_a_slower_release_is_found(model, plant):
    plant(v1_0_1="", v1_0_2="", v1_0_3=SLOW, v1_0_4=SLOW)
    result = tracer.bisect([model], ort="1.0.1:1.0.4", every=True, settings=QUICK)
    (found,) = result.faults
    assert (found.before, found.name) == ("1.0.2", "1.0.3")


def broken():
    """A model that onnxruntime opens and cannot run."""
    return parse(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[1,4] x) => (float[1,4] y) <int64[1] at = {9}> {
            taken = Gather<axis = 1>(x, at)
            y = Add(x, taken)
        }"""
    )


@pytest.mark.nightly
def test_of_a_long_row_the_neighbours_of_a_change_are_measured(tmp_path):
    files = [tmp_path / f"epoch{number}.onnx" for number in range(9)]
    for number, path in enumerate(files):
        onnx.save(broken() if number >= 4 else residual(), path)
    result = tracer.bisect(files, faults=["crash"], settings=QUICK)
    (found,) = result.faults
    assert (found.before, found.name) == ("epoch3.onnx", "epoch4.onnx")
    assert "indices element out of data bounds" in found.text
    assert not result.unmeasured and len(result.table) == len(files)


NET = """
import chainer

print("loaded")

class Net(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.layer = chainer.links.Linear(4, 4)

    def forward(self, x):
        return {body}
"""


@pytest.mark.nightly
@pytest.mark.needs("chainer")
def test_the_first_revision_that_cannot_be_exported_is_found(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    git = ["git", "-c", "user.name=n", "-c", "user.email=n@example.org"]
    subprocess.run([*git, "init", "-q", "."], check=True)
    for number, body in enumerate(["self.layer(x)", "self.layer(x)", "self.lair(x)"]):
        Path("net.py").write_text(NET.format(body=body) + f"# {number}\n")
        subprocess.run([*git, "add", "net.py"], check=True)
        subprocess.run([*git, "commit", "-q", "-m", f"{number}"], check=True)
    told = subprocess.run([*git, "rev-parse", "HEAD~1", "HEAD"], capture_output=True, text=True)
    capfd.readouterr()
    settings = replace(QUICK, input_shape=(1, 4))
    result = tracer.bisect(["net.py:Net"], good="HEAD~2", faults=["crash"], settings=settings)
    (found,) = result.faults
    assert [found.before, found.name] == [each[:9] for each in told.stdout.split()]
    assert "lair" in found.text and str(tmp_path) not in found.text
    assert not capfd.readouterr().out
    trees = subprocess.run([*git, "worktree", "list"], capture_output=True, text=True)
    assert len(trees.stdout.splitlines()) == 1
    with pytest.raises(InputError, match="git rev-list: "):
        tracer.bisect(["net.py:Net"], good="v9")


@pytest.mark.nightly
def test_the_error_of_the_first_is_raised_where_none_runs(tmp_path):
    files = [tmp_path / "a.onnx", tmp_path / "b.onnx"]
    for path in files:
        onnx.save(broken(), path)
    with pytest.raises(InputError, match="indices element out of data bounds"):
        tracer.bisect(files)


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("text", "every", "versions"),
    [
        ("1.2:1.4", False, ["1.2.1", "1.3.0", "1.4.10"]),
        ("1.2:1.4", True, ["1.2.0", "1.2.1", "1.3.0", "1.4.9", "1.4.10"]),
        ("1.3:1.4.9", False, ["1.3.0", "1.4.9"]),
        (":1.3", False, ["1.2.1", "1.3.0"]),
        ("1.4.9,1.2.0", False, ["1.2.0", "1.4.9"]),
    ],
)
def test_a_range_has_the_newest_of_each_minor_version(tmp_path, monkeypatch, text, every, versions):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for version in ("1.4.10", "1.2.0", "1.4.9", "1.2.1", "1.3.0", "1.5.0", "1.4.11.dev3"):
        (wheels / f"onnxruntime-{version}-py3-none-any.whl").touch()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    assert [each.version for each in releases_of(text, every)] == versions


@pytest.mark.nightly
def test_without_an_index_a_range_has_what_was_downloaded(plant):
    plant(v1_0_1="", v1_1_0="")
    installed = onnxruntime.__version__
    assert [each.version for each in releases_of("1.0:")] == ["1.0.1", "1.1.0", installed]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("sides", "ort", "message"),
    [
        (["m.onnx"], "7.1:7.2", "names 0 of the releases"),
        (["m.onnx"], "1.17.3", "is one release"),
        (["m.onnx"], "new", "'new' is no release"),
        (["m.onnx"], None, "one file alone has no history"),
        (["m.onnx", "m.onnx"], "1.0:", "^ort runs one model in several releases"),
        (["m.onnx@interpreter", "m.onnx"], None, "does not run in onnxruntime"),
    ],
)
def test_what_is_no_row_is_refused(model, plant, monkeypatch, sides, ort, message):
    monkeypatch.chdir(Path(model).parent)
    with pytest.raises(UsageError, match=message):
        tracer.bisect(sides, ort=ort)
