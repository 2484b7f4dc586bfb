"""Energies against published figures: the experiment's, QTools' own tests, Horowitz's table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers import energy
from analyzers.cost import cost
from analyzers.energy import Work, operand_bits
from models import families
from tests.graphs import parse
from tracer.errors import InputError, UsageError
from tracer.graph import loading, shape_inference

LAYERS = {  # of the experiment's LeNet: additions and multiplications of one image
    "conv1": (366_912, 352_800),
    "conv2": (249_600, 240_000),
    "fc1": (48_000, 48_000),
    "fc2": (10_080, 10_080),
    "fc3": (850, 840),
}


def table(layers):
    rows = [{"macs": muls, "muls": muls, "adds": adds} for adds, muls in layers.values()]
    return pd.DataFrame(rows, index=list(layers), dtype="Int64")


@pytest.fixture(scope="module")
def lenet():
    model = loading.load(families.shipped("lenet", "torch"))
    types = shape_inference.infer(model, {"x": (1, 3, 32, 32)})
    return cost(model, types, convention="channelwise").table


@pytest.mark.parametrize(("bits", "published"), [(18, 223_315_236), (17, 199_829_594)])
def test_the_experiments_energies_are_exact(lenet, bits, published):
    lab = energy.find("lab")
    assert lab.total(Work.of(lenet), bits) == published
    assert lab.total(Work.of(table(LAYERS)), bits) == published


def test_a_tighter_choice_can_cost_more_than_a_uniform_one(lenet):
    """The experiment's insight: one bit more for the largest layer outweighs the rest."""
    lab, work = energy.find("lab"), Work.of(table(LAYERS))
    by_hand = dict(zip(LAYERS, (18, 16, 17, 16, 17), strict=True))
    assert lab.total(work, by_hand) > lab.total(work, 17)


# qkeras/qtools/examples of test_qenergy.py, revision 78ea90f: `op_cost` of each dense layer of
# the network 784-300-100-10, whose figures are printed with two digits
QENERGY = [
    ("reference d0", 235_200, (8, 8), 32, 70560.0),
    ("reference d1", 30_000, (16, 16), 32, 26500.0),
    ("reference d2", 1_000, (16, 16), 32, 883.33),
    ("trial d0", 235_200, (8, 1), 19, 15729.0),
    ("trial d1", 30_000, (4, 4), 18, 3250.0),
    ("trial d2", 1_000, (4, 4), 16, 102.08),
]


@pytest.mark.parametrize(("layer", "macs", "operands", "bits", "published"), QENERGY)
def test_qtools_own_test_is_reproduced(layer, macs, operands, bits, published):
    work = Work.of(table({layer: (macs, macs)}), {layer: operands})
    result = energy.find("qtools").per_node(work, bits)
    assert result[layer] == pytest.approx(published, abs=0.01)


@pytest.mark.parametrize(
    ("kind", "bits", "picojoule"),
    [("add", 8, 0.03), ("add", 32, 0.1), ("mul", 8, 0.2), ("mul", 32, 3.1)],
)
def test_horowitzs_figures_are_met(kind, bits, picojoule):
    counts = pd.DataFrame({"macs": [1], "muls": [int(kind == "mul")], "adds": [int(kind == "add")]})
    model = energy.find("horowitz45")
    work = Work.of(counts, bits)
    assert model.total(work, bits) == pytest.approx(picojoule)
    assert model.unit == "pJ"


def test_qtools_meets_horowitzs_multiplications():
    model = energy.find("qtools")
    for bits, picojoule in ((8, 0.2), (32, 3.1)):
        work = Work.of(table({"a": (0, 1)}), bits)
        assert model.total(work, 1) == pytest.approx(picojoule, rel=1e-6)


@pytest.mark.parametrize("name", energy.names())
@given(widths=st.lists(st.integers(2, 40), min_size=5, max_size=5), more=st.integers(1, 9))
def test_many_assignments_at_once_are_each_by_itself(name, widths, more):
    model, work = energy.find(name), Work.of(table(LAYERS))
    many = np.array([widths, [bits + more for bits in widths]], float)
    result = model.energies(work, many)
    assert result.shape == (2, 5)
    for row, each in zip(result, many.astype(int).tolist(), strict=True):
        assert model.per_node(work, dict(zip(LAYERS, each, strict=True))) == dict(
            zip(LAYERS, row.tolist(), strict=True)
        )
    assert (result[1] > result[0]).all()


def test_only_nodes_with_sums_of_products_have_energy(lenet):
    energies = energy.energy(energy.find("lab"), Work.of(lenet), 18)
    assert len(energies) == 5
    assert energies["energy"].sum() == 223_315_236
    assert str(energies["energy"].dtype) == "Float64"


def test_bits_of_operands_are_those_of_quantised_types():
    text = """
    <ir_version: 10, opset_import: ["": 21]>
    g (uint8[N,4] x, int4[4,3] w, float[N,4] f, float[4,3] v, float s) => (float[N,3] y) {
      a = DequantizeLinear (x, s)
      b = DequantizeLinear (w, s)
      [qdq] c = MatMul (a, b)
      [floats] d = MatMul (f, v)
      y = Add (c, d)
    }
    """
    model = loading.from_proto(parse(text))
    types = shape_inference.infer(model, {"x": (1, 4), "f": (1, 4)})
    assert operand_bits(model, types) == {"qdq": (8, 4)}
    work = Work.of(cost(model, types).table, operand_bits(model, types))
    assert (work.operand_bits.tolist(), work.weight_bits.tolist()) == ([8, 8], [4, 8])


OWN = """
unit = "fJ"
[mul]
bits = "operands"
polynomial = [1, 0.5, 2]
[add]
bits = "accumulator"
table = { 8 = 30, 32 = 102 }
"""


def test_a_table_of_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(OWN)
    model = energy.find(str(path))
    assert (model.name, model.unit, model.source) == ("mine", "fJ", str(path))
    work = Work.of(table({"a": (2, 3)}), 4)
    assert model.total(work, 16) == pytest.approx(3 * (1 + 0.5 * 4 + 2 * 16) + 2 * (30 + 3 * 8))
    with pytest.raises(InputError, match=r"mine.toml: add.table says nothing of 40 bits. It has"):
        model.total(work, 40)
    path.write_text(OWN.replace("[1, 0.5, 2]", "[-9, 2]"))
    with pytest.raises(InputError, match=r"mine.toml: mul.polynomial is below 0 at 4 bits"):
        energy.find(str(path)).total(work, 16)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("unit", "units", "unknown key units. Keys are add, mul, name, source, unit"),
        ('unit = "fJ"', "", "no key unit"),
        ('unit = "fJ"', "unit = 3", "unit is not a text"),
        ("[mul]", "[mul]\ncubic = 1", "unknown key mul.cubic. Keys are bits, polynomial, table"),
        ('bits = "operands"', "", "no key mul.bits"),
        ('"operands"', '"both"', "mul.bits is 'both'. It is one of accumulator, operands"),
        ("polynomial = [1, 0.5, 2]", "", "mul has no energy. Give one of"),
        ("[1, 0.5, 2]", "[1, true]", r"mul.polynomial\[1\] is True, not a number"),
        ("[1, 0.5, 2]", "[]", "mul.polynomial is not a list of coefficients"),
        ("[1, 0.5, 2]", "[nan]", r"mul.polynomial\[0\] is nan"),
        ("8 = 30", "wide = 30", "add.table.wide is no width in bits"),
        ("8 = 30", "65 = 30", "add.table.65 is no width"),
        ("8 = 30", "8 = -1", "add.table.8 is below 0"),
        ("8 = 30", '8 = "x"', "add.table.8 is 'x', not a number"),
        ("8 = 30", "9" * 5000 + " = 30", "add.table.9999"),
        ("8 = 30", "8 = 1" + "0" * 400, "add.table.8 is 1000"),
        ("8 = 30", "8 = 1" + "0" * 5000, "not TOML"),
        ("[mul]", "[mul", "not TOML"),
    ],
)
def test_a_table_that_is_wrong_is_told_with_file_and_key(tmp_path, old, new, message):
    path = tmp_path / "mine.toml"
    path.write_text(OWN.replace(old, new, 1))
    with pytest.raises(InputError, match=rf"mine\.toml: {message}"):
        energy.find(str(path))


def test_an_energy_model_that_is_not_there():
    with pytest.raises(UsageError, match=r"no energy model 'eyeriss'. There are horowitz45, lab, "):
        energy.find("eyeriss")
    with pytest.raises(InputError, match=r"none.toml: no such energy model"):
        energy.find("none.toml")
