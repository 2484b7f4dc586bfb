"""Energies against published figures: the experiment's, QTools' own tests, Horowitz's table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import families
from tests.graphs import parse
from tests.interpreter.models import fused
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.policy import Rule
from tracer.analyzers import energy
from tracer.analyzers.cost import cost
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.analyzers.energy import Operands, Work, operands
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
    return cost(TypedModel(model, types), convention="channelwise").table


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


@pytest.mark.parametrize(("layer", "macs", "factors", "bits", "published"), QENERGY)
def test_qtools_own_test_is_reproduced(layer, macs, factors, bits, published):
    work = Work.of(table({layer: (macs, macs)}), {layer: Operands(*factors)})
    result = energy.find("qtools").per_node(work, bits)
    assert result[layer] == pytest.approx(published, abs=0.01)


INTEGERS = {  # pJ of an addition and a multiplication, as published
    ("horowitz45", 8): (0.03, 0.2),
    ("horowitz45", 32): (0.1, 3.1),
    ("qtools", 32): (0.1, 3.1),
    ("aladdin40", 32): (0.0857, 8.63),
    ("aladdin40", 16): (0.0857 / 2, 8.63 / 4),  # the scaling that the plug-in states
}
FLOATS = {
    ("horowitz45", "float16"): (0.4, 1.1),
    ("horowitz45", "float32"): (0.9, 3.7),
    ("qtools", "float16"): (0.4, 1.1),
    ("qtools", "float32"): (0.9, 3.7),
    ("aladdin40", "float32"): (7.93, 24.4),
}


def each_operation(name, factors, bits):
    """The energies of one addition and of one multiplication."""
    model = energy.find(name)
    assert model.unit == "pJ"
    counts = pd.DataFrame({"macs": 1, "muls": [0, 1], "adds": [1, 0]}, index=["add", "mul"])
    work = Work.of(counts, {"add": factors, "mul": factors})
    return tuple(model.per_node(work, bits).values())


@pytest.mark.parametrize(("name", "bits"), INTEGERS)
def test_published_figures_of_integers_are_met(name, bits):
    result = each_operation(name, Operands(bits, bits), bits)
    assert result == pytest.approx(INTEGERS[name, bits], rel=1e-6)


@pytest.mark.parametrize(("name", "dtype"), FLOATS)
def test_published_figures_of_floats_are_met_whatever_the_accumulator(name, dtype):
    bits = int(dtype.removeprefix("float"))
    for accumulator in (8, 32):
        result = each_operation(name, Operands(bits, bits, dtype), accumulator)
        assert result == FLOATS[name, dtype]


@pytest.mark.parametrize("name", energy.names())
def test_a_float_type_without_a_published_figure_has_no_energy(name):
    floats = {"bfloat16": 16, "float64": 64, "float8_e4m3fn": 8}
    for dtype, bits in floats.items():
        assert (name, dtype) not in FLOATS
        work = Work.of(table({"a": (1, 1), "b": (1, 1)}),
                       {"a": Operands(bits, bits, dtype), "b": Operands(8, 8)})  # fmt: skip
        assert list(energy.find(name).per_node(work, 32)) == ["b"]
        assert np.isnan(energy.find(name).energies(work, np.full((3, 2), 32.0))[:, 0]).all()


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


TYPES = """
<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
g (uint8[1,4] x, int4[4,3] w, uint8[4,4] q, float[1,4] f, float[4,3] v, int8[4,3] e,
   float16[1,4] h, float16[4,3] k, double[1,4] d, double[4,3] u, float s, float16 t, uint8 z)
  => (float[1,3] y)
{
  a = DequantizeLinear (x, s)
  b = DequantizeLinear (w, s)
  c = DequantizeLinear (q, s)
  moved = Transpose <perm = [1, 0]> (c)
  halves = DequantizeLinear (w, t)
  [qdq] qdq_y = MatMul (a, b)
  [moved_between] moved_y = MatMul (a, moved)
  [floats] float_y = MatMul (f, v)
  [half] half_y = MatMul (h, k)
  [doubles] double_y = MatMul (d, u)
  [weights_only] only_y = MatMul (h, halves)
  [integers] integer_y = MatMulInteger (x, e)
  [qlinear] qlinear_y = QLinearMatMul (x, s, z, q, s, z, s, z)
  [dynamic] dynamic_y = com.microsoft.DynamicQuantizeMatMul (f, e, s)
  y = Add (qdq_y, float_y)
}
"""


def test_operands_have_the_types_of_the_graph():
    model = loading.from_proto(parse(TYPES))
    found = operands(TypedModel(model, shape_inference.infer(model, {})))
    assert {
        key: each for key, each in found.items() if not key.startswith(("Deq", "Tra", "Add"))
    } == {
        "qdq": Operands(8, 4),
        "moved_between": Operands(8, 8),
        "floats": Operands(32, 32, "float32"),
        "half": Operands(16, 16, "float16"),
        "doubles": Operands(64, 64, "float64"),
        "weights_only": Operands(16, 16, "float16"),
        "integers": Operands(8, 8),
        "qlinear": Operands(8, 8),
        "dynamic": Operands(8, 8),
    }


@pytest.mark.parametrize(("level", "expected"), [
    (4, Operands(8, 2)), (0, Operands(32, 32, "float32")),
])  # fmt: skip
def test_packed_weights_are_integers_where_activations_are_rounded(level, expected):
    attributes = {"K": 32, "N": 1, "bits": 2, "block_size": 32, "accuracy_level": level}
    inputs = {"a": np.ones((1, 32), np.float32), "b": np.zeros((1, 1, 8), np.uint8),
              "scales": np.ones((1, 1), np.float32)}  # fmt: skip
    model = loading.from_proto(fused("MatMulNBits", inputs, stored=["b", "scales"], **attributes))
    assert operands(TypedModel(model, shape_inference.infer(model, {}))) == {"node": expected}


def priced(name, model, rules=None):
    typed = TypedModel(model, shape_inference.infer(model, {}))
    result = energy.energy(energy.find(name), typed, cost(typed).table, rules)
    assert str(result.table["energy"].dtype) == "Float64"
    return result.table["energy"].to_dict(), result.notes


def test_an_addition_has_the_width_of_the_accumulator_or_32_bits():
    model = loading.from_proto(parse(TYPES))
    rule = Rule(Accumulator(18))
    energies, notes = priced("lab", model, {"qdq": rule})
    assert energies["qdq"] == 12 * (18**2 + 18)
    assert energies["integers"] == 12 * (32**2 + 32)
    assert set(energies) == {"qdq", "moved_between", "integers", "qlinear"}  # dynamic: no shapes
    assert notes == (
        "energy unknown, excluded from the total: floats: lab has no figures for float32",
        "energy unknown, excluded from the total: half, weights_only: lab has no figures for "
        "float16",
        "energy unknown, excluded from the total: doubles: lab has no figures for float64",
    )


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
    work = Work.of(table({"a": (2, 3)}), {"a": Operands(4, 4)})
    assert model.total(work, 16) == pytest.approx(3 * (1 + 0.5 * 4 + 2 * 16) + 2 * (30 + 3 * 8))
    floats = Work.of(table({"a": (2, 3)}), {"a": Operands(16, 16, "bfloat16")})
    assert model.per_node(floats, 32) == {}
    path.write_text(f"{OWN}[bfloat16]\nmul = 0.7\nadd = 0.25")
    assert energy.find(str(path)).total(floats, 32) == pytest.approx(3 * 0.7 + 2 * 0.25)
    with pytest.raises(InputError, match=r"mine.toml: add.table says nothing of 40 bits. It has"):
        model.total(work, 40)
    path.write_text(OWN.replace("[1, 0.5, 2]", "[-9, 2]"))
    with pytest.raises(InputError, match=r"mine.toml: mul.polynomial is below 0 at 4 bits"):
        energy.find(str(path)).total(work, 16)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("unit", "units", "unknown key units. Keys are add, bfloat16, float16, .*, unit"),
        ("[mul]", "float16 = 2\n[mul]", "float16 is not a table"),
        ("[mul]", "[float16]\nmul = 1\n[mul]", "no key float16.add"),
        ("[mul]", "[float16]\nmul = 1\nadd = -1\n[mul]", "float16.add is below 0"),
        ("[mul]", "[float16]\nmul = 1\nadd = 1\nbits = 8\n[mul]", "unknown key float16.bits"),
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
    with pytest.raises(
        UsageError, match=r"no energy model 'eyeriss'. There are aladdin40, horowitz45, "
    ):
        energy.find("eyeriss")
    with pytest.raises(InputError, match=r"none.toml: no such energy model"):
        energy.find("none.toml")
