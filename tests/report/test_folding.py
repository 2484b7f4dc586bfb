"""The table folds constants and conversions into the node they serve, and shortens long names."""

from pathlib import Path

import onnx
import pytest

import tracer
from tracer.analyzers.grouping import grouped, served
from tracer.api.count import count

INT8 = Path("models/lenet/lenet.int8.onnx")
FOLDER = "/vision_tower/encoder/layers/mlp/"


def rows(browser):
    """Names in the table, with what their tooltips say."""
    cells = "[...document.querySelectorAll('.table tbody th')]"
    return browser.ask(f"{cells}.map((cell) => [cell.textContent, cell.title])")


def choose(browser, value):
    browser.driver.execute_script(
        "const choice = document.querySelector('.table select'); choice.value = arguments[0];"
        "choice.dispatchEvent(new Event('change'))",
        value,
    )


def renamed(path):
    """lenet.int8, whose nodes have long names that begin with the same folders."""
    proto = onnx.load(INT8)
    for node in proto.graph.node:
        node.name = FOLDER + node.name
    onnx.save(proto, path)
    return path


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("folding")
    trace = count(renamed(folder / "m.onnx"))
    return trace.save(folder / "c.html"), trace


def test_a_report_of_counts_folds_conversions_until_every_node_is_asked_for(browser, counted):
    path, trace = counted
    expected = grouped(trace.nodes, "node", serves=served(trace.model.topology))
    assert len(expected) < len(trace.nodes)
    browser.open(path)
    folded = rows(browser)
    assert len(folded) == len(expected)
    whole = {title or text for text, title in folded}
    assert whole == set(expected["node"])
    choose(browser, "node")
    assert {title or text for text, title in rows(browser)} == set(trace.nodes["node"])


def test_a_click_on_a_folded_row_shows_all_of_its_nodes(browser, counted):
    path, trace = counted
    serves = served(trace.model.topology)
    (conv,) = (name for name in trace.nodes["node"] if name.endswith("Conv_22"))
    serving = [name for name, node in serves.items() if node == conv]
    assert serving
    browser.open(path)
    browser.driver.execute_script(
        "[...document.querySelectorAll('.table tbody th')]"
        ".find((cell) => cell.title.startsWith(arguments[0])).click()",
        conv,
    )
    shown = browser.ask("document.querySelector('.details').textContent")
    assert all(name in shown for name in (conv, *serving))


def test_long_names_leave_out_the_folders_that_most_begin_with(browser, counted):
    browser.open(counted[0])
    cut = [(text, title) for text, title in rows(browser) if title]
    assert len(cut) > 5
    assert all((text, title) == (f"…{title.removeprefix(FOLDER)}", title) for text, title in cut)


def test_a_profile_folds_what_no_kernel_ran(browser, tmp_path):
    trace = tracer.profile(renamed(tmp_path / "m.onnx"), runs=5, threads=1, optimization="none")
    path = trace.save(tmp_path / "p.html")
    expected = grouped(trace.nodes, "node", trace.runs[0], serves=served(trace.model.topology))
    browser.open(path)
    assert {title or text for text, title in rows(browser)} == set(expected["node"])
