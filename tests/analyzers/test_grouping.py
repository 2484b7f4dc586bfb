"""Node tables folded by module and by source line: nothing is lost and nothing is told twice."""

from __future__ import annotations

from itertools import accumulate

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracer
from tests.examples import examples
from tests.graphs import BRANCHES, parse
from tracer.analyzers.grouping import by_origin, grouped, remark
from tracer.errors import UsageError
from tracer.graph import provenance
from tracer.records.trace import typed_table

MODULES = st.sampled_from([None, "", "a", "a.0", "a.0.b", "a.1", "a.1.b.c", "d", "a.0.b.c.e"])
SLOW = examples(60)
"""pandas folds sixty columns in some 40 ms, many times a case."""
SOURCES = st.sampled_from([None, "net.py:1", "net.py:12", "lib/net.py:1"])


@st.composite
def tables(draw):
    """Nodes of any modules, cut into kernels at any places, and kernels of the runtime's own."""
    rows = []
    for kernel in range(draw(st.integers(1, 8))):
        time = draw(st.integers(0, 99))
        if draw(st.integers(0, 4)) == 0:
            rows.append({"node": f"runtime:k{kernel}", "time_us": time, "kernels": f"k{kernel}"})
            continue
        for place in range(draw(st.integers(1, 4))):
            rows.append(
                {
                    "node": f"n{len(rows)}",
                    "index": len(rows),
                    "op_type": "Op",
                    "module": draw(MODULES),
                    "source": draw(SOURCES),
                    "time_us": None if place else time,
                    "kernels": f"k{kernel}",
                    "macs": draw(st.none() | st.integers(0, 9)),
                }
            )
    return typed_table(pd.DataFrame(rows).astype({"time_us": "float64"}))


@SLOW
@given(tables(), st.sampled_from(["module", "source"]), st.none() | st.integers(1, 5))
def test_every_node_and_every_microsecond_is_in_one_row(nodes, of, depth):
    folded = grouped(nodes, of, depth=depth if of == "module" else None)
    assert folded[of].is_unique
    assert folded["nodes"].sum() == nodes["index"].count()  # the runtime's kernels are no nodes
    for column in ("time_us", "macs"):
        assert folded[column].sum() == nodes[column].sum()


@SLOW
@given(tables(), st.data())
def test_nodes_with_an_estimated_part_have_it_in_the_row_of_their_own_module(nodes, data):
    kernels = nodes["kernels"]
    divided = data.draw(st.sets(st.sampled_from(sorted(set(kernels)))))
    share = kernels.map(kernels.value_counts())
    whole = nodes.groupby("kernels")["time_us"].transform("sum")
    parts = (whole / share).where(kernels.isin(divided), nodes["time_us"])
    folded = by_origin(nodes.assign(time_us_split=parts), "module").set_index("module")
    assert folded["time_us"].sum() == pytest.approx(nodes["time_us"].sum())
    if divided == set(kernels):
        assert folded["also_holds"].isna().all()
        own = nodes["module"].fillna("(no module)").replace("", "(root)")
        own = own.mask(nodes["index"].isna(), "(runtime)")
        expected = parts.groupby(own).sum()
        assert folded["time_us"].to_dict() == pytest.approx(expected.to_dict())


def test_a_part_of_a_kernel_has_that_part_of_its_interval():
    rows = {
        "node": ["conv", "relu", "add"], "index": range(3), "op_type": "Op",
        "module": ["a", "b", "b"], "kernels": ["k", "k", "l"], "time_us": [30.0, None, 4.0],
        "time_us_ci95_low": [24.0, None, 0.0], "time_us_ci95_high": [36.0, None, 8.0],
        "time_us_split": [24.0, 6.0, 4.0],
    }  # fmt: skip
    folded = by_origin(typed_table(pd.DataFrame(rows)), "module").set_index("module")
    columns = ["time_us", "time_us_ci95_low", "time_us_ci95_high"]
    assert folded.loc["a", columns].tolist() == pytest.approx([24, 24 * 0.8, 24 * 1.2])
    assert folded.loc["b", columns].tolist() == pytest.approx([10, 6 * 0.8, 6 * 1.2 + 8])


@SLOW
@given(tables(), st.none() | st.integers(1, 5))
def test_what_was_fused_across_rows_is_told_at_both_ends(nodes, depth):
    folded = by_origin(nodes, "module", depth).set_index("module")
    holds = {(a, b) for a, text in folded["also_holds"].dropna().items() for b in text.split("; ")}
    timed = {(a, b) for b, text in folded["timed_in"].dropna().items() for a in text.split("; ")}
    assert holds == timed
    assert not any(a == b for a, b in holds)
    known = folded["time_us"].notna() | folded["timed_in"].notna()
    assert known.all()
    said = remark(folded.reset_index(), "module")
    if set(folded.index) <= {"(no module)", "(runtime)"}:
        assert said == "no node has a module; models written by tracer export do"
    else:
        assert ("also hold" in (said or "")) == bool(holds)


@SLOW
@given(tables())
def test_a_module_at_a_depth_is_the_sum_of_all_that_lies_in_it(nodes):
    deep = by_origin(nodes, "module").set_index("module")
    for depth in (1, 2, 3):
        folded = by_origin(nodes, "module", depth).set_index("module")
        for module, row in folded.iterrows():
            cut = module.count(".") + 1 == depth
            inside = [
                name
                for name in deep.index
                if name == module or (cut and name.startswith(f"{module}."))
            ]
            assert row["nodes"] == deep.loc[inside, "nodes"].sum()
            times = deep.loc[inside, "time_us"]
            assert pd.isna(row["time_us"]) == times.isna().all()
            assert pd.isna(row["time_us"]) or row["time_us"] == times.sum()


@SLOW
@given(tables())
def test_a_kernel_within_one_ancestor_is_no_news_at_its_depth(nodes):
    below = nodes.assign(module=[f"top.{module}" for module in nodes["module"]])
    folded = by_origin(below, "module", 1)
    assert set(folded["module"]) <= {"top", "(runtime)"}
    assert folded["also_holds"].isna().all()


def test_a_depth_of_anything_but_modules_is_refused():
    nodes = tracer.count(parse(BRANCHES)).nodes
    for by in ("node", "op", "source"):
        with pytest.raises(UsageError, match="Give --by module"):
            grouped(nodes, by, depth=1)


def test_nodes_of_a_body_belong_to_the_module_around_it_unless_they_say_otherwise():
    proto = parse(BRANCHES)
    outer = proto.graph.node[0]
    outer.metadata_props.add(key=provenance.MODULE_KEY, value="gate")
    outer.metadata_props.add(key=provenance.SOURCE_KEY, value="net.py:7")
    then = next(a.g for a in outer.attribute if a.name == "then_branch")
    then.node[0].metadata_props.add(key=provenance.MODULE_KEY, value="gate.open")
    nodes = tracer.count(proto).nodes
    found = dict(zip(nodes["node"], nodes["module"], strict=True))
    bodies = {key: module for key, module in found.items() if key.startswith("If_0.")}
    assert set(bodies.values()) == {"gate", "gate.open"}
    assert [key for key, module in bodies.items() if module == "gate.open"] == [
        next(key for key in bodies if "then_branch" in key)
    ]
    assert set(nodes["source"]) >= {"net.py:7"}
    at_top = grouped(nodes, "module", depth=1).set_index("module")
    assert at_top.loc["gate", "nodes"] == 1 + len(bodies)


CALLS = """
<ir_version: 9, opset_import: ["" : 18, "local" : 1]>
main (float[N,4] x) => (float[N,4] z) { y = local.outer (x)
  z = local.inner (y) }
<domain: "local", opset_import: ["" : 18, "local" : 1]>
outer (x) => (y) { a = Relu (x)
  y = local.inner (a) }
<domain: "local", opset_import: ["" : 18]>
inner (x) => (y) { b = Tanh (x)
  y = Exp (b) }
"""


def test_nodes_of_a_function_belong_to_the_innermost_call_that_says_its_module():
    proto = parse(CALLS)
    for call, module in zip(proto.graph.node, ("enc", "head"), strict=True):
        call.metadata_props.add(key=provenance.MODULE_KEY, value=module)
    nested = proto.functions[0].node[1]
    nested.metadata_props.add(key=provenance.MODULE_KEY, value="enc.tail")
    nested.metadata_props.add(key=provenance.SOURCE_KEY, value="net.py:3")
    proto.functions[1].node[1].metadata_props.add(key=provenance.MODULE_KEY, value="own")
    nodes = tracer.count(proto).nodes
    assert nodes["module"].tolist() == ["enc", "enc.tail", "own", "head", "own"]
    assert nodes["source"].fillna("").tolist() == ["", "net.py:3", "net.py:3", "", ""]


@pytest.mark.parametrize("depth", [1, 2, 3, 9])
def test_ancestors_are_those_that_joining_the_path_gives(depth):
    path = "a.0.b.c"
    nodes = tracer.count(parse(BRANCHES)).nodes.assign(module=path)
    (name,) = grouped(nodes, "module", depth=depth)["module"]
    assert name == list(accumulate(path.split("."), "{}.{}".format))[min(depth, 4) - 1]
