"""Accumulators with names, which workers share out, have the scores and counts of one process."""

from __future__ import annotations

import pytest

from tests.examples import at_night
from tests.tracer.scaling.conftest import rendered
from tests.tracer.whatif import networks
from tracer.api.whatif import what_if
from tracer.errors import UsageError
from tracer.whatif.options import WhatIfOptions

NAMES = "tc:a100,bfma(16,25,fp32),14(overflow=wrap),two-level(9,4,16)"
OPTIONS = WhatIfOptions(batch=8)


@pytest.mark.nightly
@pytest.mark.parametrize("labels", at_night([True, False], but=[False]))
def test_workers_change_nothing(tmp_path, files, small_shards, labels):
    """Without labels, scores compare with outputs of the model as it is."""
    data = networks.data(tmp_path / "d.npz", samples=41, labels=labels)
    alone, shared = (
        rendered(what_if(files[0], NAMES, data, OPTIONS, cluster=cluster, in_process=True))
        for cluster in (None, "local:2")
    )
    assert shared == alone


def test_random_numbers_are_refused(files):
    model, _, data = files
    with pytest.raises(UsageError, match="rounds by random numbers"):
        what_if(model, "fp32,e5m7(sr=1)", data, OPTIONS, cluster="local:1", in_process=True)
