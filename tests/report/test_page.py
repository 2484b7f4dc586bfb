"""The page of a report in a browser: what it shows, and that one selection is everywhere."""

import io
from urllib.parse import urlencode

import pandas as pd
import pytest

import tracer
from tests.graphs import parse

Keys = pytest.importorskip("selenium.webdriver.common.keys").Keys


def test_a_report_shows_every_kernel_and_its_times(browser, resnet):
    path, trace = resnet
    browser.open(path)
    assert browser.texts("h1")[0].startswith("resnet20.onnx · batch 1 · onnxruntime")
    timed = trace.nodes[trace.nodes["time_us"].notna()]
    names = [text.split(" +")[0] for text in browser.texts(".table tbody th")]
    assert sorted(names) == sorted(timed["node"])
    times = timed.set_index("node")["time_us"][names]
    assert (times.diff().dropna() < 1e-6 * times.max()).all()  # ties are in the order of the model


def test_a_row_that_is_clicked_is_described_and_kept_in_the_address(browser, resnet):
    browser.open(resnet[0])
    browser.click(".table tbody tr", 1)
    chosen = browser.texts(".table tbody tr[aria-selected=true] th")
    assert len(chosen) == 1 and browser.texts(".details h2") == chosen
    browser.wait("location.hash.includes('selected=')")
    browser.driver.refresh()
    browser.wait("document.querySelector('.details h2') !== null")
    assert browser.texts(".details h2") == chosen


@pytest.mark.nightly
def test_a_notebook_shows_the_report_in_a_frame_without_its_rights(browser, resnet, tmp_path):
    shown = resnet[1].show(height=640)
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!doctype html><title>n</title>{shown._repr_html_()}", "utf-8")
    browser.size(1000, 700)
    browser.driver.get(notebook.as_uri())
    frame = browser.driver.find_element("css selector", "iframe")
    assert frame.get_attribute("sandbox") == "allow-scripts" and frame.size["height"] == 640
    browser.driver.switch_to.frame(frame)
    browser.wait("document.querySelectorAll('.table tbody tr').length > 5")
    browser.click(".table tbody tr")
    assert browser.texts(".details h2") == browser.texts(".table tbody tr[aria-selected=true] th")
    browser.driver.switch_to.default_content()
    assert "selected" not in browser.ask("location.href")


def test_keys_sort_walk_and_clear(browser, resnet):
    browser.open(resnet[0])
    browser.driver.execute_script("document.querySelector('.table tbody tr').focus()")
    names = browser.texts(".table tbody th")
    browser.press(Keys.ARROW_DOWN)
    browser.press(Keys.ARROW_DOWN)
    assert browser.texts(".details h2") == [names[2]]
    browser.driver.switch_to.active_element.send_keys(Keys.SHIFT + Keys.ARROW_DOWN)
    assert len(browser.texts(".table tbody tr[aria-selected=true]")) == 2
    browser.press(Keys.ESCAPE)
    assert browser.texts(".details h2") == ["Selection"]
    browser.driver.execute_script("document.querySelector('.table thead button').focus()")
    browser.press(Keys.ENTER)
    assert browser.texts(".table tbody th") == sorted(names)
    assert browser.texts(".table th[aria-sort=ascending]") == ["node"]


def test_everything_that_acts_is_reached_with_tab(browser, resnet):
    browser.open(resnet[0])
    reached = set()
    for _ in range(80):
        browser.press(Keys.TAB)
        reached.add(browser.ask("document.activeElement.closest('section, main')?.className ?? ''"))
    assert reached >= {"head", "picture", "table"}


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("stage3 CONV", "module.str.contains('stage3', na=False) & op_type == 'Conv'"),
        ("time_us > 5", "time_us > 5"),
        ("macs>=1M", "macs >= 1_000_000"),
        ("time<=1000 conv1", "time_us <= 1000 & (module.str.contains('conv1', na=False))"),
        ("op=Relu", "op_type == 'Relu'"),
    ],
)
def test_a_filter_keeps_what_pandas_keeps(browser, resnet, text, query):
    path, trace = resnet
    browser.open(path, fragment="#" + urlencode({"by": "node", "filter": text}))
    expected = trace.nodes.query(query, engine="python")["node"]
    assert 0 < len(expected) < 67
    assert sorted(browser.texts(".table tbody th")) == sorted(expected)


def test_rows_are_copied_as_csv_that_pandas_reads(browser, resnet):
    path, trace = resnet
    browser.open(path, fragment="#by=node&sort=index&descending=false")
    browser.driver.execute_script("navigator.clipboard.writeText = () => Promise.reject()")
    browser.click(".table .tools button")
    browser.wait("document.querySelector('textarea') !== null")
    rows = pd.read_csv(io.StringIO(browser.ask("document.querySelector('textarea').value")))
    assert list(rows["node"]) == list(trace.nodes["node"])
    for name in ("macs", "time_us", "peak_bytes"):
        pd.testing.assert_series_equal(
            rows[name].astype(float), trace.nodes[name].astype(float), rtol=1e-6
        )


@pytest.mark.nightly
def test_rows_far_down_are_shown_when_they_are_selected(browser, tmp_path):
    text = '<ir_version: 8, opset_import: ["": 16]> g (float[2] x0) => (float[2] x300) {'
    text += " ".join(f"x{n + 1} = Relu (x{n})" for n in range(300)) + "}"
    browser.open(tracer.count(parse(text)).save(tmp_path / "long.html"), fragment="#selected=250")
    assert browser.texts(".table tbody tr[aria-selected=true] th") == browser.texts(".details h2")
    assert len(browser.texts(".table tbody tr")) == 102  # 100, a gap, and the selected row
    browser.click(".more")
    assert len(browser.texts(".table tbody tr")) == 202


def test_a_print_has_the_table_and_no_tools(browser, resnet):
    browser.open(resnet[0])
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    shown = "getComputedStyle(document.querySelector('{}')).display !== 'none'"
    assert browser.ask(shown.format(".table table"))
    assert not browser.ask(shown.format(".tools")) and not browser.ask(shown.format(".details"))
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


@pytest.mark.one_in(3)
@pytest.mark.parametrize("width", [390, 800, 1280, 2560])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_wider_than_the_window(browser, resnet, width, dark):
    browser.open(resnet[0], width=width, dark=dark)
    assert browser.ask("document.documentElement.scrollWidth") <= width
    colour = browser.ask("getComputedStyle(document.body).backgroundColor.match(/\\d+/g)[0]")
    assert (int(colour) < 60) == dark


def test_without_scripts_the_summary_and_the_first_rows_are_there(browser, resnet):
    path, trace = resnet
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.driver.get(path.as_uri())
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    shown = browser.driver.find_element("css selector", "#static").text
    assert trace.nodes["node"][3] in shown and "wall" in shown and "MACs" in shown
    assert "need scripts" in browser.driver.find_element("css selector", "body").text


@pytest.mark.nightly
def test_a_filter_of_an_unknown_column_says_so(browser, resnet):
    browser.open(resnet[0], fragment="#filter=nothing>3")
    assert browser.texts(".table output") == ["no column nothing"]
