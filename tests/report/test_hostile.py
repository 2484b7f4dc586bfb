"""Reports of models that are strange or hostile: a name is text, and nothing hangs."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import onnx
import pytest

import tracer
from tests.graphs import parse, residual
from tracer.analyzers.options import ViewOptions

SCRIPT = "</script><img src=x onerror=\"document.title='broken in'\">"
NAMES = [
    SCRIPT, "'\"`", "a\nb\r\n", "\u202egnp.exe", "\x1b[31m\x00", "<!--<script>", "m", "=1+1",
]  # fmt: skip


class Scripts(HTMLParser):
    """The elements of a page, as a parser of HTML sees them."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    proto = residual()
    for node, name in zip(proto.graph.node, NAMES, strict=True):
        node.name = name
    proto.graph.node[0].metadata_props.add(
        key="io.github.tracer-onnx.source", value="/etc/passwd:1"
    )
    trace = tracer.count(proto)
    nodes = trace.nodes.assign(node=trace.nodes["node"].replace("m", "m" * 1_000_000))
    trace = replace(trace, nodes=nodes)  # no model has such a name, but a file might
    return trace.save(tmp_path_factory.mktemp("hostile") / "r.html"), trace


def test_a_hostile_name_is_text(browser, hostile):
    browser.open(hostile[0])
    names = browser.texts(".table tbody th")
    assert any(SCRIPT in name for name in names) and "'\"`" in names and "a⏎b⏎" in names
    assert not any(re.search("[\u202e\x1b\x00\n]", name) for name in names)
    assert max(map(len, names)) < 300
    browser.click(".table tbody tr", names.index(next(n for n in names if SCRIPT in n)))
    assert SCRIPT in browser.texts(".details h2")[0]
    assert browser.ask("document.querySelectorAll('img, iframe, object').length") == 0
    assert "broken in" not in browser.ask("document.title").replace(SCRIPT, "")


def test_the_file_holds_one_script_and_one_style_and_asks_for_nothing(hostile):
    tags = Scripts(hostile[0].read_text()).tags
    scripts = [attributes for tag, attributes in tags if tag == "script"]
    assert [script.get("type") for script in scripts] == ["application/json", None]
    assert not any("src" in each or "style" in each for _, each in tags)
    assert [a["href"] for tag, a in tags if tag == "link"] == ["data:,"]


def test_a_line_of_a_file_elsewhere_is_not_read(hostile):
    assert "root:" not in hostile[0].read_text()


def test_a_script_that_is_added_does_not_run(driver, hostile, tmp_path):
    added = tmp_path / "added.html"
    text = hostile[0].read_text()
    added.write_text(text.replace("</body>", "<script>document.title = 'run'</script></body>"))
    driver.get(added.as_uri())
    assert driver.title != "run"
    assert any("Content Security Policy" in e["message"] for e in driver.get_log("browser"))


def test_a_model_without_nodes_and_one_with_a_single_node_are_shown(browser, tmp_path):
    single = parse(
        '<ir_version: 8, opset_import: ["": 16]> g (float[2] x) => (float[2] y) { y = Relu (x) }'
    )
    none = parse('<ir_version: 8, opset_import: ["": 16]> g (float[2] x) => (float[2] x) {}')
    for name, proto, rows in (("single", single, 1), ("none", none, 0)):
        browser.open(tracer.count(proto).save(tmp_path / f"{name}.html"))
        assert len(browser.texts(".table tbody tr")) == rows


def test_runs_of_a_model_without_nodes_have_a_wall_time(browser, tmp_path):
    proto = parse('<ir_version: 8, opset_import: ["": 16]> g (float[2] x) => (float[2] x) {}')
    browser.open(tracer.profile(proto, runs=3).save(tmp_path / "none.html"))
    assert any("wall" in text for text in browser.texts(".head p, .head dt, .head figcaption"))


def test_values_that_are_no_numbers_are_told(browser, tmp_path):
    proto = parse(
        '<ir_version: 8, opset_import: ["": 16]> g (float[2] x) => (float[2] y) { y = Log (x) }'
    )
    np.savez(tmp_path / "x.npz", x=np.array([-1.0, 0.0], np.float32))
    trace = tracer.interpret(proto, inputs=tmp_path / "x.npz")
    browser.open(trace.save(tmp_path / "nan.html"), fragment="#selected=0")
    facts = dict(zip(browser.texts(".details dt"), browser.texts(".details dd"), strict=True))
    assert facts["NaN"] == "1" and facts["Inf"] == "1"


@pytest.mark.parametrize(
    "fragment", ["#selected=99,-1,x&run=7", "#by=no&sort=no&view=no", "#%E0", "#filter=%3E"]
)
def test_a_fragment_of_another_report_is_no_error(browser, hostile, fragment):
    browser.open(hostile[0], fragment=fragment)
    assert browser.texts("h1")


def test_a_redacted_report_tells_no_path_and_no_source(tmp_path, monkeypatch):
    folder = tmp_path / "secret-folder"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    (folder / "net.py").write_text("layer = secret_line\n")
    proto = residual()
    proto.graph.node[0].name = "/block/conv/Conv"
    for node in proto.graph.node:
        node.metadata_props.add(key="io.github.tracer-onnx.source", value="secret-folder/net.py:1")
    onnx.save(proto, folder / "m.onnx")
    np.savez(folder / "x.npz", x=np.zeros((1, 3, 16, 16), np.float32))
    trace = tracer.profile(folder / "m.onnx", inputs=folder / "x.npz", runs=3)
    told = trace.save("told.html").read_text()
    assert "secret-folder" in told and "secret_line" in told
    kept = trace.save("kept.html", ViewOptions(redact=True)).read_text()
    assert "secret" not in kept and str(tmp_path) not in kept
    assert "/block/conv/Conv" in kept and "net.py:1" in kept


def test_the_same_trace_gives_the_same_bytes(hostile, tmp_path):
    assert hostile[1].save(tmp_path / "again.html").read_bytes() == hostile[0].read_bytes()
