"""Counts of overflows of data that workers share are those of one process."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tracer.scaling.conftest import ROOT
from tracer.api.interpret import interpret
from tracer.errors import UsageError
from tracer.inputs.request import Samples

LENET = ROOT / "models" / "lenet" / "lenet.onnx"


def counted(model, data, cluster=None, **named):
    """The run of all data in narrow accumulators."""
    trace = interpret(model, inputs=Samples(str(data)), cluster=cluster, in_process=True, **named)
    (run,) = trace.runs
    return trace, run


COLUMNS = [
    "node", "op_type", "calls", "outputs", "overflow_outputs", "saturation_events", "acc_min",
    "acc_max", "bits_observed", "bits_guaranteed", "max_abs_error", "energy",
]  # fmt: skip


def untimed(trace):
    """Columns of the node table that are no times, in the order of the model."""
    return trace.nodes.sort_values("index")[COLUMNS].reset_index(drop=True)


@pytest.mark.parametrize("batch", [8, 90])  # twelve batches, and one
def test_counts_extremes_and_notes_are_those_of_one_process(files, small_shards, batch):
    model, _, data = files
    (alone_trace, alone), (trace, run) = (
        counted(model, data, cluster, accumulator=11, batch=batch) for cluster in (None, "local:2")
    )
    assert [each.node for each in run.sums] == [each.node for each in alone.sums]
    for mine, other in zip(run.sums, alone.sums, strict=True):
        assert mine.tally == other.tally
        assert mine.guaranteed == other.guaranteed
        np.testing.assert_array_equal(mine.guaranteed_channels, other.guaranteed_channels)
    assert (run.notes, run.inputs, run.batch) == (alone.notes, alone.inputs, alone.batch)
    assert run.samples.shape == alone.samples.shape
    assert run.kernels == alone.kernels
    assert untimed(trace).equals(untimed(alone_trace))


@pytest.mark.nightly
def test_samples_are_in_the_order_of_the_data(files, small_shards):
    model, _, data = files
    _, alone = counted(model, data, accumulator=11, by_sample=True)
    _, run = counted(model, data, "local:2", accumulator=11, by_sample=True)
    mine, other = run.sums_by_sample, alone.sums_by_sample
    assert mine.nodes == other.nodes
    for name, values in other.arrays().items():
        np.testing.assert_array_equal(mine.arrays()[name], values)
    assert other.overflow_outputs.any()


@pytest.mark.nightly
def test_errors_of_float_accumulators_are_those_of_one_process(tmp_path, small_shards):
    data = tmp_path / "d.npz"
    np.savez(data, x=np.random.default_rng(0).random((20, 3, 32, 32), np.float32))
    runs = [
        counted(LENET, data, cluster, accumulator="fp16", batch=4)[1]
        for cluster in (None, "local:2")
    ]
    tallies = [{each.node: each.tally for each in run.float_sums} for run in runs]
    assert tallies[0] == tallies[1]
    assert len(tallies[0]) > 3


def test_what_workers_do_not_share_out_is_refused(files):
    model, _, data = files
    for named, message in (
        ({}, "one batch is timed here"),
        ({"accumulator": 11, "receive": print}, "not the inputs and outputs"),
        ({"accumulator": "e5m7(sr=1)"}, "rounds by random numbers"),
    ):
        with pytest.raises(UsageError, match=message):
            counted(model, data, "local:1", **named)
