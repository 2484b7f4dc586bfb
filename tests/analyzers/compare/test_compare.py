"""Tables whose truth is known: what is slower is found, by how much, and where."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest

import tracer
from tests.analyzers.compare.tables import nodes, shaken, side
from tests.graphs import residual
from tracer.analyzers.compare import compare, contrast
from tracer.analyzers.compare import total_table as totals_of
from tracer.analyzers.compare.numbers import Values, numbers
from tracer.analyzers.compare.sides import measured_side, recorded_side
from tracer.analyzers.compare.sweep import WHOLE, sweep
from tracer.analyzers.views import render
from tracer.errors import InputError, UsageError
from tracer.records.trace import Kernel, Turns
from tracer.support import measurements
from tracer.support.tolerance import Tolerance

ROWS = [
    {"op_type": "Conv", "module": "a", "macs": 1000, "flops": 2000, "params": 30},
    {"op_type": "Relu", "module": "a", "macs": 0, "flops": 100, "params": 0},
    {"op_type": "Gemm", "module": "b", "macs": 500, "flops": 1000, "params": 500},
    {"op_type": "Softmax", "module": "c", "macs": 0, "flops": 50, "params": 0},
]
TIMES = [100.0, 10.0, 50.0, 5.0]


def test_the_one_layer_that_is_slower_is_found_and_no_other():
    slower = [100.0, 10.0, 60.0, 5.0]
    comparison = compare([side("a", ROWS, shaken(TIMES)), side("b", ROWS, shaken(slower, seed=1))])
    first = comparison.layers.iloc[0]
    assert first["layer"] == "Gemm_2"
    assert first["ratio_b"] == pytest.approx(1.2, rel=0.02)
    assert first["ratio_low_b"] < 1.2 < first["ratio_high_b"]
    assert first["change_us_b"] == pytest.approx(10, rel=0.1)
    assert list(comparison.layers["significant_b"]) == [True, False, False, False]
    total = comparison.totals.iloc[1]
    assert total["ratio"] == pytest.approx(175 / 165, rel=0.01)
    assert total["significant"]


def test_changes_have_the_unit_that_fits_them_however_wide_their_intervals_are():
    few = [shaken(TIMES, spread=0.2, seed=seed)[:2] for seed in (0, 1)]
    comparison = compare([side(name, ROWS, times) for name, times in zip("ab", few, strict=True)])
    changes = comparison.layers["change_us_b"].abs().max()
    bounds = comparison.layers[["change_low_us_b", "change_high_us_b"]].abs().max()
    assert changes < 200 and bounds.max() > 10_000  # what a unit of ms begins at
    page = render(comparison, "md").decode()
    assert "Δ µs" in page and "Δ ms" not in page and "Δ s" not in page


def test_a_ratio_that_is_not_that_of_the_times_beside_it_is_explained():
    """Turns are compared in pairs, so the median ratio is not the ratio of the medians."""
    one = side("a", ROWS, shaken(TIMES, spread=0))
    a = np.array([100.0, 200.0, 300.0])
    for b, is_said in (([150.0, 210.0, 330.0], True), ([110.0, 220.0, 330.0], False)):
        walls = [contrast.of_blocks([of] * 4) for of in (a, np.array(b))]
        sides = [replace(one, label=n, wall=w) for n, w in zip("ab", walls, strict=True)]
        comparison = compare(sides)
        ratio = comparison.totals["ratio"].iloc[1]
        assert ratio == pytest.approx(np.median(np.array(b) / a))
        assert is_said == (abs(ratio - np.median(b) / np.median(a)) > 0.01)
        assert ("compare runs that took turns" in render(comparison, "md").decode()) == is_said


@pytest.mark.nightly
def test_layers_that_are_slower_in_8_bits_are_named_with_the_measured_loss():
    integer = [row | {"op_type": {"Conv": "QLinearConv", "Gemm": "QGemm"}.get(op, op)}
               for row in ROWS if (op := row["op_type"])]  # fmt: skip
    float_side = side("f", ROWS, shaken(TIMES))
    slower = side("q", integer, shaken([130.0, 12.0, 40.0, 5.0], seed=1))
    (note,) = [n for n in compare([float_side, slower]).notes if "8 bits" in n]
    assert note.startswith("1 layer of q computes in 8 bits and is slower than in floats, by ")
    lost = float(note.partition(", by ")[2].split()[0])
    assert lost == pytest.approx(30, rel=0.1)
    assert re.search(r"Conv_0 \((99\.\d|100) to 1[23]\d µs\)", note)
    faster = side("q", integer, shaken([50.0, 12.0, 40.0, 5.0], seed=1))
    for others in ([float_side, faster], [slower, float_side], [slower, slower]):
        assert not [n for n in compare(others).notes if "8 bits" in n]


def test_layers_come_in_the_order_of_their_change():
    faster = [80.0, 12.0, 55.0, 5.0]
    comparison = compare(
        [side("a", ROWS, shaken(TIMES, spread=0)), side("b", ROWS, shaken(faster, spread=0))]
    )
    assert list(comparison.layers["change_us_b"]) == pytest.approx([-20, 5, 2, 0])


def test_the_same_side_twice_differs_in_nothing():
    one = side("a", ROWS, shaken(TIMES))
    comparison = compare([one, one])
    assert list(comparison.totals["ratio"]) == [1, 1]
    assert not comparison.layers["significant_b"].any()
    assert (comparison.layers["change_us_b"] == 0).all()


def test_a_fused_layer_is_compared_with_the_sum_of_its_parts():
    fused_rows = [{**ROWS[0], "kernels": "k"}, {**ROWS[1], "kernels": "k"}, *ROWS[2:]]
    times = np.array([90.0, np.nan, 50.0, 5.0])
    fused = side("b", fused_rows, np.tile(times, (20, 1)))
    comparison = compare([side("a", ROWS, shaken(TIMES, spread=0)), fused])
    row = comparison.layers.set_index("layer").loc["Conv_0"]
    assert (row["time_us_a"], row["time_us_b"]) == pytest.approx((110, 90))
    assert row["nodes_a"] == row["nodes_b"] == "Conv_0; Relu_1"
    assert row["op"] == "Conv+Relu"


def test_times_and_work_are_kept_whatever_is_grouped():
    extra = [*ROWS, {"op_type": "Erf", "module": "d", "macs": 7, "flops": 9, "params": 0}]
    first = side("a", ROWS, shaken(TIMES))
    second = side("b", extra, shaken([*TIMES, 33.0], seed=2))
    for by in ("layer", "module", "op"):
        comparison = compare([first, second], by)
        table = comparison.layers
        for name, group in zip(table["nodes_b"], comparison.groups, strict=True):
            assert "; ".join(second.nodes["node"].iloc[list(group.rows[1])]) == name
        assert table["time_us_a"].sum() == pytest.approx(first.time_us.sum())
        assert table["time_us_b"].sum() == pytest.approx(second.time_us.sum())
        assert table["macs_b"].sum() == 1507
    alone = compare([first, second]).layers.query("on == 'B'")
    assert list(alone["layer"]) == ["Erf_4"]
    assert alone["change_us_b"].iloc[0] == pytest.approx(33, rel=0.02)
    assert np.isnan(alone["ratio_b"].iloc[0])


def test_three_sides_have_a_table_of_three():
    third = side("c", ROWS, shaken([200.0, 10.0, 50.0, 5.0], seed=3), executor="reference")
    comparison = compare(
        [side("a", ROWS, shaken(TIMES)), side("b", ROWS, shaken(TIMES, seed=4)), third]
    )
    row = comparison.layers.set_index("layer").loc["Conv_0"]
    assert row["ratio_c"] == pytest.approx(2, rel=0.02)
    assert row["significant_c"] and not row["significant_b"]


def test_the_table_of_models_tells_shares_and_speeds():
    backward = [*ROWS, {"op_type": "Gemm (backward)", "module": "b"}]
    sides = [side("a", ROWS, shaken(TIMES, spread=0)),
             side("b", backward, shaken([*TIMES, 165.0], spread=0))]  # fmt: skip
    result = totals_of(sides)
    assert list(result["convolution_share"]) == pytest.approx([100 / 165, 100 / 330])
    assert np.isnan(result["backward_share"].iloc[0])
    assert result["backward_share"].iloc[1] == pytest.approx(0.5)
    assert list(result["macs"]) == [1500, 1500]
    assert result["flops_per_s"].iloc[0] == pytest.approx(1e6 * 3150 / 165)


def test_networks_with_nothing_in_common_are_refused_and_their_totals_are_not():
    other = [{"op_type": op, "output_shapes": "float32[7]"} for op in ("Erf", "Sin", "Cos")]
    sides = [side("a", ROWS, shaken(TIMES)), side("b", other, shaken([1.0, 2.0, 3.0]))]
    with pytest.raises(InputError, match="0 of 4 nodes of a and 0 of 3 of b line up"):
        compare(sides)
    assert compare(sides, "model").layers is None


def test_a_side_on_a_card_has_device_times_and_the_rest_of_its_runs_is_named():
    rows = [{"op_type": "linear"}, {"op_type": "relu"}]
    host = side("net:Net@torch", rows, shaken([50.0, 10.0]), executor="torch")
    card = side("net:Net@torch:cuda", rows, shaken([5.0, 1.0], spread=0.0), executor="torch",
                overhead=34.0)  # fmt: skip
    kernel = Kernel("a", "linear", "", "cuda", "a", "", (), (), (), (), (), 1.0)
    for each, host_us in ((host, None), (card, 4.0)):
        kernels = (replace(kernel, host_us=host_us),) * 2
        each = replace(each, run=replace(each.run, kernels=kernels))
        notes = [note for note in compare([host, each]).notes if "card" in note]
        if host_us is None:
            assert notes == []
        else:
            (note,) = notes
            assert "layers of net:Net@torch:cuda" in note and "6 of 40 µs" in note


def test_one_side_cannot_be_compared():
    with pytest.raises(UsageError, match="from 2 to 26"):
        compare([side("a", ROWS, shaken(TIMES))])


@pytest.fixture(scope="module")
def trace():
    return tracer.profile(residual(), runs=40, threads=1)


def test_a_saved_trace_is_one_side_and_with_itself_no_different(trace):
    comparison = compare([recorded_side("old", trace), recorded_side("new", trace)])
    assert list(comparison.totals["ratio"]) == [1, 1]
    assert comparison.totals["p"].iloc[1] == 1
    assert comparison.layers["time_us_a"].sum() == pytest.approx(trace.nodes["time_us"].sum())
    assert set(comparison.layers["on"]) == {"AB"}


def test_the_errors_of_a_saved_trace_are_those_of_its_runs(trace):
    stats = pytest.importorskip("scipy.stats")
    result, run = recorded_side("old", trace), trace.runs[0]
    summary = measurements.summarize(run.samples[run.counted.profiled], run.tick_us)
    half = dict(zip([k.name for k in run.kernels], summary.ci95_half, strict=True))
    errors = result.error_us * stats.t.isf(0.025, result.dof)
    text = {cell: error for cell, error in zip(trace.nodes["kernels"], errors, strict=True)
            if not np.isnan(error) and cell in half}  # fmt: skip
    assert text == pytest.approx({name: half[name] for name in text})
    assert len(text) > 3
    high = trace.nodes["time_us_ci95_high"] - trace.nodes["time_us"]
    assert (result.systematic_us[high.notna()] > 0).all()


def taken(run, samples_us, wall_us):
    """A session of turns (turns × runs × kernels), each run with its time without a profiler."""
    names = tuple(kernel.name for kernel in run.kernels)
    return Turns(names, samples_us, samples_us.sum(axis=-1), wall_us, run.empty_us)


def test_a_side_that_took_no_turns_has_the_quiet_means_of_its_runs_less_the_profilers_cost(trace):
    result = measured_side("now", trace, [], [])
    total = trace.runs[0].instrumented_us
    raw = trace.runs[0].samples[total <= np.median(total)].mean(axis=0, dtype=np.float64)
    assert np.nansum(result.time_us) <= result.wall.mean + 1e-3  # a nanosecond
    assert (np.isnan(result.time_us) == trace.nodes["time_us"].isna()).all()
    by_kernel = {
        kernel.name: value for kernel, value in zip(trace.runs[0].kernels, raw, strict=True)
    }
    for key, cell, time in zip(
        trace.nodes["node"], trace.nodes["kernels"], result.time_us, strict=True
    ):
        if not np.isnan(time):
            assert 0 <= time <= sum(by_kernel[name] for name in cell.split("; ")) + 1e-3, key
    alone = compare([result, result])
    assert alone.layers["p_b"].isna().all() and not alone.sums


def test_a_turn_is_the_quieter_half_of_its_runs_and_kernels_are_found_by_name(trace):
    run = trace.runs[0]
    count = len(run.kernels)
    quiet, loud = np.full((2, 3, count), 5.0), np.full((2, 2, count), 900.0)
    session = taken(run, np.concatenate([quiet, loud], axis=1), run.wall_us)
    backwards = Turns(
        session.kernels[::-1],
        session.samples_us[..., ::-1] + np.arange(count)[::-1],
        session.profiled_us,
        session.wall_us,
        session.empty_us,
    )
    side = measured_side("now", trace, [session, backwards], [])
    timed = ~np.isnan(side.time_us)
    first, second = side.turns_us
    assert (first[:, timed] == first[0, timed][0]).all() and first[0, timed][0] == 5
    found = dict(zip(side.nodes["kernels"][timed], second[0, timed], strict=True))
    assert found == {kernel.name: 5.0 + place for place, kernel in enumerate(run.kernels)}


def test_a_trace_without_runs_or_with_several_is_asked_about():
    with pytest.raises(InputError, match="holds no run"):
        recorded_side("counted", tracer.count(residual()))
    two = tracer.profile(residual(), batch=[1, 2], runs=2, threads=1)
    with pytest.raises(InputError, match="holds runs of batch 1, 2"):
        recorded_side("two", two)
    assert recorded_side("two", two, 2).run.batch == 2
    with pytest.raises(InputError, match="no run of batch 3"):
        recorded_side("two", two, 3)


def test_a_sweep_divides_by_the_batch_and_by_the_calls():
    def at(batch, times):
        work = [("Conv", 100, 8), ("Conv", 300, 8), ("Reshape", 0, 4 * batch)]
        rows = [
            {"op_type": op, "flops": flops * batch, "bytes_read": moved, "bytes_written": 0}
            for op, flops, moved in work
        ]
        return side("m", rows, np.tile(times, (4, 1)), batch=batch)

    swept = sweep("m", [at(16, [160.0, 160.0, 4.0]), at(1, [30.0, 10.0, 2.0])])
    assert swept.batches == (1, 16)
    rows = swept.table.set_index(["op", "batch"])
    assert rows.loc[("Conv", 16), "sample_us"] == 20
    assert rows.loc[("Conv", 16), "call_us"] == 160
    assert rows.loc[("Conv", 16), "calls"] == 2
    assert rows.loc[("Conv", 16), "time_growth"] == 8
    assert rows.loc[("Conv", 16), "work_growth"] == 16
    assert rows.loc[("Reshape", 16), "work_growth"] == 16  # of bytes, for it has no flops
    assert rows.loc[(WHOLE, 16), "sample_us"] == 324 / 16
    assert swept.table["op"].iloc[0] == "Conv" and swept.table["op"].iloc[-1] == WHOLE


def test_a_sweep_needs_two_batch_sizes():
    with pytest.raises(InputError, match="two batch sizes"):
        sweep("m", [side("m", ROWS, shaken(TIMES))] * 2)


def values(label, arrays, ops=("Conv", "Relu", "Gemm")):
    table = nodes([{"op_type": op, "module": op} for op in ops])
    by_node = dict(zip(table["node"], arrays, strict=True))
    return Values(label, table, [("y", arrays[-1])], by_node)


def test_the_first_layer_that_differs_is_named_and_nan_and_infinity_are_counted():
    arrays = [np.arange(4, dtype=np.float32) + n for n in range(3)]
    other = [array.copy() for array in arrays]
    other[1][2] += 0.5
    other[2][0], other[2][1] = np.nan, np.inf
    comparison = numbers(values("a", arrays), values("b", other), Tolerance())
    assert comparison.first_divergence == "Relu_1"
    rows = comparison.layers.set_index("layer")
    assert rows.loc["Conv_0", ["max_abs", "max_share", "rms_share"]].tolist() == [0, 0, 0]
    assert rows.loc["Relu_1", "max_abs"] == 0.5
    assert rows.loc["Relu_1", "max_share"] == 0.5 / 4  # of 1, 2, 3, 4
    assert rows.loc["Relu_1", "rms_share"] == pytest.approx(0.5 / math.sqrt(30))
    assert rows.loc["Gemm_2", ["nan_a", "nan_b", "inf_a", "inf_b"]].tolist() == [0, 1, 0, 1]
    assert comparison.outputs["fault"].iloc[0]


def test_a_folded_batch_norm_is_no_divergence():
    x = np.arange(4, dtype=np.float32)
    plain = values("a", [x, 2 * x, 2 * x], ("Conv", "BatchNormalization", "Relu"))
    folded = values("b", [2 * x, 2 * x], ("Conv", "Relu"))
    assert numbers(plain, folded, Tolerance()).first_divergence is None


@pytest.mark.nightly
def test_a_clock_of_whole_microseconds_makes_no_difference_certain(trace):
    """Kernels of 2.5 µs on average, told as 2 or 3: where there is no difference, none is found."""
    random, run = np.random.default_rng(0), trace.runs[0]

    def sessions():
        samples = 2.0 + random.integers(0, 2, (12, 7, 5, len(run.kernels)))
        return [taken(run, each, random.normal(60, 5, 20)) for each in samples]

    def sides():
        return [measured_side(name, trace, sessions(), []) for name in "ab"]

    results = [compare(sides()) for _ in range(20)]
    assert sum(bool(one.layers["significant_b"].any()) for one in results) <= 1


def test_rows_that_drown_in_what_the_profiler_costs_are_not_called_different(trace):
    run = trace.runs[0]
    random = np.random.default_rng(1)
    shape = (5, 4, 5, len(run.kernels))
    plain = [taken(run, each, run.wall_us) for each in random.normal(9, 1, shape)]
    dear = replace(run, bias_us=np.full(len(run.kernels), 1e6))
    costly = [replace(each, samples_us=each.samples_us + 1e6) for each in plain]
    comparison = compare(
        [
            measured_side("a", replace(trace, runs=(dear,)), costly, []),
            measured_side("b", trace, plain, []),
        ]
    )
    assert (comparison.layers["time_us_a"].dropna() > 0).all()
    assert not comparison.layers["significant_b"].any()


def test_rows_of_a_framework_have_the_times_of_the_kernels_that_name_them(trace):
    """Their cells hold the row's name and operators, as `analyzers.table` writes them."""
    run = trace.runs[0]
    kernels = [replace(kernel, node=str(place)) for place, kernel in enumerate(run.kernels)]
    names = [str(len(kernels) - 1), "0"]
    table = nodes([{"op_type": "Conv", "node": n, "kernels": f"{n}: Conv"} for n in names])
    free = np.zeros(len(kernels))
    eager = replace(run, kernels=tuple(kernels), bias_us=free, bias_error_us=free, empty_us=None)
    samples = np.broadcast_to(np.arange(1.0, len(kernels) + 1), (6, 3, 4, len(kernels)))
    wall_us = np.full(20, samples[0, 0, 0].sum())
    sessions = [taken(eager, each, wall_us) for each in samples]
    result = measured_side("eager", replace(trace, runs=(eager,), nodes=table), sessions, [])
    assert result.time_us == pytest.approx([len(kernels), 1], rel=0.01)


def test_a_fifth_more_of_a_real_kernel_is_found_and_a_clock_tick_of_a_short_one_is_not():
    before, after = [23.0, 7.5, 2.0, 1.2], [23.0 * 1.2, 7.5, 1.4, 0.7]
    first, second = (
        replace(
            side(label, ROWS, shaken(times, seed=seed)),
            misfit_us=np.full(4, 0.4),
            kernels=((kernel,),) * 4,
        )
        for label, times, seed, kernel in (("a", before, 1, "x"), ("b", after, 2, "y"))
    )
    rows = compare([first, second]).layers.set_index("layer")["significant_b"]
    assert rows[rows].index.tolist() == ["Conv_0"]
    sure = [replace(each, misfit_us=np.zeros(4)) for each in (first, second)]
    rows = compare(sure).layers.set_index("layer")["significant_b"]
    assert set(rows[rows].index) == {"Conv_0", "Gemm_2", "Softmax_3"}


def test_a_row_of_one_side_counts_with_its_whole_time_and_can_be_significant():
    extra = [*ROWS, {"op_type": "Erf", "module": "d"}, {"op_type": "Sin", "module": "e"}]
    second = side("b", extra, shaken([*TIMES, 33.0, 0.1], seed=2))
    second = replace(second, systematic_us=np.array([0, 0, 0, 0, 0.5, 0.5]))
    for sides, sign, word in (((0, 1), 1, "new"), ((1, 0), -1, "gone")):
        both = [side("a", ROWS, shaken(TIMES)), second]
        comparison = compare([both[place] for place in sides])
        rows = comparison.layers.set_index("layer")
        alone = rows.loc["Erf_4"]
        assert alone["significant_b"] and not rows.loc["Sin_5", "significant_b"]
        assert alone["change_us_b"] == pytest.approx(sign * 33, rel=0.02)
        assert alone["change_low_us_b"] < sign * 33 < alone["change_high_us_b"]
        assert alone["change_high_us_b"] - alone["change_low_us_b"] < 4
        page = render(comparison, "md").decode()
        (line,) = (line for line in page.splitlines() if line.startswith("| Erf"))
        assert f"{word}*" in line.replace("\\", "")


def test_a_session_that_stalled_turns_no_slower_layer_into_a_faster_one():
    """100 µs become 240; in one of 20 sessions of B, 12 times as many. The means leave it out."""
    rows, before, after = [{"op_type": "Conv"}], shaken([100.0]), shaken([240.0], seed=1)
    after[7] *= 12
    first, second = side("a", rows, before), side("b", rows, after)
    first = replace(first, kernels=(("Conv",),))
    second = replace(second, kernels=(("Conv", "Cast"),), time_us=np.array([np.median(after)]))
    comparison = compare([first, second])
    (row,) = comparison.layers.to_dict("records")
    assert row["change_us_b"] == pytest.approx(140, rel=0.02)
    assert row["ratio_b"] == pytest.approx(2.4, rel=0.02)
    assert row["significant_b"] and row["change_low_us_b"] > 0
    assert comparison.sums[0].layers == pytest.approx(1.4, rel=0.02)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("outside", "agrees"), [(0.0, True), (25.0, False)])
def test_the_layers_are_held_against_whole_runs(outside, agrees):
    """15 µs more in a layer, 10 in a new one, 5 less in a third; `outside` all layers."""
    extra = [*ROWS, {"op_type": "Erf", "module": "d"}]
    first = side("a", ROWS, shaken(TIMES))
    times = shaken([115.0, 10.0, 45.0, 5.0, 10.0], seed=1)
    second = side("b", extra, times, overhead=outside)
    comparison = compare([first, second])
    (found,) = comparison.sums
    assert found.layers == pytest.approx(20 / 165, abs=0.01)
    assert found.layers_low < 20 / 165 < found.layers_high
    assert found.layers == pytest.approx(comparison.layers["change_us_b"].sum() / 165, abs=0.003)
    assert found.whole == pytest.approx((20 + outside) / 165, abs=0.01)
    assert found.agrees == agrees
    words = "they agree" if agrees else "they do not agree. +15"
    assert words in render(comparison, "md").decode()
    (told,) = json.loads(render(comparison, "json"))["layer_sums"]
    assert told["agrees"] == agrees and told["side"] == "b"
    assert not compare([replace(first, turns_us=None), second]).sums
    kernel = Kernel("a", "linear", "", "cuda", "a", "", (), (), (), (), (), 1.0, host_us=4.0)
    card = replace(second, run=replace(second.run, kernels=(kernel,) * len(extra)))
    assert not compare([first, card]).sums  # whole runs have the launches of kernels, too
