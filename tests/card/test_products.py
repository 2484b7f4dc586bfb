"""Rules of products: what is planted in a product is found, and results of a card are repeated."""

import numpy as np
import pytest
import torch

from tests.card import orders, products, rules
from tests.card.rules import Rule, chain, split
from tests.card.torch_products import TYPES, Case, TorchProduct, words
from tracer.accumulators.hardware.matrix_cores import NVIDIA

H100 = {name: str(each) for name, each in NVIDIA["tc:h100"].items()}


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    monkeypatch.setattr(products, "PROBES", 60)


class Planted(TorchProduct):
    """A product that follows a rule, in place of a device."""

    def __init__(self, case, rule, is_plain=False):
        super().__init__(case, "cpu")
        self.rule, self.is_plain = rule, is_plain

    def plain(self):
        return Planted(self.case, self.rule, is_plain=True)

    def __call__(self, left, right):
        left, right = (side.float().numpy() for side in (left, right))
        bias, scales = self.case.operands()[2], self.case.scales()
        if self.is_plain:
            bias = None if bias is None else np.zeros_like(bias)
            scales = None if scales is None else [np.ones_like(each) for each in scales]
        result = self.rule.of(left, right, self.case.out, bias, scales)
        return torch.from_numpy(result).to(TYPES[self.case.out])


def interleaved(terms, parts, tile):
    """Sums of every so many tiles of terms, joined one after the other, as warps share k."""
    rows = [
        [k for k in range(terms) if k // tile % parts == part] for part in range(parts)
    ]  # fmt: skip
    order = None
    for row in rows:
        part = orders.packed(["chain", None, [[each] for each in row]])
        order = part if order is None else ["join", [order, part]]
    return order


PLANTED = [
    (Case("mm", "fp16", 64, 64, 64), Rule(chain(64, 16), H100["fp16"]), "tc:h100"),
    (Case("mm", "fp16", 16, 16, 256),
     Rule(split(256, 16, 96), H100["fp16"]), "bfma(16,25,fp32,least=-133,promote=96)"),
    (Case("mm", "fp16", 16, 64, 512), Rule(split(512, 16, 256), H100["fp16"], "fp16"), None),
    (Case("mm", "fp16", 16, 64, 128),
     Rule(split(128, 16, 32), H100["fp16"], joined="fp16"), None),
    (Case("linear", "fp16", 16, 16, 64, ("bias",)),
     Rule(chain(64, 16), H100["fp16"], bias="after"), "tc:h100"),
    (Case("linear", "bf16", 16, 16, 64, ("bias",)),
     Rule(chain(64, 16), H100["bf16"], bias="twice"), "tc:h100"),
    (Case("mm", "bf16", 4, 16, 512), Rule(split(512, 16, 256), H100["bf16"]),
     "bfma(16,25,fp32,operands=bf16,least=-133,promote=256)"),
    (Case("mm", "tf32", 16, 16, 128), Rule(chain(128, 8), H100["tf32"], operands="rne"),
     "tc:h100"),
    (Case("mm", "tf32", 16, 16, 64), Rule(chain(64, 8), H100["tf32"], operands="rz"), "tc:h100"),
    (Case("scaled", "fp8-e4m3", 32, 32, 512),
     Rule(split(512, 32, 128), H100["fp8-e4m3"]),
     "bfma(32,13,e8m13,operands=fp8-e4m3,least=-133,promote=128)"),
    (Case("scaled", "fp8-e4m3", 32, 32, 128, ("fast", "rowwise")),
     Rule(chain(128, 32), H100["fp8-e4m3"], scales="columns"), "tc:h100"),
    (Case("mm", "fp16", 32, 32, 64, ("out=fp32",)),
     Rule(chain(64, 16), "bfma(16,23,fp32,rne,least=-133)"), "bfma(16,23,fp32,rne,least=-133)"),
    (Case("mm", "tf32", 1, 32, 64), Rule(interleaved(64, 4, 8), "fp32(fused)"), None),
    (Case("scaled", "fp8-e5m2/fp8-e4m3", 32, 32, 128, ("out=fp32",)),
     Rule(chain(128, 32), "bfma(32,13,e8m13,operands=e5m3,least=-133)"),
     "bfma(32,13,e8m13,operands=e5m3,least=-133)"),
    (Case("mm", "fp32", 16, 16, 64), Rule(interleaved(64, 4, 8), "fp32(fused)"), None),
    (Case("mm", "fp32", 1, 32, 100), Rule(chain(100, 1), "fp32"), "fp32"),
]  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("case", "rule", "spec"), PLANTED, ids=lambda each: str(each)[:60])
def test_the_rule_that_is_planted_in_a_product_is_found(case, rule, spec):
    product = Planted(case, rule)
    record, want = products.observed(product)
    assert "error" not in record
    found = products.explained(record, want)
    assert found["equal"] == 1, (record, found)
    assert found["by"] == "probes"
    assert found["spec"] == spec
    again = Rule.read(found["rule"]).results(case, *products.picked(case, products.KEPT))
    assert rules.same(again, products.decoded(record["kept"], case)).all()


def test_an_order_is_found_where_the_shape_is_unknown():
    """A tree of sums that no candidate has: ((0 to 23) + (24 to 31 in pairs)) + the others."""
    order = ["join", [["join", [chain(24, 8), ["chain", None, [[24, 32, 1, 8]]]]],
                      ["chain", None, [[32, 48, 1, 16]]]]]  # fmt: skip
    case = Case("mm", "fp16", 32, 32, 48)
    probes = orders.Probes(Planted(case, Rule(order, H100["fp16"])), 60)
    assert probes.packed_order() == order


def test_bits_that_a_block_keeps_are_told():
    for form, last in (("fp16", 25), ("tf32", 25)):
        case = Case("mm", form, 32, 32, 32)
        rule = Rule(chain(32, NVIDIA["tc:h100"][form].length), H100[form])
        kept = orders.Probes(Planted(case, rule), 60).kept_bits()
        assert kept.index("0") == last + 1


def test_a_product_without_a_rule_is_not_known():
    case = Case("mm", "fp16", 32, 32, 64)

    class Noisy(Planted):
        def __call__(self, left, right):
            result = super().__call__(left, right)
            return result + (result != 0) * torch.arange(len(result))[:, None] % 3 * 2**-9

    record, want = products.observed(Noisy(case, Rule(chain(64, 16), H100["fp16"])))
    found = products.explained(record, want)
    assert found["equal"] < 1
    assert found["spec"] is None
    assert found["unequal"]["some"]


def test_products_of_torch_on_the_processor_have_a_rule_in_float32():
    case = Case("mm", "fp32", 16, 16, 64)
    record, want = products.observed(TorchProduct(case, "cpu"))
    assert products.explained(record, want)["equal"] == 1


def test_random_operands_are_numbers_of_their_formats():
    from tests.card.torch_products import draw

    for form in ("fp16", "bf16", "fp8-e4m3", "fp8-e5m2"):
        values = draw(3, (1000,), form)
        assert (rules.rounded(values, form) == values).all()
        assert np.abs(values).max() <= 2
    assert words(torch.tensor([1.0])).tolist() == [0x3F800000]


def _measured(card):
    """The products of a card, each with its case."""
    return [
        (Case(**{**each["case"], "options": tuple(each["case"]["options"])}), each)
        for each in card("products")["products"]
        if "equal" in each
    ]


def test_the_instruction_of_the_card_is_the_preset(card):
    """One tile by Triton: no library parts the sum, or rounds it at last."""
    found = {
        case.dtype: each for case, each in _measured(card)
        if case.op == "triton" and not case.options
    }  # fmt: skip
    assert set(found) == set(H100)
    for form, each in found.items():
        assert (each["equal"], each["by"], each["spec"]) == (1, "probes", "tc:h100"), form


@pytest.mark.nightly
def test_products_of_the_card_are_repeated_here_bit_by_bit(card):
    """A few hundred dot products of each; operands come from their seeds."""
    repeated = 0
    for case, each in _measured(card):
        if each["equal"] < 1 or case.k * max(case.m, case.n) > 1 << 20:
            continue
        places = products.picked(case, products.KEPT)
        got = Rule.read(each["rule"]).results(case, *places)
        assert rules.same(got, products.decoded(each["kept"], case)).all(), each["name"]
        repeated += got.size
    assert repeated > 5000


def test_rules_explain_nearly_all_products_of_the_card(card):
    measured = _measured(card)
    known = [each for _, each in measured if each["equal"] == 1]
    assert len(known) >= 0.9 * len(measured), [
        each["name"] for _, each in measured if each["equal"] < 1
    ]
    assert len(measured) >= 40
