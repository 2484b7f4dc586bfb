"""The roofline and the advice as a user meets them."""

import json
import re

import onnx
import pytest

import tracer.cli
from tests.graphs import residual
from tracer.cli import _output
from tracer.errors import UsageError
from tracer.support import files

FAST = ("--runs", "3", "--warmup", "1", "--threads", "1")


@pytest.fixture
def model(tmp_path):
    onnx.save(residual(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def run(capfd, *args):
    code = tracer.cli.main([str(arg) for arg in args])
    out = capfd.readouterr()
    return code, out.out, out.err


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """A user who has measured nothing yet."""

    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path / "cache")


@pytest.mark.nightly
def test_a_first_profile_says_that_it_measures_and_a_second_does_not(model, capfd, fresh):
    code, out, err = run(capfd, "profile", model, *FAST)
    assert code == 0
    assert "measuring what this machine can do with 1 thread" in err
    assert "peaks: 100 GFLOP/s float32, 200 GOP/s int8, 20 GB/s memory" in out
    _, _, err = run(capfd, "profile", model, *FAST)
    assert err == ""


def test_without_a_roofline_nothing_is_measured(model, capfd, fresh):
    code, out, err = run(capfd, "profile", model, *FAST, "--no-roofline", "--json")
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert result["environment"]["peaks"] is None
    assert all(row["roof_fraction"] is None for row in result["runs"][0]["nodes"])
    assert all("gflops_per_s" in row for row in result["runs"][0]["nodes"])


def test_nobody_waits_for_peaks_before_hearing_of_a_bad_file(tmp_path, capfd, fresh):
    (tmp_path / "bad.onnx").write_bytes(b"nothing")
    code, _, err = run(capfd, "profile", tmp_path / "bad.onnx")
    assert code != 0
    assert "measuring" not in err


def test_json_has_peaks_shares_and_advice(model, capfd):
    _, out, _ = run(capfd, "profile", model, *FAST, "--json", "--optimization", "none")
    result = json.loads(out)
    assert result["environment"]["peaks"]["float32"] == {"rate": 1e11, "by": "told"}
    assert isinstance(result["runs"][0]["advice"], list)
    fields = {"rule", "text", "time_share", "energy_share", "nodes", "figures", "tune", "at_most"}
    for each in result["runs"][0]["advice"]:
        assert fields == set(each)
    rows = result["runs"][0]["nodes"]
    assert {row["bound"] for row in rows} <= {"compute", "memory", "cache", "fewer ops", None}
    assert all(row["peak_bytes"] > 0 for row in rows)


@pytest.mark.nightly
def test_the_roofline_is_drawn_and_again_from_the_trace(model, capfd, tmp_path):
    pytest.importorskip("matplotlib")
    names = ["roofline.svg", "x.roofline.svg", "x.svg", "m.trace"]
    outputs = [part for name in names for part in ("-o", tmp_path / name)]
    code, _, _ = run(capfd, "profile", model, *FAST, *outputs)
    assert code == 0
    first, second, bars = ((tmp_path / name).read_bytes() for name in names[:3])
    assert first == second != bars
    again = tmp_path / "again.roofline.svg"
    assert run(capfd, "report", tmp_path / "m.trace", "-o", again)[0] == 0
    assert again.read_bytes() == first


@pytest.mark.parametrize(
    ("name", "extension"),
    [
        ("roofline.png", "roofline.png"),
        ("out/a.b.roofline.svg", "roofline.svg"),
        ("myroofline.png", "png"),
        ("roofline.csv", "csv"),
        ("roofline.png:x", "roofline.png"),
    ],
)
def test_the_longest_extension_names_the_format(name, extension):
    from tracer.analyzers.views import formats
    from tracer.records.trace import Trace

    assert _output.parse(name, formats(Trace)).extension == extension


@pytest.mark.parametrize("name", ["png", ".png", "roofline", "a.roofline"])
def test_a_name_without_extension_names_none(name):
    from tracer.analyzers.views import formats
    from tracer.records.trace import Trace

    with pytest.raises(UsageError):
        _output.parse(name, formats(Trace))


def test_env_tells_peaks_that_were_measured_and_measures_when_asked(capfd, fresh):
    assert "not measured: tracer env --peaks" in run(capfd, "env")[1]
    code, out, err = run(capfd, "env", "--peaks", "--threads", "2")
    assert code == 0
    assert "100 GFLOP/s with 2 threads" in out
    assert "measuring" in err
    assert json.loads(run(capfd, "env", "--json", "--threads", "2")[1])["peaks"]["threads"] == 2
    assert "not measured" in run(capfd, "env", "--threads", "3")[1]


def test_memory_is_told_of_a_count_and_of_a_run(model, capfd):
    assert "memory: 49.2 kB of tensors alive at sum" in run(capfd, "count", model)[1]
    out = run(capfd, "profile", model, *FAST)[1]
    assert "of tensors alive at sum" in out


@pytest.mark.parametrize("width", [80, 160])
def test_the_table_fits_and_a_wide_one_shows_the_roof(model, capfd, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    out = run(capfd, "profile", model, *FAST)[1]
    assert max(map(len, out.splitlines())) <= width
    header = next(line for line in out.splitlines() if re.search("time [µm]s", line))
    assert "roof" in header or width == 80  # only where there is room
    assert ("bound" in header) is (width == 160)


@pytest.mark.nightly
def test_markdown_has_the_advice(model, capfd, tmp_path):
    from tracer.analyzers.advice import advise
    from tracer.analyzers.views.text import cell

    run(capfd, "profile", model, *FAST, "-o", tmp_path / "m.md", "-o", tmp_path / "m.trace")
    trace = tracer.load(tmp_path / "m.trace")
    text = (tmp_path / "m.md").read_text()
    for each in advise(trace, trace.runs[0], trace.nodes):
        assert f"- {cell(each.text)}" in text
    assert "- memory: " in text
