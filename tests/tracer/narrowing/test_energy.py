"""Energies of a narrowed model, against those of `tracer.count` and the models' own formulas."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import tracer
from tracer.analyzers.views import render
from tracer.analyzers.views.text import si
from tracer.errors import UsageError


def narrowed(folder, energy):
    return tracer.narrow(
        folder / "net.onnx", "12", folder / "data.npz", metric="noise", energy=energy
    )


def counted(folder, widths, energy):
    """The energies of `tracer.count`, by node."""
    policy = ",".join(f"{node}={bits}" for node, bits in widths.items())
    trace = tracer.count(folder / "net.onnx", batch=1, energy=energy, accumulator=policy)
    return trace.nodes.set_index("node")


def energies(folder, widths):
    return counted(folder, widths, "lab")["energy"].dropna()


def test_they_are_those_of_a_count_with_the_same_accumulators(folder):
    result = narrowed(folder, "lab")
    after = energies(folder, {n.node: n.bits for n in result.nodes})
    before = energies(folder, {n.node: n.guaranteed_before for n in result.nodes})
    for node in result.nodes:
        assert node.energy == pytest.approx(after[node.node], rel=1e-12)
        assert node.energy_before == pytest.approx(before[node.node], rel=1e-12)
    assert result.energies == pytest.approx((before.sum(), after.sum()), rel=1e-12)
    assert result.energy.model == "lab"
    document = json.loads(render(result, "json"))
    assert document["energies"] == list(result.energies)
    assert "energy per sample" in render(result, "md").decode()


def test_a_sum_without_products_leaves_no_energy_unknown(folder):
    result = narrowed(folder, "lab")
    mean = replace(result.nodes[0], op_type="ReduceMean", energy=None, energy_before=None)
    for op_type, words in (("ReduceMean", "sample: "), ("Conv", "sample: at least ")):
        nodes = (*result.nodes, replace(mean, op_type=op_type))
        page = render(replace(result, nodes=nodes), "md").decode()
        assert f"energy per {words}{si(result.energies[0])}" in page


def test_activations_of_fewer_bits_cost_less(folder):
    result = narrowed(folder, "aladdin40")
    work = counted(folder, {"*": 12}, "aladdin40")
    assert any(node.activation_bits and node.activation_bits < 8 for node in result.nodes)
    for node in result.nodes:
        muls, adds = work.loc[node.node, ["muls", "adds"]]
        for energy, activations, bits in (
            (node.energy, node.activation_bits or 8, node.bits),
            (node.energy_before, 8, node.guaranteed_before),
        ):
            own = muls * 8.63 * activations * 8 / 1024 + adds * 0.0857 * bits / 32
            assert energy == pytest.approx(own, rel=1e-9)
        assert node.energy < node.energy_before


def test_an_unknown_model_is_refused_before_the_work(folder):
    with pytest.raises(UsageError, match="there is no energy model 'steam'"):
        narrowed(folder, "steam")
