"""The interpreter as an executor: the node table of `tracer profile`."""

import pytest

from tests.graphs import BRANCHES, residual
from tests.interpreter.models import parsed
from tracer.api.count import count
from tracer.api.interpret import interpret
from tracer.storage import trace_file
from tracer.support.files import write_atomically


def test_the_node_table_is_that_of_a_profile():
    ours = interpret(residual(), batch=2, runs=3)
    counted = count(residual(), batch=2)
    assert list(ours.nodes["node"]) == list(counted.nodes["node"])
    for column in ("macs", "params", "output_shapes", "op_type"):
        assert list(ours.nodes[column]) == list(counted.nodes[column])
    assert set(ours.nodes["executor"]) == {"reference"}
    assert set(ours.nodes["batch"]) == {2}
    assert ours.nodes["time_share"].sum() == pytest.approx(1)
    assert (ours.nodes["time_us"] > 0).all()
    assert len(ours.runs[0].wall_us) == len(ours.runs[0].samples) == 3


def test_own_time_of_a_loop_is_without_that_of_its_body(tmp_path):
    import numpy as np

    feeds = {"x": np.ones(4, np.float32), "flag": np.array(False), "trips": np.array(5)}
    np.savez(tmp_path / "f.npz", **feeds)
    trace = interpret(parsed(BRANCHES), inputs=tmp_path / "f.npz", runs=2)
    table = trace.nodes.set_index("node")
    assert table.loc["Loop_1.body/Tanh_2", "calls"] == 5
    assert np.isnan(table.loc["If_0.then_branch/Tanh_0", "time_us"])
    run = trace.runs[0]
    assert (run.samples.sum(axis=1) <= run.instrumented_us).all()


def test_a_trace_of_the_interpreter_is_stored_and_read_again(tmp_path):
    trace = interpret(residual(), runs=2)
    write_atomically(tmp_path / "t.trace", trace_file.dumps(trace))
    again = trace_file.load(tmp_path / "t.trace")
    assert again.runs[0].executor == "reference"
    assert list(again.nodes["time_us"]) == list(trace.nodes["time_us"])
