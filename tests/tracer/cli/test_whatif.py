"""`tracer whatif` as a user meets it."""

import io
import json
import re
from xml.etree import ElementTree

import pandas as pd
import pytest

import tracer.cli
from tests.tracer.whatif import networks


@pytest.fixture
def files(tmp_path):
    return networks.model(tmp_path / "m.onnx"), networks.data(tmp_path / "d.npz", samples=30)


def run(capfd, *args):
    code = tracer.cli.main([str(arg) for arg in args])
    out = capfd.readouterr()
    return code, out.out, out.err


def ask(capfd, files, *args):
    model, data = files
    return run(capfd, "whatif", model, "--data", data, "--metric", "agreement", *args)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("columns", [80, 160])
def test_the_answer_comes_first_and_fits(files, capfd, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, _ = ask(capfd, files, "--accumulator", "10:18", "--budget", "10")
    assert code == 0
    lines = out.splitlines()
    assert max(map(len, lines)) <= columns
    assert [line[:2] for line in lines[1:] if line[:2] in ("A:", "B:", "C:")] == ["A:", "B:", "C:"]
    for word in ("are safe on this data", "for any input", "lose at most 10 points of agreement",
                 "evaluations on 30 samples", "overflow", "energy", "saved"):  # fmt: skip
        assert word in " ".join(out.split())
    assert ("persistent" in out) or columns == 80


def test_the_node_that_limits_is_named_where_it_is_to_be_explained(files, capfd):
    question = ("--accumulator", "12:14", "--budget", "10", "--no-search")
    code, out, _ = ask(capfd, files, *question)
    words = " ".join(out.split())
    assert (code, "overflows most" in words, "prevents" in words) == (0, True, False)
    code, out, _ = ask(capfd, files, *question, "--explain")
    words = " ".join(out.split())
    assert (code, "overflows most" in words, "prevents" in words) == (0, False, True)


def test_the_table_is_what_the_json_says(files, capfd):
    code, out, _ = ask(capfd, files, "--accumulator", "10,14,40", "--no-search", "--json")
    document = json.loads(out)
    (one,) = document["variants"]
    assert (code, [row["bits"] for row in one["widths"]]) == (0, [10, 14, 40])
    assert one["each"] is None
    assert one["coverage"] == {"nodes": 3, "multiplying": 3, "share": 1.0}
    for row in one["widths"]:
        assert row["transient_outputs"] + row["persistent_outputs"] == row["overflow_outputs"]
    assert one["widths"][-1]["overflow_outputs"] == 0
    assert one["widths"][-1]["score"] == one["score"] == 100
    _, out, _ = ask(capfd, files, "--accumulator", "10,14,40", "--no-search", "--csv")
    table = pd.read_csv(io.StringIO(out))
    assert table["energy"].tolist() == [row["energy"] for row in one["widths"]]
    assert table["saved"].iloc[0] == pytest.approx(
        1 - one["widths"][0]["energy"] / sum(one["energies"]["32"])
    )


def without_folder(text, folder):
    return " ".join(text.replace(f"{folder}/", "").split())  # a shorter line is cut elsewhere


def page_of(text, folder):
    """What is shown above the next step."""
    return without_folder(re.split(r"\n[╭─]", text)[0], folder)


def test_nests_are_variants_that_fit_a_narrow_terminal(files, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    nests = "nest(ic,ky,kx,ic:8:12:wrap,tiles(2:10))", "nest(ky,kx,ic)"
    options = ("--accumulator", "10:12", "--order", ",".join(nests), "--no-search")
    code, out, _ = ask(capfd, files, *options)
    assert (code, max(map(len, out.splitlines())) <= 80) == (0, True)
    document = json.loads(ask(capfd, files, *options, "--json")[1])
    assert [each["accumulator"]["order"] for each in document["variants"]] == list(nests)


@pytest.mark.nightly
def test_files_are_rendered_again_from_the_trace(files, capfd, tmp_path):
    pytest.importorskip("matplotlib")
    kinds = ("svg", "csv", "json", "md")
    targets = [option for kind in kinds for option in ("-o", tmp_path / f"w.{kind}")]
    trace = tmp_path / "w.trace"
    code, out, err = ask(capfd, files, "--accumulator", "10:14", "--order", "sequential,tree",
                         "--budget", "20", "-o", trace, *targets)  # fmt: skip
    assert (code, err.count("wrote")) == (0, 5)
    again = [option for kind in kinds for option in ("-o", tmp_path / f"v.{kind}")]
    code, shown, _ = run(capfd, "report", trace, *again)
    out, shown = (page_of(text, tmp_path) for text in (out, shown))  # a .trace has no paths
    assert (code, shown) == (0, out)
    for kind in kinds[1:]:
        first, second = ((tmp_path / f"{name}.{kind}").read_text() for name in "wv")
        first, second = (text.replace("\\_", "_") for text in (first, second))  # of Markdown
        assert without_folder(second, tmp_path) == without_folder(first, tmp_path)
    ElementTree.fromstring((tmp_path / "w.svg").read_bytes())
    svg = (tmp_path / "w.svg").read_text()
    assert svg.count("score and energy by width") == 2
    copy = ["report", trace, "-o", tmp_path / "copy.trace", "--csv"]
    assert run(capfd, *copy)[1].encode() == (tmp_path / "w.csv").read_bytes()
    assert page_of(run(capfd, "report", tmp_path / "copy.trace")[1], tmp_path) == out


def test_c_that_cannot_beat_b_says_why(files, capfd, tmp_path):
    table = tmp_path / "flat.toml"
    table.write_text('unit = "pJ"\n[mul]\nbits = "operands"\npolynomial = [1]\n'
                     '[add]\nbits = "operands"\npolynomial = [1]\n')  # fmt: skip
    code, out, _ = ask(capfd, files, "--accumulator", "10:12", "--energy", table)
    words = " ".join(out.split())
    assert code == 0
    assert "saves nothing over B: this energy model does not depend on the width" in words


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--accumulator", "20:12"), 2, "the range is empty"),
        (("--accumulator", "12:99"), 2, "Widths from 2 to 64"),
        (("--accumulator", "12", "--order", "up"), 2, "'up' is not an order"),
        (("--accumulator", "12", "--overflow", "error"), 2, "is not one of saturate"),
        (("--accumulator", "12", "--metric", "best"), 2, "there is no metric 'best'"),
        (("--accumulator", "12", "--energy", "mine"), 2, "there is no energy model 'mine'"),
        (("--accumulator", "12", "-o", "a.trace", "-o", "b.trace"), 2, "one .trace file"),
        (("--accumulator", "12", "-o", "a.xyz"), 2, "names no format"),
        (("--accumulator", "12", "--data", "none.npz"), 3, "none.npz"),
        (("--accumulator", "12", "--data", "mnist", "--data-dir", "no"), 3, "MNIST is not in no"),
    ],
)
def test_an_error_is_one_line(files, capfd, options, code, message):
    exit_code, out, err = ask(capfd, files, *options)
    assert (exit_code, out, len(err.splitlines())) == (code, "", 1)
    assert message in err
