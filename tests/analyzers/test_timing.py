"""The arithmetic of the timing columns, on a run made by hand: a clock that never varies."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tracer.analyzers import timing
from tracer.analyzers.grouping import grouped
from tracer.analyzers.views.page import time_text
from tracer.analyzers.views.trace import headline
from tracer.graph.tensor_type import TensorType
from tracer.records.columns import INTERMEDIATE
from tracer.records.counted_runs import MachineUse, Usage
from tracer.records.trace import Kernel, Run, typed_table


def kernel(name, calls=1.0):
    kind = (TensorType("float32", (2,)),)
    return Kernel(name, "Op", "", "cpu", None, "", ("x",), ("y",), (), kind, kind, calls)


def run(samples, calls=(1.0, 1.0, 1.0), bias=2.0, wall=60.0):
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
    assert table.loc["n1", ["time_us_raw", "calls"]].tolist() == [10, 3]
    assert table.loc["n1", "time_us"] == pytest.approx(4, rel=0.02)
    assert table.loc["n2", ["time_us", "time_us_p50", "time_us_min"]].tolist() == [18, 18, 18]


def test_a_fused_kernel_tells_its_time_once_and_its_name_everywhere():
    table = timing.timing(run([[10, 20, 5]] * 4), GROUPS)
    assert table.loc["n3", "kernels"] == table.loc["n2", "kernels"] == "b"
    assert np.isnan(table.loc["n3", "time_us"])


def test_a_kernel_of_the_runtime_has_a_row_of_its_own_and_shares_add_up():
    table = timing.timing(run([[10, 20, 5]] * 4), GROUPS)
    assert table.loc["runtime:c", "time_us"] == pytest.approx(3)
    assert table["time_share"].sum() == pytest.approx(1)


def test_kernels_of_one_node_add_up():
    table = timing.timing(run([[10, 20, 5]] * 4), (("n1",), ("n1",), ("n2",)))
    assert table.loc["n1", ["time_us", "time_us_raw", "calls"]].tolist() == [26, 30, 2]
    assert table.loc["n1", "kernels"] == "a; b"


def test_a_node_below_the_bias_has_only_a_bound_and_is_said_to_be_uncertain():
    made = run([[1, 20, 5]] * 4)
    table = timing.timing(made, GROUPS)
    row = table.loc["n1"]
    assert 0 == row["time_us_ci95_low"] < row["time_us"] < row["time_us_ci95_high"]
    assert row["time_us"] < 0.5
    unknown = ["time_share", "time_us_p50", "time_us_p95", "time_us_min", "time_us_std"]
    assert row[unknown].isna().all()
    assert table.loc["n2", unknown].notna().all()
    assert any(
        "1 of 3 rows cannot be separated from profiler overhead" in note
        for note in timing.notes(made, GROUPS)
    )


def test_a_disturbed_run_is_left_out_and_said_to_be():
    made = run([[10, 20, 5]] * 30 + [[10, 9000, 5]])
    table = timing.timing(made, GROUPS)
    assert table.loc["n2", "time_us_raw"] == 20
    assert any(
        "1 of 51 runs, profiled and unprofiled, is left out" in note
        for note in timing.notes(made, GROUPS)
    )


def test_coverage_is_node_time_over_wall():
    made = run([[10, 20, 5]] * 4, wall=58.0)
    assert timing.coverage(made, timing.timing(made, GROUPS)) == pytest.approx(29 / 58)
    same = dict.fromkeys(("mean", "p50", "p90", "p95", "p99", "min", "max"), 58)
    assert timing.wall(made) == {**same, "std": 0}


def test_overhead_is_raised_to_fit_the_run_up_to_twice_and_what_is_left_is_said():
    made = run([[10, 20, 5]] * 4, wall=25.0)
    table = timing.timing(made, GROUPS)
    assert table["time_us"].sum() == pytest.approx(25)
    assert table.loc["n1", "time_us"] == pytest.approx(6.7, abs=0.3)
    assert any("profiler overhead was 1." in note for note in timing.notes(made, GROUPS))
    stalled = run([[10, 20, 5]] * 4, wall=12.0)
    total = timing.timing(stalled, GROUPS)["time_us"].sum()
    assert total > 20  # twice the overhead, and 6 % of the time, explain no more
    (told,) = (note for note in timing.notes(stalled, GROUPS) if "slower in the profiled" in note)
    assert f"the nodes take {total - 12:,.1f} µs more" in told


def test_one_run_has_neither_spread_nor_interval():
    table = timing.timing(run([[10, 20, 5]]), GROUPS)
    assert table.loc[["n1", "n2"], ["time_us_std", "time_us_ci95_low"]].isna().all(axis=None)


def test_whole_microseconds_do_not_make_outliers():
    made = run([[3, 2, 1]] * 11 + [[4, 2, 1]] * 9)
    assert not any("left out" in note for note in timing.notes(made, GROUPS))


def test_what_an_empty_run_takes_is_no_nodes_and_the_rest_is_adjusted_to():
    made = replace(run([[10, 20, 5]] * 4, wall=37.0), empty_us=np.full(20, 7.0))
    table = timing.timing(made, GROUPS)
    assert timing.empty(made) == 7
    assert table["time_us"].sum() == pytest.approx(30)  # not 29, as calibration has it
    far = replace(made, wall_us=np.full(20, 400.0))
    assert timing.timing(far, GROUPS)["time_us"].sum() < 35  # what no kernel took stays with none


def test_a_run_without_nodes_that_takes_longer_than_the_run_is_no_part_of_it():
    """Truth: 2,000 nodes of 1.1 µs, in a run of 3 ms; copies of as many outputs take 4 ms."""
    count = 2000
    made = Run(
        executor="onnxruntime", batch=1, inputs={}, wall_us=np.full(20, 3000.0),
        instrumented_us=np.full(4, 4.4 * count), samples=np.full((4, count), 4.4),
        bias_us=np.full(count, 3.3), empty_us=np.full(20, 4000.0),
        kernels=tuple(kernel(f"k{n}") for n in range(count)),
    )  # fmt: skip
    table = timing.timing(made, [(f"n{n}",) for n in range(count)])
    assert table["time_us"].sum() == pytest.approx(1.1 * count, rel=0.02)
    rows = table.assign(node="n", op_type="Op", module=None)
    (rest,) = (line for line in headline.verdict(made, rows) if line.startswith("rest"))
    assert rest.startswith("rest  79") and "without nodes" not in rest


def test_on_a_busy_machine_runs_without_nodes_count_at_full_speed_as_the_others_do():
    """Truth: 37 µs with and 7 without nodes; most runs are slower, as beside other programs."""
    made = run([[10, 20, 5]] * 4)
    walls = 37.0 + 15.0 * (np.arange(40) % 5 > 0)
    use = MachineUse(*(Usage(0 * us, us) for us in (walls, made.instrumented_us)), 2, others=0.5)
    made = replace(made, wall_us=walls, empty_us=walls - 30.0, use=use)
    assert made.counted.is_busy
    assert timing.empty(made) == 7
    assert timing.timing(made, GROUPS)["time_us"].sum() == pytest.approx(30)


def test_an_interval_holds_what_no_number_of_runs_averages_away():
    exact = replace(run([[10, 20, 5]] * 100), bias_us=np.zeros(3))
    coarse = replace(exact, tick_us=1.0)
    off = replace(exact, bias_error_us=np.full(3, 0.5))
    widths = [
        (table["time_us_ci95_high"] - table["time_us_ci95_low"]).loc["n2"]
        for table in (timing.timing(each, GROUPS) for each in (exact, coarse, off))
    ]
    assert widths == pytest.approx([0, 2 * 1.96 / np.sqrt(12), 2 * 1.96 * 0.5], rel=0.03)


def test_replayed_times_are_told_where_all_kernels_of_a_row_were_replayed():
    made = replace(
        run([[10, 20, 5]] * 4, calls=(3.0, 1.0, 1.0)), replayed_us=np.array([2, 9, np.nan])
    )
    table = timing.timing(made, (("n1",), ("n1",), ("n2",)))
    assert table.loc["n1", "time_us_replayed"] == 3 * 2 + 9
    assert np.isnan(table.loc["n2", "time_us_replayed"])
    assert timing.largest(made, (("n1",), ("n2",), ("n2",)), 1) == (1, 2)


def test_undisturbed_runs_that_do_not_fit_the_nodes_are_said_to_be_slower():
    fits = replace(run([[10, 20, 5]] * 4, wall=37.0), empty_us=np.full(20, 7.0))
    assert not any("fit together" in note for note in timing.notes(fits, GROUPS))
    slow = replace(fits, wall_us=np.full(20, 400.0))
    (told,) = (note for note in timing.notes(slow, GROUPS) if "fit together" in note)
    assert "a run without nodes takes 7.0 µs" in told
    inside = tuple(replace(kernel, scope="If_0.then_branch") for kernel in slow.kernels)
    assert not any("fit together" in n for n in timing.notes(replace(slow, kernels=inside), GROUPS))


def test_what_lies_within_the_scatter_of_undisturbed_runs_is_not_put_down_to_the_profiler():
    made = run([[10, 20, 5]] * 4, wall=25.0)
    steady = "times the calibrated overhead"
    assert any(steady in note for note in timing.notes(made, GROUPS))
    noisy = replace(made, wall_us=25.0 + np.tile([-8.0, 8.0], 10))
    assert not any(steady in note for note in timing.notes(noisy, GROUPS))


@pytest.mark.parametrize(
    ("wall", "told"), [(60.0, "(a run without nodes takes"), (20.0, "not measured")]
)
def test_a_rest_below_zero_is_not_printed(wall, told):
    """Some 30 µs of nodes, in runs of their own."""
    made = replace(run([[10, 20, 5]] * 4, wall=wall), empty_us=np.full(20, 7.0))
    table = timing.timing(made, GROUPS).assign(node="n", op_type="Op", module=None)
    (rest,) = (line for line in headline.verdict(made, table) if line.startswith("rest"))
    assert told in rest and "-" not in rest


SHORT = {"Tanh": 0.3, "Max": 1.4}
"""Operators and their true times, as an empty run and runs of one operator alone tell them."""


def short_rows(costs):
    """Folds by operator, and by kernel, rows whose profiler costs so much; 3 µs were calibrated."""
    ops = [op for op in SHORT for _ in range(30)]
    samples = np.tile([SHORT[op] + costs[op] for op in ops], (8, 1))
    made = Run(
        executor="onnxruntime", batch=1, inputs={}, wall_us=np.full(20, sum(map(SHORT.get, ops))),
        instrumented_us=samples.sum(axis=1), samples=samples, bias_us=np.full(60, 3.0),
        kernels=tuple(replace(kernel(f"k{n}"), op_type=op) for n, op in enumerate(ops)),
        empty_us=np.full(20, 0.0),
    )  # fmt: skip
    names = [f"n{n}" for n in range(60)]
    table = timing.timing(made, [(name,) for name in names]).drop(columns=list(INTERMEDIATE))
    nodes = typed_table(table.assign(node=names, index=range(60), op_type=ops))
    return nodes, [grouped(nodes, by, made).set_index("op_type") for by in ("op", "kernel")]


@pytest.mark.parametrize("error", [-0.3, 0.0, 0.3])
def test_the_interval_of_an_operator_holds_its_time_whatever_the_profiler_costs_it(error):
    """The cost of rows of one operator is off by the same amount, so it does not average out."""
    _, tables = short_rows({"Tanh": 3 + error, "Max": 3 - error})
    for folded in tables:
        for op, time in SHORT.items():
            low, high = folded.loc[op, ["time_us_ci95_low", "time_us_ci95_high"]]
            assert low <= 30 * time <= high


def test_a_group_of_bounds_is_a_bound_without_a_share():
    nodes, tables = short_rows({"Tanh": 3.3, "Max": 3.3})
    short = nodes[nodes["op_type"] == "Tanh"]
    assert (short["time_us_ci95_low"] == 0).all()
    for folded in tables:
        row = folded.loc["Tanh"]
        assert row["time_us_ci95_low"] == 0
        assert row["time_us_ci95_high"] == pytest.approx(math.fsum(short["time_us_ci95_high"]))
        assert time_text(row) == f"< {row['time_us_ci95_high']:.2f}"
        assert np.isnan(row["time_share"])
    total = tables[1]["time_us_total"]
    assert np.isnan(total["Tanh"])
    assert total["Max"] == tables[1].loc["Max", "time_us"]
