"""Files of reports: their size, large models, traces of older versions, and who writes them."""

import base64
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tracer
from tests.graphs import parse
from tracer.analyzers.views.report import script, style
from tracer.api.results import load_result

ROOT = Path(__file__).parents[2]
TRACES = sorted(Path("tests/fixtures/traces").glob("*.trace"))


def data(report):
    """What the element with the data holds."""
    encoding, text = re.search(
        r'id="data" data-encoding="(\w+)">([^<]*)</script>', report.read_text()
    ).groups()
    return json.loads(gzip.decompress(base64.b64decode(text)) if encoding == "gzip" else text)


def chain(length):
    text = f'<ir_version: 8, opset_import: ["": 16]> g (float[4] x0) => (float[4] x{length}) {{'
    return parse(text + " ".join(f"x{n + 1} = Relu (x{n})" for n in range(length)) + "}")


def test_the_file_of_a_shipped_model_is_small(resnet):
    assert resnet[0].stat().st_size < 250_000


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The files of a wheel."""
    pytest.importorskip("rcssmin")
    pytest.importorskip("rjsmin")
    clone, files = (tmp_path_factory.mktemp(name) for name in ("clone", "wheel"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone)
    for name in ("tracer", "analyzers", "exporters"):
        (clone / name).symlink_to(ROOT / name)
    build = "from setuptools import build_meta; build_meta.build_wheel('.')"
    subprocess.run([sys.executable, "-c", build], cwd=clone, capture_output=True, check=True)
    with zipfile.ZipFile(*clone.glob("*.whl")) as archive:
        archive.extractall(files)
    return files


@pytest.mark.nightly
def test_scripts_and_styles_of_a_wheel_are_minified_and_work(browser, wheel, tmp_path):
    code = "import sys, tracer; tracer.load(sys.argv[1]).save(sys.argv[2])"
    command = [sys.executable, "-c", code, ROOT / TRACES[0], tmp_path / "r.html"]
    environment = {**os.environ, "PYTHONPATH": str(wheel)}
    subprocess.run(command, cwd=wheel, env=environment, check=True)
    browser.open(tmp_path / "r.html")
    assert browser.texts("h1")
    page = (tmp_path / "r.html").read_text()
    shipped = re.findall(r"<style>.*?</style>|<script>.*?</script>", page, re.DOTALL)
    assert len(shipped) == 2
    assert sum(map(len, shipped)) < 0.8 * (len(script()) + len(style()))
    assert sum(map(len, shipped)) < 120_000


@pytest.mark.nightly
def test_large_data_is_compressed_and_the_same(browser, tmp_path):
    trace = tracer.count(chain(5_000))
    report = trace.save(tmp_path / "large.html")
    assert report.stat().st_size < 1_000_000
    stored = data(report)
    assert stored["runs"][0]["size"] == 5_000
    browser.open(report, fragment="#by=node&sort=index&descending=false&filter=relu_4998")
    assert browser.texts(".table tbody th") == list(trace.nodes["node"][-2:-1])


@pytest.mark.one_in(5)
@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_traces_of_older_versions_are_shown(browser, path, tmp_path):
    browser.open(load_result(path).save(tmp_path / "r.html"))
    assert browser.texts("h1")


def test_numbers_in_the_file_are_those_of_the_trace(resnet):
    run = data(resnet[0])["runs"][0]
    nodes = resnet[1].nodes
    assert run["columns"]["macs"] == [
        None if x != x else int(x) for x in nodes["macs"].astype(float)
    ]
    times = [float(f"{time:.7g}") for time in nodes["time_us"].dropna()]
    assert [time for time in run["columns"]["time_us"] if time is not None] == pytest.approx(
        times, rel=1e-6
    )
    codes, values = run["columns"]["op_type"]["codes"], run["columns"]["op_type"]["values"]
    assert [values[code] for code in codes] == list(nodes["op_type"])
    assert run["sum"]["nodes_us"] + run["sum"]["rest_us"] == pytest.approx(run["sum"]["wall_us"])
    assert run["sum"]["low_us"] <= run["sum"]["wall_us"] <= run["sum"]["high_us"]
