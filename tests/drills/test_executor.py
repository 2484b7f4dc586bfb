"""The drill of CONTRIBUTING: an executor is a package with a module `executor`."""

import pytest

EXECUTOR = '''
"""Runs nothing and reports 5 µs for every node."""

from dataclasses import dataclass

import numpy as np

from tracer.executors.registry import Executor, Profiled
from tracer.graph.model import Model
from tracer.inputs.feedset import FeedSet
from tracer.records.trace import Kernel, Run
from tracer.containment.activity import Progress
from tracer.support.types import type_text


@dataclass(frozen=True, slots=True)
class SteadySettings:
    """Settings of the executor."""

    runs: int = 3
    warmup: int = 0


class Steady:
    """Reports a constant time."""

    settings = SteadySettings

    def profile(
        self, subject: Model, feeds: FeedSet, settings: SteadySettings, progress: Progress
    ) -> Profiled:
        """Return a run of constant times."""
        kernels = tuple(
            Kernel(node.key, node.op_type, node.domain, "steady", node.key, "", node.inputs,
                   node.outputs, (), (), (), 1.0)
            for node in subject.nodes
        )
        times = np.full((settings.runs, len(kernels)), 5.0)
        wall = times.sum(axis=1)
        inputs = {name: type_text(value) for name, value in feeds.feeds.items()}
        run = Run("steady", feeds.batch, inputs, wall, wall, times, np.zeros(len(kernels)), kernels)
        return Profiled(run)


executor: Executor[Model, FeedSet, SteadySettings] = Steady()
'''


@pytest.mark.nightly
def test_an_executor_takes_one_package_and_no_edit(copy, repository):
    copy.add("tracer/executors/steady/__init__.py", "")
    copy.add("tracer/executors/steady/executor.py", EXECUTOR)
    model = str(repository / "models/lenet/lenet.onnx")
    shown = copy.python(
        f"""
        import tracer

        trace = tracer.profile({model!r}, executor="steady", runs=4)
        assert set(trace.nodes["executor"]) == {{"steady"}}
        assert trace.nodes["macs"].sum() == tracer.count({model!r}).nodes["macs"].sum()
        print(*trace.nodes["time_us"])
        """
    )
    assert {float(time) for time in shown.split()} == {5.0}
    result = copy.run("-m", "mypy", "--strict", "tracer/executors/steady/executor.py",
                      "--config-file", str(repository / "pyproject.toml"))  # fmt: skip
    assert result.returncode == 0, result.stdout
