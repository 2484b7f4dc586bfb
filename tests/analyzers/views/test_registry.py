"""One registry of formats, and what every result offers."""

import importlib
import importlib.util
import inspect
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import onnx
import pandas as pd
import pytest

import tracer
from tests.examples import at_night
from tests.graphs import integers, residual
from tracer.analyzers import views
from tracer.analyzers.compare import Comparison, compare
from tracer.analyzers.compare.sides import recorded_side
from tracer.analyzers.compare.sweep import Sweeps, sweep
from tracer.analyzers.fusions import Fusions
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views import file_formats
from tracer.analyzers.views import file_formats as format_module
from tracer.analyzers.views.text import FORMATS
from tracer.errors import InputError, UsageError
from tracer.exporters.records import Exported
from tracer.records import environment
from tracer.records.columns import SPECS, Format
from tracer.records.environment import Environment
from tracer.records.model_info import ModelInfo
from tracer.records.trace import Trace
from tracer.records.transformed import Accuracy, LayerError, Quantized
from tracer.records.whatif import WhatIf

BASIC = {"csv", "ipynb", "json", "md", "parquet", "xlsx"}
FIGURES = ("figure", "roofline", "sums")
PICTURES = {"png", "svg"}
VIEWERS = {
    "annotated.onnx", "headroom.model-explorer.json", "model-explorer.json", "netron.json",
    "perfetto.json", "pftrace", "pprof", "speedscope.json", "tfevents",
}  # fmt: skip
CHARTS = {f"{chart}.{picture}" for chart in ("roofline", "sums") for picture in PICTURES}


@pytest.mark.parametrize(
    ("kind", "extensions"),
    [
        (Trace, BASIC | PICTURES | CHARTS | VIEWERS | {"trace", "html"}),
        (Comparison, BASIC | PICTURES | {"html", "junit.xml"}),
        (Sweeps, BASIC | PICTURES | {"html"}),
        (WhatIf, BASIC | PICTURES | {"trace", "html"}),
        (Fusions, BASIC | {"html"}),
        (Environment, BASIC),
        (Quantized, BASIC | {"html", "onnx"}),
        (Exported, BASIC | {"onnx"}),
    ],
)
def test_a_result_has_the_formats_of_what_its_view_offers(kind, extensions):
    assert set(views.formats(kind)) == extensions
    view = importlib.import_module(kind.view)
    for part in ("page", "table", "document", "stored", "model", "report", *FIGURES):
        if views._defines(view, part):  # a part is a function of the result and the options
            assert len(inspect.signature(getattr(view, part)).parameters) == 2


def test_every_format_of_a_column_has_its_function():
    assert set(FORMATS) == set(Format.__args__)
    assert {spec.format for spec in SPECS} <= set(FORMATS)


@pytest.fixture(scope="module")
def results(tmp_path_factory, counted):
    path = tmp_path_factory.mktemp("e") / "e.onnx"
    onnx.save(residual(), path)
    traces = [tracer.profile(residual(), runs=3, threads=1, batch=[1, 2]) for _ in "ab"]
    sides = [recorded_side(label, trace, 1) for label, trace in zip("ab", traces, strict=True)]
    sizes = [recorded_side("net", traces[0], batch) for batch in (1, 2)]
    interpreted = tracer.interpret(integers(), accumulator=14)
    settings = {
        "per_channel": True, "weight_type": "int8", "activation_type": "uint8", "format": "qdq",
        "method": "minmax", "calibrate": "digits", "test": "digits",
    }  # fmt: skip
    layers = (
        LayerError("c1", "Conv", None, 30.0, 0.001),
        LayerError("c2", "Conv", "m", float("inf"), 0.2),
    )
    info = ModelInfo("net", "0" * 64, 8, {"": 17}, "", 8)
    return {
        "Trace": tracer.merge(tracer.profile(integers(), runs=3), interpreted),
        "Comparison": compare(sides),
        "Sweeps": Sweeps([sweep("net", sizes)]),
        "Fusions": tracer.fusions(residual()),
        "Environment": environment.observe(),
        "Quantized": Quantized(
            info, settings, Accuracy("top1", "%", 98.0, 97.5, 100), layers, (), residual()
        ),
        "Exported": Exported(path, "torch", 8, 17, 9, True, (1, 2), 1e-6),
    }


KINDS = ["Trace", "Comparison", "Sweeps", "Fusions", "Environment", "Quantized", "Exported"]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("kind", at_night(KINDS, but=KINDS[1:]))  # a folder has those of a trace
def test_a_result_is_saved_in_every_format_it_has(results, kind, tmp_path):
    result = results[kind]
    for extension, written in views.formats(type(result)).items():
        installed = written.needs is None or importlib.util.find_spec(written.needs.package)
        if installed and not extension.startswith(("roofline", "headroom", "annotated")):
            path = result.save(tmp_path / f"r.{extension}")
            assert path.stat().st_size > 0
    assert isinstance(json.loads((tmp_path / "r.json").read_text()), dict)
    assert len(pd.read_csv(tmp_path / "r.csv")) > 0
    if "onnx" in views.formats(type(result)):
        assert onnx.load(tmp_path / "r.onnx") == residual()


@pytest.mark.parametrize("kind", KINDS)
def test_the_repr_is_one_line_with_the_class(results, kind):
    text = repr(results[kind])
    assert text.startswith(f"{kind}(")
    assert "\n" not in text
    assert len(text) < 300


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)

    def handle_data(self, data):
        self.texts.append(data)


STATIC = {"div", "table", "tr", "th", "td", "details", "summary"}
"""Elements that load and run nothing."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_notebook_shows_a_table_and_nothing_that_runs(results, kind):
    shown = Tags(results[kind]._repr_html_())
    assert "table" in shown.tags and shown.tags.count("td") >= shown.tags.count("th") > 0
    assert set(shown.tags) <= STATIC


def test_names_of_a_file_are_escaped_in_html(trace):
    shown = Tags(trace._repr_html_())
    assert set(shown.tags) <= STATIC
    assert any("</script>" in text for text in shown.texts)
    assert not any("\x1b" in text for text in shown.texts)


def test_what_is_saved_can_be_opened_again_and_takes_options(results, tmp_path):
    trace = results["Trace"]
    again = tracer.load(trace.save(tmp_path / "r.trace"))
    assert repr(again) == repr(trace)
    trace.save(tmp_path / "r.csv", ViewOptions(by="op", top=2))
    assert len(pd.read_csv(tmp_path / "r.csv")) == 2  # the rows of the run that was timed


def test_save_refuses_what_the_command_line_refuses(results, tmp_path):
    trace = results["Trace"]
    path = trace.save(tmp_path / "r.csv")
    before = path.read_bytes()
    with pytest.raises(InputError, match="the file exists"):
        trace.save(path)
    assert trace.save(path, ViewOptions(top=1), force=True).read_bytes() != before
    for name in ("r.xls", "csv"):
        with pytest.raises(UsageError, match="names no format"):
            trace.save(tmp_path / name)
    with pytest.raises(InputError):
        trace.save(tmp_path / "no" / "r.csv")


def test_a_failed_rendering_leaves_the_file_as_it_was(results, tmp_path):
    broken = replace(results["Trace"], nodes=pd.DataFrame())
    (tmp_path / "r.csv").write_text("before")
    with pytest.raises(KeyError):
        broken.save(tmp_path / "r.csv", force=True)
    assert (tmp_path / "r.csv").read_text() == "before"


def test_a_missing_package_is_named(results, monkeypatch):
    monkeypatch.setattr(format_module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="png needs matplotlib"):
        views.render(results["Trace"], "png")


PLUGIN = """
from tracer.analyzers.views.file_formats import Format


def render(page, options):
    return "; ".join(table.title for table in page.tables).encode()


FORMATS = (Format("titles", "page", render),)
"""


def test_a_module_in_the_folder_is_a_format_of_every_result(results, tmp_path, monkeypatch):
    (tmp_path / "titles.py").write_text(PLUGIN)
    monkeypatch.setattr(file_formats, "__path__", [*file_formats.__path__, str(tmp_path)])
    views._all.cache_clear()
    try:
        for result in results.values():
            assert "titles" in views.formats(type(result))
        saved = results["Trace"].save(tmp_path / "r.titles").read_text()
        assert re.match("<model in memory> · batch 1 · onnxruntime ", saved)
    finally:
        views._all.cache_clear()
        sys.modules.pop("tracer.analyzers.views.file_formats.titles", None)


def test_a_helper_that_a_view_imports_is_no_format(monkeypatch):
    view = importlib.import_module(Environment.view)
    before = set(views.formats(Environment))
    monkeypatch.setattr(view, "figure", importlib.import_module(WhatIf.view).figure, raising=False)
    assert set(views.formats(Environment)) == before
    monkeypatch.setattr(view, "figure", lambda result, options: None)
    monkeypatch.setattr(view.figure, "__module__", view.__name__)
    assert set(views.formats(Environment)) == before | PICTURES
