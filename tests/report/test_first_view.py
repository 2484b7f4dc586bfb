"""What a report opens on: the rows that hold most, in the picture that was asked for."""

import pytest

import tracer
from tests.graphs import integers
from tests.nets import Builder
from tracer.graph import provenance

pytest.importorskip("selenium")
LAYERS = 12
BOXES = "[...document.querySelectorAll('.view.graph [data-mark]')].map((mark) => mark.ariaLabel)"


@pytest.fixture(scope="session")
def deep(tmp_path_factory):
    """The report of a count of twelve equal layers and a larger product after them."""
    net, names = Builder("deep", x=(4, 8)), ["x"]
    for layer in range(LAYERS):
        for part in range(2):
            net.linear(f"h{layer}_{part}", names[-1], 8, 8)
            names.append(f"h{layer}_{part}")
    model = net.model(net.node("MatMul", "y", names[-1], net.weight("w", 8, 20)))
    for node in model.graph.node:
        layer, _, part = node.name.removeprefix("h").partition("_")
        inner = f"layers.{layer}.{'up' if part[0] == '0' else 'down'}" if part else "out"
        provenance.describe(node, inner, None)
    path = tmp_path_factory.mktemp("deep") / "deep.html"
    return tracer.count(model).save(path)


def test_the_boxes_that_hold_most_are_open_and_of_equal_layers_one(browser, deep):
    browser.open(deep)
    boxes = browser.ask(BOXES)
    layers = [box for box in boxes if box.partition(",")[0].isdecimal()]
    assert len(layers) == LAYERS
    assert sum(box.endswith("open") for box in layers) == 1
    assert any(box.startswith("layers") and box.endswith("open") for box in boxes)
    assert "MACs 640" in next(box for box in boxes if box.startswith("y"))
    assert browser.texts(".details h2") == ["y"]  # it has most MACs of all nodes
    assert "selected" not in browser.ask("location.hash")


def test_closed_boxes_tell_their_share_of_the_whole(browser, resnet):
    path, trace = resnet
    browser.open(path, fragment="#view=graph&color=time_share")
    for _ in range(len(browser.ask(BOXES))):
        if browser.ask("document.querySelector('.graph .open .sign') !== null"):
            browser.click(".graph .open .sign")
    times = trace.nodes.groupby(trace.nodes["module"].str.partition(".")[0])["time_us"].sum()
    for name in ("stage1", "stage2", "stage3"):
        (box,) = [each for each in browser.ask(BOXES) if each.startswith(name)]
        assert f"{times[name] / trace.nodes['time_us'].sum():.1%}" in box


def test_the_slowest_row_is_selected_until_escape(browser, resnet):
    path, _ = resnet
    browser.open(path)
    assert browser.texts(".details h2") == browser.texts(".table tbody th")[:1]
    assert browser.ask("document.querySelectorAll('.graph .node.selected').length") >= 1
    browser.press("\ue00c")
    assert browser.texts(".details h2") == ["Selection"]
    browser.wait("location.hash.includes('selected=')")
    browser.driver.refresh()
    browser.wait("document.querySelector('.details h2') !== null")
    assert browser.texts(".details h2") == ["Selection"]


def test_a_report_of_overflow_opens_on_the_node_that_overflows_most(browser, tmp_path):
    trace = tracer.interpret(integers(), accumulator=12, batch=8)
    browser.open(trace.save(tmp_path / "o.html"))
    assert browser.texts(".tabs [aria-selected=true]") == ["Overflow"]
    worst = trace.nodes["node"][trace.nodes["overflow_outputs"].fillna(-1).argmax()]
    assert browser.texts(".details h2") == [worst]
    browser.click("#tab-graph")
    assert browser.ask("document.querySelector('.graph select').value") == "overflow_share"


def test_modules_are_in_the_order_of_the_run_and_the_longest_is_brightest(browser, resnet):
    path, trace = resnet
    browser.open(path, fragment="#view=modules")
    bars = browser.ask(
        "[...document.querySelectorAll('.icicle .bar')].map((bar) => [bar.ariaLabel, "
        "bar.querySelector('rect').getBBox().x, bar.querySelector('rect').getAttribute('fill')])"
    )
    conv = trace.nodes[trace.nodes["op_type"] == "Conv"]
    places = {label.rpartition(": ")[0]: x for label, x, _ in bars}
    shown = [places[name] for name in conv["node"] if name in places]
    assert shown == sorted(shown) and len(shown) > 10
    colours = {label.rpartition(": ")[0]: fill for label, _, fill in bars}
    times = trace.nodes.groupby("module")["time_us"].sum()
    assert colours[times[times.index.str.count(r"\.") == 2].idxmax()] == "rgb(254, 232, 56)"
