"""A model that workers calibrated is the model that one process calibrated."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tracer.scaling.conftest import ROOT
from tracer.api.quantize import quantize
from tracer.errors import UsageError
from tracer.quantization import static
from tracer.quantization.options import QuantizationOptions

LENET = ROOT / "models" / "lenet" / "lenet.onnx"


@pytest.fixture
def data(tmp_path):
    random = np.random.default_rng(5)
    path = tmp_path / "d.npz"
    np.savez(path, x=random.normal(0, 1, (30, 3, 32, 32)).astype(np.float32))
    return path


@pytest.mark.parametrize("batch", [4, 30])  # eight batches, and one
def test_workers_that_calibrate_change_nothing(data, small_shards, monkeypatch, batch):
    asked = []
    real = static.shared_ranges

    def counted(*arguments):
        asked.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(static, "shared_ranges", counted)
    alone, shared = (
        quantize(LENET, data, batch=batch, cluster=cluster, in_process=True)
        for cluster in (None, "local:2")
    )
    assert len(asked) == 1
    assert shared.proto.SerializeToString(deterministic=True) == alone.proto.SerializeToString(
        deterministic=True
    )
    assert (shared.layers, shared.accuracy) == (alone.layers, alone.accuracy)


def test_ranges_that_do_not_fold_are_refused(data):
    options = QuantizationOptions(method="entropy")
    with pytest.raises(UsageError, match="ranges by entropy"):
        quantize(LENET, data, options=options, cluster="local:1", in_process=True)
