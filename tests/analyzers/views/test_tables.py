"""What views show of a kernel that several nodes share."""

import pytest

import tracer
from tests import nets
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views import render
from tracer.executors.onnxruntime import calibration


@pytest.fixture(autouse=True)
def no_calibration(monkeypatch):
    monkeypatch.setattr(calibration, "measure", lambda threads: calibration.Bias(0, 0))


def shown(optimization, by):
    trace = tracer.profile(nets.mlp(), runs=2, warmup=0, threads=1, optimization=optimization)
    return render(trace, "md", ViewOptions(by)).decode()


def test_a_fused_kernel_says_how_many_more_nodes_it_holds():
    page = shown("all", "node")
    assert "| fc1\\_mm +2 |" in page
    assert "| fc3\\_mm +1 |" in page


@pytest.mark.nightly
def test_single_nodes_and_folded_rows_bear_plain_names():
    assert "| fc1\\_mm |" in shown("none", "node")
    assert " +" not in shown("none", "node").split("| node |")[1]
    assert "| MatMul+Add |" in shown("all", "op")
