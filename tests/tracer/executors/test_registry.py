"""The registry of executors: a package in the folder is all it takes to add one."""

import ast
from pathlib import Path

import numpy as np
import pytest

import tracer
from tests.graphs import residual
from tracer import api, executors
from tracer.errors import UsageError
from tracer.executors import registry
from tracer.executors.settings import OrtSettings

ECHO = """
from dataclasses import dataclass, replace

from tracer.executors import registry
from tracer.executors.registry import Executor, Profiled
from tracer.executors.reference.executor import ReferenceSettings
from tracer.graph.model import Model
from tracer.inputs.feedset import FeedSet


@dataclass(frozen=True)
class EchoSettings:
    runs: int = 2
    threads: int = 0


class _Echo:
    settings = EchoSettings

    def profile(self, model, feedset, settings, progress):
        settings = ReferenceSettings(settings.runs, 0, settings.threads)
        run = registry.find("reference").profile(model, feedset, settings, progress).run
        return Profiled(replace(run, executor="echo"))


executor: Executor[Model, FeedSet, EchoSettings] = _Echo()
"""


@pytest.fixture
def echo(tmp_path, monkeypatch):
    package = tmp_path / "echo"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "executor.py").write_text(ECHO)
    monkeypatch.setattr(executors, "__path__", [*executors.__path__, str(tmp_path)])


def test_an_executor_that_was_added_profiles_a_model(echo):
    assert "echo" in registry.names()
    trace = tracer.profile(residual(), executor="echo", runs=3, threads=1)
    assert trace.runs[0].executor == "echo"
    assert trace.runs[0].samples.shape[0] == 3
    assert trace.settings["runs"] == 3
    assert trace.nodes["time_us"].notna().all()
    assert np.isfinite(trace.nodes["macs"].sum())


def test_an_executor_refuses_what_it_cannot_do(echo):
    with pytest.raises(UsageError, match="'echo' has no setting provider"):
        tracer.profile(residual(), executor="echo", provider="cuda")
    with pytest.raises(UsageError, match="'echo' does not optimise graphs"):
        tracer.profile(residual(), executor="echo", replay=1)
    with pytest.raises(UsageError, match="'echo' does not optimise graphs"):
        tracer.fusions(residual(), executor="echo")


def test_every_executor_is_known_by_name():
    assert registry.names() == [
        "chainer",
        "emulated",
        "onnxruntime",
        "openvino",
        "reference",
        "torch",
    ]
    with pytest.raises(UsageError, match="there is no executor 'gpu'") as caught:
        registry.find("gpu")
    assert "onnxruntime" in str(caught.value)


def test_a_setting_that_is_not_set_has_the_default_of_its_executor():
    values = {"runs": 7, "warmup": None, "provider": None}
    assert registry.settings_for("onnxruntime", values) == OrtSettings(runs=7)


def test_the_api_imports_no_executor():
    (folder,) = api.__path__
    paths = sorted(Path(folder).rglob("*.py"))
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text()))]
    plain = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    origins = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    members = [f"{node.module}.{alias.name}" for node in origins for alias in node.names]
    imported = {f"{name}." for name in (*plain, *members)}
    packages = tuple(f"tracer.executors.{name}." for name in registry.names())
    assert len(paths) > 10 and "tracer.executors.registry." in imported
    assert not [name for name in imported if name.startswith(packages)]


def test_an_executor_without_tensors_is_named(echo):
    with pytest.raises(UsageError, match="'echo' does not return the tensors"):
        registry.find_tensors("echo")
    assert registry.find("ort") is registry.find("onnxruntime")
