"""Traces of float accumulators: written, read, merged, shown, and damaged."""

from __future__ import annotations

import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pytest

import tracer
import tracer.cli
from tests.graphs import residual
from tracer.analyzers.overflow import FLOAT_COLUMNS, of_floats
from tracer.errors import InputError, UsageError
from tracer.records.trace import Trace

NARROW = {"c1", "c2", "y"}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return tracer.interpret(residual(), batch=2, accumulator="c1=e5m4,*=fp16", operands="c1=bf16",
                            energy="horowitz45", threads=1)  # fmt: skip


@pytest.fixture(scope="module")
def path(trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(trace.save(tmp_path_factory.mktemp("floats") / "f.trace"))


def test_a_trace_comes_back_as_it_was(trace, path):
    again = tracer.load(path)
    assert again.runs[0].float_sums == trace.runs[0].float_sums
    assert again.runs[0].is_emulated
    pd.testing.assert_frame_equal(again.nodes, trace.nodes)


def test_the_node_table_has_what_the_sums_say(trace):
    own = trace.nodes.set_index("node")
    assert set(own.index[own["outputs"].notna()]) == NARROW
    expected = of_floats(trace.runs[0].float_sums)
    found = own.loc[expected.index, list(FLOAT_COLUMNS)]
    pd.testing.assert_frame_equal(found.reset_index(drop=True), expected.reset_index(drop=True))
    assert own.loc["c1", ["accumulator", "operands"]].tolist() == ["e5m4", "bf16"]
    assert own.loc["c2", "accumulator"] == "fp16"
    assert own["bits"].isna().all()
    assert own.loc["c1", "swamped_share"] > own.loc["c2", "swamped_share"]
    assert own.loc["c1", "rel_error_p50"] > 2**-6  # rounded to 5 bits many times


def test_floats_are_priced_by_their_formats(trace):
    """Horowitz's figure 1.1.9: an addition in fp16 takes 0.4 pJ, a product of float32 3.7."""
    own = trace.nodes.set_index("node").astype({"energy": "float64"})
    work = own.loc["c2", ["muls", "adds"]].astype(float)
    assert own.loc["c2", "energy"] == pytest.approx(3.7 * work["muls"] + 0.4 * work["adds"])
    assert pd.isna(own.loc["c1", "energy"])  # nobody has figures for bf16 and e5m4
    assert any("c1: horowitz45 has no figures for bfloat16" in note for note in trace.notes)


@pytest.mark.parametrize("width", ["80", "160"])
def test_a_terminal_shows_it(path, width, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", width)
    assert tracer.cli.main(["report", str(path)]) == 0
    out = capfd.readouterr().out
    for word in ("nothing overflows their float accumulators: 3 nodes", "sums of c1 lose",
                 "accumulator", "3 nodes with float accumulators"):  # fmt: skip
        assert word in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= int(width)


@pytest.mark.nightly
def test_files_hold_it(trace, path, tmp_path):
    for name in ("f.json", "f.csv", "f.html", "f.md"):
        assert tracer.cli.main(["report", str(path), "-o", str(tmp_path / name)]) == 0
    (run,) = json.loads((tmp_path / "f.json").read_text())["runs"]
    assert [each["node"] for each in run["float_sums"]] == ["c1", "c2", "y"]
    for each, sums in zip(run["float_sums"], trace.runs[0].float_sums, strict=True):
        assert each["outputs"] == sum(part["outputs"] for part in each["errors"])
        assert each["swamped"] == sums.tally.swamped
    table = pd.read_csv(tmp_path / "f.csv").set_index("node")
    assert table.loc["y", "accumulator"] == "fp16"
    assert "accumulator" in (tmp_path / "f.html").read_text()


def test_it_is_merged_with_times(trace):
    times = tracer.profile(residual(), batch=2, runs=3, threads=1)
    merged = tracer.merge(times, trace).nodes.set_index("node")
    assert merged.loc["c1", "accumulator"] == "e5m4"
    assert (
        merged.loc["c1", "rel_error_p99"]
        == trace.nodes.set_index("node").loc["c1", "rel_error_p99"]
    )
    assert merged["time_us"].notna().any()


def test_charts_of_integer_sums_ask_for_them(trace, tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(UsageError, match="histograms of sums need integer accumulators"):
        trace.save(tmp_path / "f.sums.png")
    trace.save(tmp_path / "f.png")


@pytest.mark.parametrize("option", [["--certificate", "c.json"], ["--by", "sample"]])
def test_what_is_about_integers_is_refused(option, tmp_path, capfd, monkeypatch):
    onnx.save(residual(), tmp_path / "m.onnx")
    monkeypatch.chdir(tmp_path)
    assert tracer.cli.main(["interpret", "m.onnx", "--accumulator", "fp16", *option]) == 2
    err = capfd.readouterr().err
    assert "'fp16' does not add integers" in err or "'c1' has a float accumulator" in err


@pytest.mark.parametrize("option", [["--overflow", "wrap"], ["--fixed", "8:5"], ["--magnitude"],
                                    ["--product-bits", "9"]])  # fmt: skip
def test_options_of_integers_are_refused(option, tmp_path, capfd):
    onnx.save(residual(), tmp_path / "m.onnx")
    command = ["interpret", str(tmp_path / "m.onnx"), "--accumulator", "fp16", *option]
    assert tracer.cli.main(command) == 2
    err = capfd.readouterr().err
    assert ("no accumulator" in err and "fp16" in err) or "fixed" in err


def test_operands_without_an_accumulator_are_refused(tmp_path, capfd):
    onnx.save(residual(), tmp_path / "m.onnx")
    assert tracer.cli.main(["interpret", str(tmp_path / "m.onnx"), "--operands", "bf16"]) == 2
    assert "--operands is about narrow accumulators" in capfd.readouterr().err


def archive(**arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def record(field: str, value: str) -> str:
    return f"UPDATE float_sums SET record = json_set(record, '$.{field}', {value})"


ZEROS = np.zeros(962, np.int64)
BLOBS = {
    "others": archive(error_histogram=np.ones(962, np.int64)),
    "short": archive(error_histogram=np.zeros(5, np.int64)),
    "negative": archive(error_histogram=np.concatenate([[-1], ZEROS[1:]])),
    "wrapping": archive(error_histogram=np.concatenate([[2**63 - 1, 2**63 - 1, 2], ZEROS[3:]])),
    "floats": archive(error_histogram=np.zeros(962)),
    "nameless": archive(other=ZEROS),
}
DAMAGED = {
    "a spelling that is a number": record("accumulator", "5"),
    "no spelling": record("accumulator", "''"),
    "a long spelling": record("accumulator", "hex(zeroblob(500))"),
    "operands that are a list": record("operands", "json('[]')"),
    "a count below 0": record("outputs", "-1"),
    "half a count": record("terms", "0.5"),
    "a count beyond 64 bits": record("terms", "9e30"),
    "more swamped than terms": record("swamped", "4000000000000"),
    "more overflows than outputs": record("overflow_outputs", "4000000000000"),
    "an error below 0": record("greatest_error", "-1"),
    "an error that is text": record("greatest_error", "'x'"),
    "a field more": record("more", "1"),
    "no node": "UPDATE float_sums SET record = json_remove(record, '$.node')",
    "arrays that are text": "UPDATE float_sums SET arrays = 'x'",
    **{name: f"UPDATE float_sums SET arrays = :{name}" for name in BLOBS},
    "a run that is text": "UPDATE float_sums SET run = 'x'",
}


@pytest.mark.parametrize("statement", DAMAGED.values(), ids=DAMAGED)
def test_damage_is_named(statement, path, tmp_path):
    damaged = tmp_path / "d.trace"
    damaged.write_bytes(path.read_bytes())
    with closing(sqlite3.connect(damaged)) as database, database:
        database.execute(statement, {n: b for n, b in BLOBS.items() if f":{n}" in statement})
    with pytest.raises(InputError, match="table float_sums"):
        tracer.load(damaged)


def test_rows_that_are_gone_are_missed(path, tmp_path):
    damaged = tmp_path / "d.trace"
    damaged.write_bytes(path.read_bytes())
    with closing(sqlite3.connect(damaged)) as database, database:
        database.execute("DELETE FROM float_sums WHERE position = 1")
    with pytest.raises(InputError, match="table float_sums: rows are missing"):
        tracer.load(damaged)
