"""Weights beside a model are those of the process that shares the work, or are refused."""

from __future__ import annotations

import onnx
import pytest

from tests.tracer.scaling.conftest import asked
from tests.tracer.whatif import networks
from tracer.accumulators.spec.policy import as_policy
from tracer.errors import InputError
from tracer.graph import loading
from tracer.inputs.datasets.opening import open_dataset
from tracer.scaling.pool import Shard, Task, opened_pool
from tracer.whatif.criteria import checked_metric
from tracer.whatif.reuse import StoredBatches
from tracer.whatif.shard_runs import Arithmetic, EvaluationJob, MetricJob


@pytest.fixture
def apart(tmp_path):
    """The network with its weights in a file beside it, data, and a way to change a weight."""
    path = networks.model(tmp_path / "whole.onnx")
    onnx.save(
        onnx.load(path), tmp_path / "m.onnx", save_as_external_data=True, location="m.weights",
        size_threshold=0, convert_attribute=False,
    )  # fmt: skip
    path.unlink()

    def change():
        file = tmp_path / "m.weights"
        stored = bytearray(file.read_bytes())
        stored[:100] = bytes(value ^ 64 for value in stored[:100])
        file.write_bytes(stored)

    return tmp_path / "m.onnx", networks.data(tmp_path / "d.npz", samples=24), change


@pytest.mark.nightly
def test_a_worker_finds_the_weights_from_any_folder(apart, monkeypatch):
    model, data, _ = apart
    monkeypatch.chdir(model.parent)
    files = (model.name, "9:14", data.name)
    assert asked(files, "local:1") == asked(files)


def test_a_worker_with_other_weights_is_refused(apart):
    path, data, change = apart
    model = loading.load(path)
    dataset = open_dataset(data, model)
    batches = StoredBatches(dataset, 8)
    evaluation = EvaluationJob(
        Arithmetic(model, as_policy(14)), batches, checked_metric(model, dataset, None)
    )
    with opened_pool("local:1") as pool:
        tasks = [
            Task(pool.share(evaluation), "measure", (Shard(0, 1),)),
            Task(pool.share(MetricJob(batches, None)), "metric", ()),
        ]
        change()
        for task in tasks:
            with pytest.raises(InputError, match=r"the weights in m\.weights are not those"):
                pool.submit(task).result(60)


@pytest.mark.nightly
def test_evaluations_of_other_weights_are_not_taken_from_a_trace(apart, tmp_path):
    model, data, change = apart
    trace = tmp_path / "w.trace"
    first = asked((model, "9:14", data), trace=trace)
    change()
    with pytest.raises(InputError, match="weights"):
        asked((model, "9:14", data), trace=trace)
    assert asked((model, "9:14", data)) != first
