"""Energies in the node table: the published totals, and the same figures from every command."""

import io

import numpy as np
import onnx
import pandas as pd
import pytest

import tracer
import tracer.cli
from models import families
from tests.graphs import parse
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views import render
from tracer.api.whatif import what_if
from tracer.errors import UsageError
from tracer.whatif.options import WhatIfOptions

LENET = families.shipped("lenet", "torch").with_suffix(".int8.onnx")
PUBLISHED = {
    "18": 223_315_236,
    "17": 199_829_594,
    "conv1=18,conv2=16,fc1=17,fc2=16,fc3=17": 204_032_186,  # widths of the experiment, by layer
}
QGEMMS = """
<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
g (uint8[N,4] x, uint8[N,4] x2) => (float y, float z) {
  m = ReduceMax <axes = [1], keepdims = 0> (x)
  f = Cast <to = 1> (m)
  every = Equal (f, f)
  rows = Compress <axis = 0> (x, every)
  [first] a = com.microsoft.QGemm (rows, s, zero, w, s, zero, , s, zero)
  [second] b = com.microsoft.QGemm (a, s, zero, w, s, zero, , s, zero)
  [known] c = QLinearMatMul (x2, s, zero, w, s, zero, s, zero)
  y = DequantizeLinear (b, s, zero)
  z = DequantizeLinear (c, s, zero)
}
"""


def command(capfd, *args):
    code = tracer.cli.main([str(arg) for arg in args])
    out, err = capfd.readouterr()
    assert code == 0, err
    return out


def by_node(trace):
    return trace.nodes.set_index("node")["energy"].dropna().to_dict()


@pytest.fixture(scope="module")
def qgemms():
    weight = np.arange(16, dtype=np.uint8).reshape(4, 4)
    return parse(QGEMMS, w=weight, s=np.float32(0.1), zero=np.uint8(3))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("accumulator", PUBLISHED)
@pytest.mark.parametrize("columns", [80, 160])
def test_count_prices_an_assignment_of_widths_as_published(
    capfd, monkeypatch, accumulator, columns
):
    monkeypatch.setenv("COLUMNS", str(columns))
    options = ("--accumulator", accumulator, "--convention", "channelwise", "--magnitude")
    out = command(capfd, "count", LENET, "--energy", "lab", *options)
    assert f"energy: {PUBLISHED[accumulator]:,} units per run (lab)" in out.splitlines()
    table = pd.read_csv(
        io.StringIO(command(capfd, "count", LENET, "--energy=lab", *options, "--csv"))
    )
    assert table["energy"].sum() == PUBLISHED[accumulator]
    assert table["energy"].notna().equals(table["macs"] > 0)


def test_an_accumulator_alone_fills_the_widths():
    nodes = tracer.count(LENET, accumulator="conv1=18,Gemm=16").nodes
    assert nodes["bits"].dropna().tolist() == [18, 16, 16, 16]
    assert nodes["energy"].isna().all()
    with pytest.raises(UsageError, match="'conv9=18' matches no node"):
        tracer.count(LENET, accumulator="conv9=18")
    with pytest.raises(UsageError, match="Set an accumulator as well"):
        tracer.count(LENET, fixed="8:5")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("family", ["lenet", "resnet_cifar", "transformer"])
def test_count_profile_and_interpret_agree(family, name="aladdin40"):
    model = families.shipped(family, "torch").with_suffix(".int8.onnx")
    counted = tracer.count(model, energy=name)
    profiled = tracer.profile(model, energy=name, runs=2, warmup=0, confirm=False)
    assert by_node(profiled) == by_node(counted)
    macs = counted.nodes["macs"] > 0
    assert counted.nodes["energy"].notna().equals(macs.astype("boolean").fillna(False).astype(bool))
    emulated = tracer.interpret(model, accumulator=20, energy=name, batch=1)
    assert by_node(emulated) == by_node(tracer.count(model, energy=name, accumulator=20))
    assert emulated.nodes["bits"].dropna().eq(20).all()


@pytest.mark.nightly
def test_energies_are_those_that_a_what_if_minimises():
    options = WhatIfOptions(limit=4, search=False, range_convention="magnitude", energy="qtools")
    (variant,) = what_if(LENET, [17, 18], "digits", options).variants
    for bits in (17, 18):
        priced = by_node(tracer.count(LENET, energy="qtools", accumulator=bits))
        assert (
            dict(zip([w.node for w in variant.work], variant.energies[bits], strict=True)) == priced
        )
    emulated = tracer.interpret(LENET, accumulator=18, batch=3)
    assert emulated.settings["energy"]["model"] == "lab"
    three = {
        node: 3 * energy
        for node, energy in by_node(tracer.count(LENET, energy="lab", accumulator=18)).items()
    }
    assert by_node(emulated) == three


def test_floats_have_published_figures_or_none():
    model = families.shipped("lenet", "torch")
    trace = tracer.count(model, energy="horowitz45")
    nodes = trace.nodes[trace.nodes["macs"] > 0]
    expected = nodes["muls"] * 3.7 + nodes["adds"] * 0.9
    assert nodes["energy"].tolist() == pytest.approx(expected.tolist())
    trace = tracer.count(model, energy="lab")
    assert trace.nodes["energy"].isna().all()
    assert trace.notes[-1].endswith("lab has no figures for float32")
    assert "energy: unknown (lab)" in render(trace, "md").decode()
    fixed = tracer.count(model, energy="lab", accumulator=18, fixed="8:5/8:7")
    assert fixed.nodes["energy"].sum() == fixed.nodes.query("macs > 0")["muls"].sum() * 18**2 + (
        fixed.nodes.query("macs > 0")["adds"].sum() * 18
    )


def test_unknown_work_is_missing_and_a_run_knows_it(qgemms, tmp_path):
    counted = tracer.count(qgemms, energy="lab")
    assert set(by_node(counted)) == {"known"}
    assert any("3 nodes behind 'Compress_3'" in note for note in counted.notes)
    assert "energy: at least " in render(counted, "md").decode()
    complete = {"first", "second", "known"}
    profiled = tracer.profile(qgemms, energy="lab", runs=1, warmup=0)
    assert set(by_node(profiled)) == complete
    second = profiled.nodes.set_index("node").loc["second"]
    assert second["macs"] == 4 * 4
    assert second["energy"] == second["muls"] * 32**2 + second["adds"] * 32
    assert set(by_node(tracer.interpret(qgemms, accumulator=24))) == complete


def test_a_what_if_leaves_unknown_work_out(qgemms, tmp_path):
    onnx.save(qgemms, tmp_path / "m.onnx")
    zeros = np.zeros((4, 4), np.uint8)
    np.savez(tmp_path / "d.npz", x=zeros, x2=zeros)
    options = WhatIfOptions(limit=4, search=False, metric="agreement", batch=2)
    result = what_if(tmp_path / "m.onnx", [24], str(tmp_path / "d.npz"), options)
    (variant,) = result.variants
    energies = dict(zip([w.node for w in variant.work], variant.energies[24], strict=True))
    assert energies["second"] is None
    assert variant.energy(24) == energies["known"] > 0
    assert "energies exclude nodes of unknown work: " in " ".join(result.notes)
    assert "second" in " ".join(result.notes)


def test_a_stored_trace_says_which_energies_it_has(tmp_path):
    trace = tracer.count(LENET, energy="qtools")
    trace.save(tmp_path / "t.trace")
    loaded = tracer.load(tmp_path / "t.trace")
    assert loaded.settings["energy"] == {
        "model": "qtools", "unit": "pJ", "source": "QTools (google/qkeras), 45 nm",
    }  # fmt: skip
    assert by_node(loaded) == by_node(trace)


def test_numbers_in_full_on_request_and_always_in_markdown(capfd):
    trace = tracer.count(LENET, energy="lab", accumulator=18)
    conv1 = by_node(trace)["node_Conv_22"]
    page = render(trace, "md", ViewOptions(top=1)).decode()
    arguments = ("count", LENET, "--energy", "lab", "--accumulator", "18")
    short = command(capfd, *arguments)
    complete = command(capfd, *arguments, "--full-numbers")
    assert conv1 == 352_800 * (18**2 + 18)
    assert f"{conv1:,.0f}" in page
    assert f"{conv1:,.0f}" in complete
    assert f"{conv1:,.0f}" not in short
    assert "121 M" in short
    assert "651,720 MACs" in complete
    assert "652 k MACs" in short
