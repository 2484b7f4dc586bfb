"""One trace from several: each figure is that of the command it comes from, in the right row."""

import io
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracer
import tracer.cli
from tests.examples import at_night
from tests.graphs import integers, residual
from tracer.analyzers.overflow import COLUMNS as SUMS
from tracer.analyzers.table import MERGED, OF_RUN, own_rows, rows_of
from tracer.errors import InputError, UsageError
from tracer.inputs.request import Samples
from tracer.records.columns import COLUMNS, marked

MODELS = {
    "lenet": "models/lenet/lenet.int8.onnx",
    "resnet20": "models/resnet_cifar/resnet20.int8.onnx",
    "transformer": "models/transformer/transformer.int8.onnx",
}
LENET = MODELS["lenet"]
BITS = 18
BATCHES = (1, 3)
ONE_ROW = ["time_us", "macs", "bits", "bits_observed", "overflow_outputs", "energy"]
TIMED = {"runs": 3, "warmup": 0, "threads": 1, "confirm": False}


def digits(count):
    pytest.importorskip("sklearn")
    return Samples("digits", count)


@pytest.fixture(scope="module", params=at_night(MODELS, but=["lenet", "transformer"]))
def parts(request):
    """The model, its times at two batch sizes, and its sums over samples in batches of another."""
    model = MODELS[request.param]
    times = tracer.profile(model, batch=BATCHES, **TIMED)
    sums = tracer.interpret(model, accumulator=BITS, inputs=digits(8), batch=4)
    return model, times, sums


@pytest.fixture(scope="module")
def lenet():
    times = tracer.profile(LENET, batch=BATCHES, **TIMED)
    return {
        "times": times,
        "sums": tracer.interpret(LENET, accumulator=BITS, inputs=digits(8), batch=4),
        "interpreted": tracer.interpret(LENET, batch=1, runs=2),
    }


def same(ours, theirs, columns=None):
    """Whether two tables have equal columns [default: the same], in any order of the columns."""
    if columns is None:
        assert set(ours.columns) == set(theirs.columns)
    names = sorted(ours.columns) if columns is None else list(columns)
    left, right = (table[names].reset_index(drop=True) for table in (ours, theirs))
    pd.testing.assert_frame_equal(left, right)


@pytest.mark.one_in(2)
def test_a_node_that_sums_products_has_one_row_with_all_its_figures(parts, tmp_path):
    _, times, sums = parts
    trace = tracer.merge(times, sums)
    table = pd.read_csv(trace.save(tmp_path / "one.csv"))
    for batch in BATCHES:
        rows = table[(table["batch"] == batch) & (table["macs"] > 0)]
        narrow = [each.node for each in sums.runs[0].sums]
        assert set(rows["node"]) <= set(narrow)
        assert rows["node"].is_unique
        assert rows[ONE_ROW].notna().all().all()
    assert len(table) == len(times.nodes)


@pytest.mark.one_in(2)
def test_every_figure_is_that_of_the_single_command(parts):
    model, times, sums = parts
    nodes = tracer.merge(times, sums).nodes
    from_sums = {*SUMS, "energy"}
    measured = [name for name in COLUMNS if name not in from_sums]
    filled = [name for name in measured if not name.startswith("value_") and "_values" not in name]
    same(nodes, times.nodes, filled)
    for batch in BATCHES:
        rows = nodes[nodes["batch"] == batch].set_index("node")
        rows = rows.loc[list(sums.nodes["node"])].reset_index()
        same(rows, sums.nodes, SUMS)
        priced = tracer.count(model, batch=batch, energy="lab", accumulator=BITS).nodes
        np.testing.assert_allclose(
            rows["energy"].to_numpy(float), priced["energy"].to_numpy(float), rtol=1e-12
        )


@pytest.mark.nightly
def test_rows_of_each_run_are_those_it_had_alone(lenet):
    trace = tracer.merge(*lenet.values())
    single, triple, summing, interpreted = trace.runs
    assert [run.batch for run in (single, triple)] == list(BATCHES)
    for run in (single, triple):
        same(rows_of(trace, run), rows_of(lenet["times"], run), OF_RUN)
    again = rows_of(trace, interpreted).set_index("node")
    alone = lenet["interpreted"].nodes
    same(again.loc[list(alone["node"])].reset_index(), alone, [*OF_RUN, "macs", "executor"])
    assert own_rows(trace, summing).empty  # its statistics are in the rows of the others
    assert len(summing.sums) == 5


def test_times_of_a_second_executor_are_in_marked_columns(lenet):
    nodes = tracer.merge(lenet["times"], lenet["interpreted"]).nodes
    rows = nodes[nodes["batch"] == 1].set_index("node")
    alone = lenet["interpreted"].nodes.set_index("node")
    for name in ("time_us", "time_share", "time_us_ci95_low"):
        column = rows[marked(name, "reference")].reindex(alone.index)
        pd.testing.assert_series_equal(column, alone[name], check_names=False)
    other = nodes[nodes["batch"] == 3]
    assert other[marked("time_us", "reference")].isna().all()  # it did not run at that size
    assert nodes[marked("time_share", "reference")].sum() == pytest.approx(1)


@pytest.mark.nightly
def test_only_the_base_depends_on_the_order(lenet):
    times, sums, interpreted = lenet.values()
    expected = tracer.merge(times, sums, interpreted)
    for order in ((times, interpreted, sums), (sums, times, interpreted)):
        same(tracer.merge(*order).nodes, expected.nodes)
    one = tracer.profile(LENET, **TIMED)
    ours, theirs = tracer.merge(one, interpreted).nodes, tracer.merge(interpreted, one).nodes
    ours, theirs = (t[t["index"].notna()].set_index("node").sort_index() for t in (ours, theirs))
    for name in OF_RUN:
        for here, there in ((name, marked(name, "onnxruntime")), (marked(name, "reference"), name)):
            pd.testing.assert_series_equal(ours[here], theirs[there], check_names=False)


@pytest.mark.nightly
def test_a_merged_trace_is_merged_again(lenet):
    times, sums, interpreted = lenet.values()
    at_once = tracer.merge(times, sums, interpreted)
    stepwise = tracer.merge(tracer.merge(times, sums), interpreted)
    same(stepwise.nodes, at_once.nodes)
    assert len(stepwise.runs) == len(at_once.runs) == 4
    assert stepwise.settings == at_once.settings
    recorded = at_once.settings[MERGED]
    assert [each["settings"].get("accumulator") for each in recorded] == [BITS, None]
    assert recorded[0]["environment"]["cpu"] == sums.environment.cpu


@pytest.mark.nightly
def test_other_batches_and_threads_of_the_base_become_rows():
    one = tracer.profile(residual(), batch=1, **TIMED)
    others = [
        tracer.profile(residual(), batch=2, **TIMED),
        tracer.profile(residual(), batch=1, **{**TIMED, "threads": 2}),
    ]
    trace = tracer.merge(one, *others)
    assert len(trace.nodes) == sum(len(each.nodes) for each in (one, *others))
    for run, alone in zip(trace.runs, (one, *others), strict=True):
        same(rows_of(trace, run), alone.nodes)


@pytest.mark.nightly
def test_a_merged_trace_comes_back_from_its_file(lenet, tmp_path):
    trace = tracer.merge(*lenet.values())
    again = tracer.load(trace.save(tmp_path / "one.trace"))
    pd.testing.assert_frame_equal(again.nodes, trace.nodes)
    assert (again.settings, again.notes) == (trace.settings, trace.notes)
    assert marked("time_us", "reference") in again.nodes


@pytest.mark.nightly
def test_a_merged_trace_is_compared_by_the_run_of_its_rows(lenet, tmp_path):
    trace = tracer.merge(tracer.profile(LENET, **TIMED), lenet["sums"], lenet["interpreted"])
    file = str(trace.save(tmp_path / "one.trace"))
    for side in tracer.compare([file, file]).sides:
        assert side.run.executor == "onnxruntime"
        assert np.nansum(side.time_us) == pytest.approx(trace.nodes["time_us"].sum())


@pytest.mark.nightly
@pytest.mark.parametrize("sort", ["given", "turned"])
def test_a_count_gives_what_a_trace_lacks(lenet, sort):
    counted = tracer.count(LENET, energy="lab")
    pair = (counted, lenet["times"]) if sort == "given" else (lenet["times"], counted)
    trace = tracer.merge(*pair)
    single = trace.nodes[trace.nodes["batch"] == 1].set_index("node")
    pd.testing.assert_series_equal(
        single["energy"].reindex(counted.nodes["node"]).dropna(),
        counted.nodes.set_index("node")["energy"].dropna(),
    )
    assert trace.settings["energy"] == counted.settings["energy"]
    assert trace.nodes["time_us"].notna().any()


@pytest.mark.nightly
@given(st.integers(1, 200), st.integers(1, 200), st.integers(8, 32))
@settings(max_examples=6, deadline=None)
def test_an_energy_of_another_batch_is_scaled_by_the_work(here, there, bits):
    priced = tracer.count(LENET, batch=there, energy="lab", accumulator=bits)
    merged = tracer.merge(tracer.count(LENET, batch=here), priced).nodes
    expected = tracer.count(LENET, batch=here, energy="lab", accumulator=bits).nodes
    np.testing.assert_allclose(
        merged["energy"].to_numpy(float), expected["energy"].to_numpy(float), rtol=1e-12
    )


def test_energies_are_those_of_the_widths_that_were_counted(lenet):
    priced = tracer.profile(LENET, energy="lab", **TIMED)  # in 32 bits
    narrow = tracer.merge(priced, lenet["sums"])
    expected = tracer.count(LENET, energy="lab", accumulator=BITS).nodes["energy"].sum()
    assert narrow.nodes["energy"].sum() == pytest.approx(expected)
    assert priced.nodes["energy"].sum() > expected
    assert "energies are those of trace 2" in narrow.notes


def test_traces_that_contradict_each_other_are_refused(lenet, tmp_path):
    times, sums, interpreted = lenet.values()
    for trace in (times, interpreted):
        with pytest.raises(InputError, match=r"trace 1 and trace 2 both time .* at batch 1"):
            tracer.merge(trace, trace)
    with pytest.raises(InputError, match="trace 2 and trace 3 both count overflow"):
        tracer.merge(times, sums, tracer.interpret(LENET, accumulator=20, batch=1))
    with pytest.raises(InputError, match="reference at batch 5, and trace 1 has batch 1, 3"):
        tracer.merge(times, tracer.interpret(LENET, batch=5, runs=1))
    with pytest.raises(UsageError, match="no trace"):
        tracer.merge()
    paths = [str(times.save(tmp_path / "a.trace")), str(tmp_path / "b.trace")]
    other = tracer.count(residual())
    other.save(paths[1])
    with pytest.raises(InputError) as error:
        tracer.merge(*paths)
    for text in (*paths, times.model.sha256[:12], other.model.sha256[:12], "lenet.int8.onnx"):
        assert text in str(error.value)


def test_one_trace_alone_and_a_count_twice_stay_what_they_are(lenet):
    alone = tracer.merge(lenet["times"])
    same(alone.nodes, lenet["times"].nodes)
    assert alone.settings == lenet["times"].settings
    counted = tracer.count(integers())
    same(tracer.merge(counted, counted).nodes, counted.nodes)


def test_notes_say_where_they_come_from(lenet):
    times, sums, _ = lenet.values()
    notes = tracer.merge(times, sums).notes
    assert "trace 2: inputs are 8 samples of digits, in 2 batches" in notes
    assert not any("emulating" in note for note in notes)  # these times are not in the table


def run(capfd, *args):
    code = tracer.cli.main([str(arg) for arg in args])
    out = capfd.readouterr()
    assert code == 0, out.err
    return out.out


@pytest.mark.nightly
def test_the_command_times_and_counts_in_one_table(lenet, capfd):
    options = ("--accumulator", BITS, "--data", "digits", "--limit", 8, "--batch", "1,3")
    out = run(capfd, "profile", LENET, *options, "--runs", 3, "--no-roofline", "--csv")
    table = pd.read_csv(io.StringIO(out))
    expected = tracer.merge(lenet["times"], lenet["sums"]).nodes
    rows = table[table["index"].notna()].reset_index(drop=True)
    wanted = expected[expected["index"].notna()].reset_index(drop=True)
    for name in (*SUMS, "macs", "energy", "batch"):
        ours, theirs = (t[name].to_numpy(float, na_value=np.nan) for t in (rows, wanted))
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, err_msg=name)
    assert rows["time_us"].notna().sum() == wanted["time_us"].notna().sum()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("width", [80, 160])
def test_the_terminal_shows_one_table_with_time_and_overflow(
    lenet, width, capfd, monkeypatch, tmp_path
):
    monkeypatch.setenv("COLUMNS", str(width))
    files = [lenet[name].save(tmp_path / f"{name}.trace") for name in ("times", "sums")]
    lines = run(capfd, "report", *files).splitlines()
    assert max(map(len, lines)) <= width
    heads = [line.split() for line in lines if line.startswith(" node ")]
    assert len(heads) == len(BATCHES)  # one table for each
    for head in heads:
        for name in ("time", "share", "MACs", "observed", "overflow", "energy"):
            assert name in head
        assert "op" in head or width == 80  # where the names of the rows need the room
    assert any(line.startswith("sums  inputs are 8 samples of digits") for line in lines)
    assert any("suffice for this data" in line for line in lines)


@pytest.mark.nightly
def test_a_document_has_the_runs_that_were_joined(lenet, tmp_path):
    trace = tracer.merge(*lenet.values())
    document = json.loads(trace.save(tmp_path / "one.json").read_text())
    assert [run["executor"] for run in document["runs"]] == ["onnxruntime", "onnxruntime"]
    assert [len(run["sums"]) for run in document["joined"]] == [5, 0]
    first = document["runs"][0]["nodes"][0]
    assert set(first) == set(trace.nodes.columns)


@pytest.mark.nightly
@pytest.mark.needs("matplotlib")
def test_both_pictures_of_a_merged_trace_are_drawn(lenet, tmp_path):
    trace = tracer.merge(lenet["times"], lenet["sums"])
    bars, sums = (trace.save(tmp_path / name).read_text() for name in ("b.svg", "b.sums.svg"))
    assert "partial sums" in sums
    assert "partial sums" not in bars
    assert sums == lenet["sums"].save(tmp_path / "alone.svg").read_text()
    with pytest.raises(UsageError, match="this trace has none"):
        lenet["times"].save(tmp_path / "t.sums.svg")
