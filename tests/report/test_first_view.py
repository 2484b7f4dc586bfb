"""What a report opens on: the rows that hold most, in the picture that was asked for."""

import pytest

import tracer
from tests.graphs import integers
from tests.nets import Builder
from tracer.api.compare import SideSettings
from tracer.graph import provenance
from tracer.records.transformed import Plan, Speedup, Trial, Tuned

pytest.importorskip("selenium")
LAYERS = 12
LABELS = "[...document.querySelectorAll('.{} [data-mark]')].map((mark) => mark.ariaLabel)"
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


@pytest.mark.nightly
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
    browser.open(path, fragment="#view=modules", dark=True)
    bars = browser.ask(
        "[...document.querySelectorAll('.icicle .bar')].map((bar) => [bar.ariaLabel, "
        "bar.querySelector('rect').getBBox().x, bar.querySelector('rect').getAttribute('fill')])"
    )
    ink = "getComputedStyle(document.querySelector('.icicle .bar text')).fill"
    assert browser.ask(ink) == "rgb(17, 17, 17)"  # on the brightest bar, in dark windows too
    conv = trace.nodes[trace.nodes["op_type"] == "Conv"]
    places = {label.rpartition(": ")[0]: x for label, x, _ in bars}
    shown = [places[name] for name in conv["node"] if name in places]
    assert shown == sorted(shown) and len(shown) > 10
    colours = {label.rpartition(": ")[0]: fill for label, _, fill in bars}
    times = trace.nodes.groupby("module")["time_us"].sum()
    assert colours[times[times.index.str.count(r"\.") == 2].idxmax()] == "rgb(254, 232, 56)"


@pytest.mark.nightly
def test_a_comparison_has_the_times_and_intervals_of_both_sides_in_a_row(browser, tmp_path):
    lenet = "models/lenet/lenet.onnx"
    comparison = tracer.compare(
        [lenet, f"{lenet}@ort:none"], settings=SideSettings(sessions=8, precision=1.0)
    )
    browser.open(comparison.save(tmp_path / "c.html"))
    assert browser.texts(".tabs [aria-selected=true]") == ["A and B"]
    heads, *rows = browser.ask(
        "[...document.querySelectorAll('.table tr')].map((row) => "
        "[...row.cells].map((cell) => cell.innerText.trim()))"
    )
    assert {"A µs", "± A", "B µs", "± B", "÷ A", "99% interval"} <= set(heads)
    assert "time µs" not in heads
    layers = comparison.layers  # of the graph: on a busy machine a row of the runtime may be first
    layer = layers[layers["op"] == "Conv+Relu"].iloc[0]
    row = next(row for row in rows if row[0].startswith(layer["layer"]))
    for side in "ab":
        shown = row[heads.index(f"{side.upper()} µs")]
        assert float(shown.replace(",", "")) == pytest.approx(layer[f"time_us_{side}"], abs=0.06)
    assert len(browser.texts(".head .sum")) == 2  # the wall of each, one above the other


@pytest.mark.nightly
def test_a_narrowed_model_opens_on_its_widths(browser, tmp_path):
    result = tracer.narrow("models/lenet/lenet.int8.onnx", bits="14,16", data="digits", budget=0.0)
    browser.open(result.save(tmp_path / "n.html"))
    assert browser.texts(".tabs [aria-selected=true]") == ["Widths"]
    labels = browser.ask(LABELS.format("widths"))
    for node, label in zip(result.nodes, labels, strict=True):
        assert label.startswith(f"{node.node}, bits: ")
        assert f"{node.guaranteed} any input, after" in label
        assert f"{node.guaranteed_before} before" in label
    widest = max(result.nodes, key=lambda node: node.guaranteed_before)
    assert browser.texts(".details h2") == [widest.node]
    assert len(browser.texts(".widths polyline")) == (2 if len(result.curve) > 1 else 0)
    certified = len(result.certificate.nodes)
    assert f"{certified} nodes of {len(result.nodes)}" in browser.texts(".head dl")[-1]


def test_a_tuned_model_opens_on_what_was_tried_and_the_winner(browser, tmp_path):
    faster, noise, best = (
        Speedup(1.25, 1.2, 1.3),
        Speedup(0.99, 0.9, 1.1),
        Speedup(1.31, 1.25, 1.37),
    )
    trials = (
        Trial("threads", "1", "few products", "…", "kept", True, faster, 9_000_000, 0.0),
        Trial("layout", "NCHW", "layouts </script>", "…", "not faster", False, noise),
        Trial("static_int8", "u8s8", "products", "…", "needs --allow quantize"),
    )
    steps = (("threads", "1"), ("spinning", "off"))
    plan = Plan("lenet.onnx", "0" * 64, "latency", steps, {}, "cpu", 2, "1", best)
    code = ("import onnxruntime as ort", "options = ort.SessionOptions()")
    tuned = Tuned(
        model=tracer.count("models/lenet/lenet.onnx").model, settings={"goal": "latency"},
        trials=trials, plan=plan, speedup=best, memory_bytes=8_000_000, memory_before=9_000_000,
        difference=0.0, commands=(), code=code, notes=(),
    )  # fmt: skip
    browser.open(tuned.save(tmp_path / "t.html"))
    assert browser.texts(".details h2") == ["best combination"]
    labels = browser.ask(LABELS.format("trials"))
    assert labels[0].startswith("best combination: 1.31\N{MULTIPLICATION SIGN}, 1.25x to 1.37x")
    assert (
        labels[1].startswith("threads=1: 1.25\N{MULTIPLICATION SIGN}")
        and "not measured" in labels[3]
    )
    assert browser.texts(".head pre") == ["\n".join(code)]
    kinds = browser.ask("[...document.querySelectorAll('.trials .layer')].map(e => e.classList[1])")
    assert kinds == ["faster", "faster", "noise", "noise"]
