"""Scripts write numbers and fold rows as Python does: one trace, one number."""

import json
import math
from dataclasses import replace

import numpy as np
import onnx
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracer
from tests.examples import examples
from tests.graphs import integers
from tracer.analyzers.grouping import grouped, served
from tracer.analyzers.views.report import _rounded
from tracer.analyzers.views.text import (
    FORMATS,
    FULL_FORMATS,
    duration,
    micros,
    time_number,
    time_unit,
)
from tracer.analyzers.views.trace.headline import displayed
from tracer.records.columns import SPECS

NUMERIC = sorted(set(FORMATS) - {"name", "path", "bar"})
TIES = [
    sign * (k + 0.5) / 10**d
    for k in (0, 1, 2, 12, 124, 2.5e3)
    for d in range(4)
    for sign in (1, -1)
]
EDGES = [
    0.0,
    1e-9,
    0.00012345,
    999.5,
    999.95,
    999_999.0,
    1e5,
    9_999_999.5,
    1e7,
    1e21,
    1.5e22,
    64,
    65,
]


def numbers(count):
    rng = np.random.default_rng(0)
    drawn = 10 ** rng.uniform(-8, 18, count) * rng.choice([1, -1], count)
    return [*drawn, *np.round(drawn), *TIES, *EDGES]


@pytest.fixture(scope="module")
def narrowed(tmp_path_factory):
    """A trace with fused kernels, times, sums and modules, and its report."""
    trace = tracer.merge(
        tracer.profile(integers(), runs=5, threads=1), tracer.interpret(integers(), accumulator=14)
    )
    return trace.save(tmp_path_factory.mktemp("narrowed") / "r.html"), trace


@pytest.fixture(scope="module")
def bounds(resnet, tmp_path_factory):
    """The trace of ResNet-20 where times of the third stage are only bounds, and its report."""
    trace = resnet[1]
    is_bound = trace.nodes["module"].str.startswith("stage3").fillna(False).to_numpy(bool)
    low = trace.nodes["time_us_ci95_low"].mask(is_bound & trace.nodes["time_us"].notna(), 0.0)
    share = trace.nodes["time_share"].mask(is_bound)
    trace = replace(trace, nodes=trace.nodes.assign(time_us_ci95_low=low, time_share=share))
    return trace.save(tmp_path_factory.mktemp("bounds") / "b.html"), trace


def test_cells_have_the_texts_of_other_views(browser, narrowed):
    browser.open(narrowed[0])
    values = numbers(400)
    for name in NUMERIC:
        expected = [FORMATS[name](value) for value in values]
        shown = browser.ask(
            f"{json.dumps(values)}.map((value) => Format.cell({{format: '{name}'}}, value))"
        )
        assert shown == expected, name
    expected = [FULL_FORMATS["si"](value) for value in values]
    assert browser.ask(f"{json.dumps(values)}.map(Format.full)") == expected


def test_times_have_the_units_of_the_terminal(browser, narrowed):
    browser.open(narrowed[0])
    times = [0.0, 0.05, 4.8, 99.999, 217.46, 999.4, 999.6, 1234.0, 28_150.0, 99_960.0, 1.24e6, 5e8]
    shown = browser.ask(f"{times}.map(Format.duration)")
    assert shown == [duration(value) for value in times]
    for largest in (9_999.0, 10_000.0, 2e7):
        scale, unit = time_unit(largest)
        script = f"(Format.fitTime({largest}), [Format.time[1], {times}.map(Format.micros)])"
        assert browser.ask(script) == [unit, [_in_unit(value / scale, scale) for value in times]]


def _in_unit(value, scale):
    return micros(value) if scale == 1 else time_number(value)


def test_missing_and_infinite_numbers_are_written_as_elsewhere(browser, narrowed):
    browser.open(narrowed[0])
    assert browser.ask("Format.cell({format: 'si'}, NaN)") == ""
    assert browser.ask("Format.cell({format: 'difference'}, 1 / 0)") == FORMATS["difference"](
        math.inf
    )


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("of", "by"),
    [("narrowed", "kernel"), ("narrowed", "op")]
    + [("resnet", by) for by in ("kernel", "module")]
    + [("bounds", by) for by in ("module", "op")]
    + [pytest.param("resnet", by, marks=pytest.mark.nightly) for by in ("op", "source")],
)
def test_groups_are_those_of_python(browser, of, by, request):
    path, trace = request.getfixturevalue(of)
    own = trace.nodes[trace.nodes["executor"] == trace.runs[0].executor]
    serves = served(trace.model.topology) if by == "kernel" else None
    expected = grouped(own, "node" if by == "kernel" else by, serves=serves)
    browser.open(path)
    expected["time_us_plus_minus"] = displayed(expected)["time_us_plus_minus"]
    names = [spec.name for spec in SPECS if spec.kind != "displayed"] + ["time_us_plus_minus"]
    shown = browser.driver.execute_script(
        "const rows = Groups.by(new Report(JSON.parse(document.getElementById('data').textContent))"
        ".rows(0), arguments[0]);"
        "return Object.fromEntries(arguments[1].filter((name) => rows.has(name))"
        ".map((name) => [name, [...rows.column(name)]]))",
        by, names,
    )  # fmt: skip
    assert len(shown) > 10
    for name, values in shown.items():
        if name in ("node", "kernels"):  # a fused kernel's name tells how many nodes it has
            continue
        ours = pd.Series(values, dtype="object")
        theirs = expected[name].astype("object").reset_index(drop=True)
        assert list(ours.isna()) == list(theirs.isna()), name
        if pd.api.types.is_numeric_dtype(expected[name]):
            near = 1e-4 if name == "time_us_plus_minus" else 1e-6  # a difference of rounded ends
            np.testing.assert_allclose(
                ours.dropna().astype(float), theirs.dropna().astype(float), rtol=near, err_msg=name
            )
        else:
            assert list(ours.dropna()) == list(theirs.dropna()), name
    folded = {name for name in expected if expected[name].notna().any() and name in names}
    assert folded <= {*shown, "nodes"} | {"timed_in"}, folded - set(shown)


def test_a_time_that_is_only_a_bound_is_written_as_one_in_every_part_of_a_page(browser, bounds):
    path, trace = bounds
    short = trace.nodes[trace.nodes["module"].str.startswith("stage3.1.conv1").fillna(False)]
    (high,) = short["time_us_ci95_high"].dropna()
    browser.open(path, fragment="#view=graph&color=time_us&by=module")
    cells = dict(browser.ask(
        "[...document.querySelectorAll('.table tbody tr')]"
        ".map((row) => [row.cells[0].textContent, row.textContent])"
    ))  # fmt: skip
    assert f"< {micros(high)}" in cells["stage3.1.conv1"]
    assert "<" not in cells["stage1.1.conv1"]
    stage = trace.nodes[trace.nodes["module"].str.startswith("stage3").fillna(False)]
    high = math.fsum(stage["time_us_ci95_high"].dropna())
    labels = "[...document.querySelectorAll('.view.graph [data-mark]')].map((m) => m.ariaLabel)"
    (box,) = [label for label in browser.ask(labels) if label.startswith("stage3,")]
    assert f"< {duration(high)}" in box
    browser.driver.execute_script(
        "[...document.querySelectorAll('.table tbody tr')]"
        ".find((row) => row.cells[0].textContent === 'stage3.1.conv1').click()"
    )
    (high,) = short["time_us_ci95_high"].dropna()
    assert f"< {duration(high)}" in browser.texts(".details")[0]


@pytest.mark.parametrize("by", ["kernel", "op", "module", "source"])
def test_groups_have_all_nodes_of_the_file_and_no_others(browser, resnet, by):
    """onnxruntime inserts kernels that change the layout of a convolution's results."""
    path, trace = resnet
    nodes = len(onnx.load("models/resnet_cifar/resnet20.onnx").graph.node)
    folded = grouped(trace.nodes, "node" if by == "kernel" else by)
    assert folded["nodes"].sum() == nodes
    browser.open(path)
    counts = browser.driver.execute_script(
        "return [...Groups.by(new Report(JSON.parse(document.getElementById('data').textContent))"
        ".rows(0), arguments[0]).column('nodes')]",
        by,
    )
    assert counts == folded["nodes"].tolist()


@examples(60)
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=20))
def test_numbers_are_rounded_to_seven_digits_and_not_moved(values):
    short = _rounded(np.array(values, np.float64))
    for value, rounded in zip(values, short, strict=True):
        if math.isfinite(value) and 1e-15 < abs(value) < 1e15:
            assert rounded == float(f"{rounded:.7g}")
            assert math.isclose(value, rounded, rel_tol=6e-7)
        elif math.isfinite(value) or math.isinf(value):
            assert value == rounded or math.isclose(value, rounded, rel_tol=6e-7)
        else:
            assert math.isnan(rounded)
