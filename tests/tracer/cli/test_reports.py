"""`-o report.html`, `--open`, `--redact` and `tracer demo` on the command line."""

import webbrowser
from pathlib import Path

import pytest

import tracer.cli

ROOT = Path(__file__).parents[3]
MODEL = ROOT / "models" / "lenet" / "lenet.onnx"


@pytest.fixture
def opened(monkeypatch):
    """Addresses that a browser was asked to open; a screen is there."""
    addresses = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "open", lambda address: not addresses.append(address))
    return addresses


def run(capfd, *args):
    code = tracer.cli.main([str(arg) for arg in args])
    out, err = capfd.readouterr()
    return code, out, err


def test_a_report_is_written_and_opened(capfd, tmp_path, opened):
    file = tmp_path / "a report.html"
    code, out, err = run(capfd, "count", MODEL, "-o", file, "--open")
    assert code == 0 and f"wrote {file}" in err and "MACs" in out
    assert opened == [file.as_uri()]
    assert file.read_text().startswith("<!doctype html>")


def test_all_files_that_a_result_does_not_fit_are_told(capfd, tmp_path):
    files = ["-o", tmp_path / "a.roofline.png", "-o", tmp_path / "b.sums.png"]
    alone = [run(capfd, "count", MODEL, *pair)[2] for pair in (files[:2], files[2:])]
    code, _, err = run(capfd, "count", MODEL, *files)
    assert code != 0 and list(tmp_path.iterdir()) == []
    for each in alone:
        (what,) = [line.partition("error: ")[2] for line in each.splitlines() if "error: " in line]
        assert what.partition(".")[0] in err


def test_without_a_screen_the_path_is_told(capfd, tmp_path, opened, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capfd, "count", MODEL, "-o", "r.html", "--open")
    assert code == 0 and opened == []
    assert f"no browser here: open {tmp_path / 'r.html'}" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--open"], "--open needs a report. Write one with -o report.html."),
        (["--open", "-o", "html:-"], "--open needs a report"),
        (["--redact", "--with-paths"], "--redact and --with-paths together"),
    ],
)
def test_options_of_a_report_need_one(options, message, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capfd, "count", MODEL, *options)
    assert code == 2 and message in err
    assert not list(tmp_path.iterdir())


def test_a_stored_trace_becomes_the_report_that_its_command_wrote(capfd, tmp_path):
    trace, first, again = (tmp_path / name for name in ("t.trace", "1.html", "2.html"))
    assert run(capfd, "count", MODEL, "-o", trace, "-o", first)[0] == 0
    assert run(capfd, "report", trace, "-o", again)[0] == 0
    assert again.read_bytes() == first.read_bytes()


def test_the_demo_writes_every_kind_of_result(capfd, tmp_path, opened):
    code, out, err = run(capfd, "demo", tmp_path / "d", "--open")
    assert code == 0 and "resnet20.onnx" in out and "tracer profile" in err
    names = {file.name for file in (tmp_path / "d").iterdir()}
    assert names >= {"resnet20.csv", "resnet20.html", "resnet20.trace"}
    for name in ("lenet/lenet", "lenet/lenet.int8", "resnet_cifar/resnet20.int8"):
        shipped = ROOT / "models" / f"{name}.onnx"
        assert (tmp_path / "d" / shipped.name).read_bytes() == shipped.read_bytes()
    assert opened == [(tmp_path / "d" / "resnet20.html").as_uri()]
    assert run(capfd, "demo", tmp_path / "d")[0] == 3  # what is there stays without --force
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "resnet20.csv").touch()
    assert run(capfd, "demo", tmp_path / "one")[0] == 3
    assert [file.name for file in (tmp_path / "one").iterdir()] == ["resnet20.csv"]


def test_a_demo_without_its_models_says_what_to_do(capfd, tmp_path, monkeypatch):
    monkeypatch.setattr("tracer.support.files.EXAMPLES", Path("nowhere"))
    code, _, err = run(capfd, "demo", tmp_path / "d")
    assert code == 3 and "Install tracer again" in err and "Traceback" not in err
    assert not (tmp_path / "d").exists()
