"""What views show of a kernel that several nodes share."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

import tracer
from tests import nets
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views import render, terminal
from tracer.analyzers.views.page import Page
from tracer.analyzers.views.trace import run_tables
from tracer.analyzers.views.trace.headline import sections
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


def test_the_time_of_rows_that_are_left_out_is_told_with_those_below_the_resolution():
    trace = tracer.profile(nets.mlp(), runs=2, warmup=0, threads=1, optimization="none")
    (section,) = sections(trace)
    nodes, options = section.nodes.copy(), ViewOptions(top=1)
    timed = nodes["time_us"].notna()
    first = nodes.index[timed][0]
    nodes["time_us"] = nodes["time_us"].mask(timed, 1.0)
    nodes.loc[first, "time_us"] = 2.0
    nodes["time_share"] = float("nan")  # a row below the resolution has none
    nodes.loc[first, "time_share"] = 2 / nodes["time_us"].sum()
    console = Console(file=io.StringIO(), width=120)
    tables = tuple(run_tables.tables(trace, replace(section, nodes=nodes), options))
    terminal.show(Page(tables), options, console)
    rows = int(timed.sum())
    told = f"… {rows - 1} more ({(rows - 1) / (rows + 1):.1%} of the time)"
    assert told in console.file.getvalue()
