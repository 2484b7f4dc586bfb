"""The arithmetic of the timing columns, on a run made by hand: a clock that never varies."""

import numpy as np
import pytest

from analyzers import timing
from tracer.tensor import TensorType
from tracer.trace import Kernel, Run


def kernel(name, calls=1.0):
    kind = (TensorType("float32", (2,)),)
    return Kernel(name, "Op", "", "cpu", None, "", ("x",), ("y",), (), kind, kind, calls)


def run(samples, calls=(1.0, 1.0, 1.0), bias=2.0, wall=30.0):
    samples = np.array(samples, np.float64)
    return Run(
        executor="onnxruntime",
        batch=1,
        inputs={},
        wall_us=np.full(20, wall),
        instrumented_us=samples.sum(axis=1) + 10,
        samples=samples,
        bias_us=np.full(3, bias),
        kernels=tuple(kernel(n, c) for n, c in zip("abc", calls, strict=True)),
    )


GROUPS = (("n1",), ("n2", "n3"), ())


def test_the_bias_is_taken_off_once_a_call_and_the_raw_value_is_kept():
    table = timing.timing(run([[10, 20, 5]] * 4, calls=(3.0, 1.0, 1.0)), GROUPS)
    assert table.loc["n1", ["time_us", "time_us_raw", "calls"]].tolist() == [4, 10, 3]
    assert table.loc["n2", ["time_us", "time_us_p50", "time_us_min"]].tolist() == [18, 18, 18]


def test_a_fused_kernel_tells_its_time_once_and_its_name_everywhere():
    table = timing.timing(run([[10, 20, 5]] * 4), GROUPS)
    assert table.loc["n3", "kernels"] == table.loc["n2", "kernels"] == "b"
    assert np.isnan(table.loc["n3", "time_us"])


def test_a_kernel_of_the_runtime_has_a_row_of_its_own_and_shares_add_up():
    table = timing.timing(run([[10, 20, 5]] * 4), GROUPS)
    assert table.loc["runtime:c", "time_us"] == 3
    assert table["time_share"].sum() == pytest.approx(1)


def test_kernels_of_one_node_add_up():
    table = timing.timing(run([[10, 20, 5]] * 4), (("n1",), ("n1",), ("n2",)))
    assert table.loc["n1", ["time_us", "time_us_raw", "calls"]].tolist() == [26, 30, 2]
    assert table.loc["n1", "kernels"] == "a; b"


def test_a_node_below_the_bias_is_zero_and_said_to_be():
    made = run([[1, 20, 5]] * 4)
    table = timing.timing(made, GROUPS)
    assert table.loc["n1", "time_us"] == 0
    assert any(
        "1 nodes take less time than the profiler adds" in n for n in timing.notes(made, table)
    )


def test_a_disturbed_run_is_left_out_and_said_to_be():
    made = run([[10, 20, 5]] * 30 + [[10, 9000, 5]])
    table = timing.timing(made, GROUPS)
    assert table.loc["n2", "time_us_raw"] == 20
    assert any("1 of 31 profiled" in note for note in timing.notes(made, table))


def test_coverage_is_node_time_over_wall():
    made = run([[10, 20, 5]] * 4, wall=58.0)
    assert timing.coverage(made, timing.timing(made, GROUPS)) == pytest.approx(29 / 58)
    assert timing.wall(made) == {"mean": 58, "p50": 58, "p95": 58, "min": 58, "std": 0}
