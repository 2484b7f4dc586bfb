"""`tracer interpret --list-accumulators`, and presets on the command line."""

import json

import pytest
from rich.cells import cell_len

from tests.tracer.cli.narrow.command import nodes, run
from tracer.accumulators import hardware


@pytest.mark.parametrize("width", [80, 160])
def test_the_list_fits_a_terminal_and_needs_no_model(width, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, err = run(capfd, "--list-accumulators")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert max(map(cell_len, lines)) <= width
    for name, preset in hardware.presets().items():
        assert sum(line.removesuffix(":") == name for line in first_words(lines)) == 1
        words = f"{preset.accumulator.kind} {preset.what} {preset.source} {preset.status}".split()
        assert all(word in out for word in words)


def first_words(lines):
    """The first word of each line that begins at the margin of the list."""
    return [line.split()[0] for line in lines if line.strip() and not line.startswith("  ")]


def test_without_a_terminal_each_preset_is_one_line(capfd, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    _, out, _ = run(capfd, "--list-accumulators")
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    for name, preset in hardware.presets().items():
        for text in (preset.what, preset.source, preset.status, preset.accumulator.kind):
            assert text in lines[name]


@pytest.mark.parametrize("unread", [["--json"], ["--csv"], ["-o", "list.json"]])
def test_the_list_refuses_formats_that_it_does_not_have(unread, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capfd, "--list-accumulators", *unread)
    assert (code, out, list(tmp_path.iterdir())) == (2, "", [])
    assert f"reads no {unread[0]}" in err


def test_a_preset_runs_a_model(model, file, capfd, tmp_path):
    rows = nodes(capfd, model, "--accumulator", "fbgemm-acc16", "--inputs", file)
    narrow = [row for row in rows.values() if row.get("bits_guaranteed_inner")]
    assert narrow and all(row["bits"] == 32 for row in narrow)
    path = tmp_path / "sums.json"
    code, _, _ = run(capfd, model, "--accumulator", "fbgemm-acc16", "--inputs", file, "-o", path)
    assert code == 0
    sums = json.loads(path.read_text())["runs"][0]["sums"]
    assert sums[0]["accumulator"]["order"] == "positionwise(tiles(2:16,128:16))"
    inner = [channel["bits_guaranteed_inner"] for channel in sums[0]["channels"]]
    assert max(inner) == rows[sums[0]["node"]]["bits_guaranteed_inner"]


@pytest.mark.nightly
def test_two_levels_are_kept_in_a_trace(model, file, capfd, tmp_path):
    path = tmp_path / "run.trace"
    policy = "two-level(12,4,24,wrap)"
    assert run(capfd, model, "--accumulator", policy, "--inputs", file, "-o", path)[0] == 0
    import tracer

    trace = tracer.load(path)
    (first, *_) = trace.runs[0].sums
    assert str(first.tally.accumulator) == "24(overflow=wrap,order=tiles(4:12:wrap))"
    assert first.guaranteed_inner == first.guaranteed_inner_channels.max()


def test_an_option_of_integers_is_refused_beside_a_preset(model, file, capfd):
    code, _, err = run(
        capfd, model, "--accumulator", "x86-maddubs", "--inputs", file, "--order", "tree"
    )
    assert code == 2
    assert "order tree: no accumulator of the policy takes it" in err


def test_certificates_take_presets(model, file, capfd, tmp_path):
    proof = tmp_path / "proof.json"
    policy = "two-level(24,4,32)"
    args = (model, "--inputs", file)
    assert run(capfd, *args, "--accumulator", policy, "--certificate", proof)[0] == 0
    assert run(capfd, *args, "--check-certificate", proof)[0] == 0
    code, _, err = run(capfd, *args, "--accumulator", "32", "--check-certificate", proof)
    assert code == 1
    assert "order tiles(4:24)" in err
