"""Sums of floats as black boxes: accumulators, blocks, and the products of numpy and torch."""

import math
from dataclasses import replace

import numpy as np
import pytest

import tracer
from tests.arithmetic.random_rules import bias_place, float_box, float_rule, float_sums
from tests.examples import at_night, seeds_of_tonight
from tracer.accumulators.floats import casting
from tracer.accumulators.hardware.matrix_cores import NVIDIA
from tracer.accumulators.spec import kinds
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.float_accumulator import float_format
from tracer.arithmetic.black_box import BlackBox, Operands
from tracer.arithmetic.float_probes import draw, emulated


def claim(function, terms=64, operands="auto"):
    return tracer.reveal(function, terms, operands=operands, in_process=True)


def reveal_rules(seeds, terms):
    """Returns how many rules were right, and those not known; none may be wrong."""
    right, unknown = 0, []
    for seed in seeds:
        random = np.random.default_rng(seed)
        rule, operands = float_rule(random)
        place = bias_place(random, rule)
        result = claim(float_box(rule, place), terms, operands)
        if not result.is_known:
            unknown.append(f"{rule}, bias {place}")
            continue
        box = BlackBox(lambda a, b: 0, terms, Operands.read(operands, terms))
        spec = result.spec or result.facts["sum"]
        claimed = kinds.parse(spec, Accumulator(32)).accumulator
        for _ in range(5 if "sr" not in str(rule) else 1):
            left, right_ = draw(box, random, 20_000, terms)
            parts = (left * right_).sum(1) * random.choice([-1, 0.5, 2.0**-9, 2.0**9], 20_000)
            bias = casting.cast(parts, box.operands.left.format, saturates=True)
            own = float_sums(rule, left, right_, bias, place)
            sums = float_sums(claimed, left, right_, bias, place and result.facts["bias"])
            assert np.array_equal(own, sums, equal_nan=True), (seed, place, rule, result.rule)
        right += 1
    return right, unknown


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", [5003, 5004, 5011, 8108, 33048, 33071])
def test_random_rules_are_revealed(seed):
    right, unknown = reveal_rules([seed], 24)
    assert right == 1, unknown


@pytest.mark.nightly
@pytest.mark.parametrize(
    "spec",
    at_night(
        ["fp8-e5m2(saturate,product=fp32)", "fp8-e4m3(rz,product=fp32)"],
        but=["fp8-e5m2(saturate,product=fp32)"],
    ),
)
def test_a_product_that_is_rounded_to_many_bits_is_told_from_an_exact_one(spec):
    """One sum of 100,000 random ones differs: a product lies just beside a tie of the sum."""
    rule = kinds.parse(spec, Accumulator(32)).accumulator
    assert claim(float_box(rule), 24, "fp32").spec == spec


@pytest.mark.parametrize(
    "spec",
    ["bf16(sr=3,chunk=5)", "e4m11(rz,flush,saturate,order=tiles(4x2,3))",
     "bf16(flush,order=tiles(2,2x4,2))", "fp32(flush,product=e4m2)"],
)  # fmt: skip
def test_ways_to_add_are_revealed(spec):
    """No first level of tiles alone explains many sums; a product may hide how long sums are."""
    rule = kinds.parse(spec, Accumulator(32)).accumulator
    assert claim(float_box(rule), 24, "fp32").spec == spec


@pytest.mark.nightly
def test_tiles_of_several_levels_are_revealed():
    right, unknown = reveal_rules([90007, 90060], 64)
    assert right == 2, unknown


@pytest.mark.nightly
def test_products_below_a_range_that_a_narrow_sum_hides_are_told():
    right, unknown = reveal_rules([1074, 90000], 64)
    assert right == 2, unknown


def test_exponents_that_a_bias_alone_leaves_are_told():
    right, unknown = reveal_rules([225715], 64)
    assert right == 1, unknown


def test_operands_of_few_bits_reach_the_last_bits_of_a_sum():
    """Sums of 64 products of fp4 have more than the 11 bits of fp16 where none is below 0."""
    right, unknown = reveal_rules([185821], 64)
    assert right == 1, unknown


@pytest.mark.nightly
def test_many_random_rules_are_revealed():
    right, unknown = reveal_rules(seeds_of_tonight(1000, 40), 64)
    assert right >= 36, unknown


def loop(a, b):
    """A loop over numbers of numpy: float32."""
    total = np.float32(0)
    for x, y in zip(a, b, strict=True):
        total = total + x * y
    return total


def doubles(a, b):
    """A loop over numbers of Python: float64."""
    return sum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True))


def test_a_loop_is_an_accumulator():
    assert claim(loop, 16).spec == "fp32"


def test_a_loop_of_python_adds_doubles_in_order():
    result = claim(doubles, 16)
    assert (result.rule, result.spec) == ("one after the other, in float64", None)


def test_numpy_adds_in_lanes_of_eight():
    """Documented in numpy's pairwise sum: eight sums, then a tree of them."""
    result = claim(lambda a: np.add.reduce(a), 24, "float32")
    assert result.spec == "fp32(order=tiles(allx8,2,2))"
    result = claim(lambda a: np.add.reduce(a), 24, "float64")
    assert "8 apart" in result.rule and result.rule.endswith("in float64")


def test_terms_that_are_added_in_doubles_are_told_from_the_others():
    """So adds OpenBLAS what remains after its vectors."""

    def product(a, b):
        products = np.atleast_2d(a * b)
        lanes = products[:, :4] + products[:, 4:8]
        rest = np.add.accumulate(products[:, 8:].astype(float), 1)[:, -1]
        return (rest + (lanes[:, 0] + lanes[:, 1] + lanes[:, 2] + lanes[:, 3])).astype(np.float32)

    result = claim(product, 12, "float32")
    assert "in float32, the sums of 4 terms in float64" in result.rule


@pytest.mark.nightly
def test_a_sum_that_is_rounded_to_half_at_last_has_an_order():
    def product(a, b):
        products = np.atleast_2d(a).astype(np.float32) * np.atleast_2d(b)
        return np.add.reduce(products.reshape(len(products), 4, 4), 2).sum(1).astype(np.float16)

    result = claim(product, 16, "float16")
    assert result.spec == "fp32(order=chunked(4))" and result.facts["result"] == "fp16"


@pytest.mark.nightly
def test_lanes_that_are_folded_are_an_accumulator():
    def folded(a, b):
        lanes = [np.float32(0)] * 4
        for k, product in enumerate(a * b):
            lanes[k % 4] = lanes[k % 4] + product
        return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])

    assert claim(folded, 24, "float32").spec == "fp32(order=tiles(allx4,allx2))"


@pytest.mark.nightly
def test_dot_products_of_numpy_and_torch_are_revealed():
    torch = pytest.importorskip("torch")
    for function in (
        np.dot,
        lambda a, b: (torch.from_numpy(a)[None] @ torch.from_numpy(b)[:, None])[0, 0].item(),
    ):
        result = claim(function, 64, "float32")
        assert result.is_known and result.vectors == 10_000, result.reason


@pytest.mark.nightly
def test_sums_in_half_of_numpy_are_revealed():
    """numpy's float16: products are rounded, sums go one after the other."""

    def half(a, b):
        total = np.float16(0)
        for x, y in zip(a, b, strict=True):
            total = total + x * y
        return total

    assert claim(half, 12, "float16").spec == "fp16"


def test_a_sum_rounded_once_has_no_order():
    result = claim(lambda a, b: math.fsum((a.astype(float) * b).tolist()), 16)
    assert not result.is_known and "tree" in result.reason


def card(form, result, **changes):
    """A product as libraries compute it on a card: narrow operands, a sum that is rounded."""
    block = replace(NVIDIA["tc:h100"][form], **changes)

    def product(a, b):
        sides = (casting.cast(each, block.operands) for each in np.atleast_2d(a, b))
        sums = emulated(block, *(each.astype(np.float64) for each in sides))
        return casting.cast(sums, float_format(result)).astype(np.float32)

    return product


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("form", "result", "spec"),
    [("fp16", "fp16", "bfma(16,25,fp32,least=-133)"),
     ("bf16", "fp32", "bfma(16,25,fp32,operands=bf16,least=-133)"),
     ("tf32", "fp32", "bfma(8,25,fp32,operands=tf32,least=-133)")],
)  # fmt: skip
def test_products_of_a_card_are_named_by_their_preset(form, result, spec):
    found = claim(card(form, result), 48)
    assert (found.spec, found.operands) == (spec, form)
    assert "tc:h100" in found.facts["preset"].split(", ")
    assert found.facts.get("result") == (result if result != "fp32" else None)


@pytest.mark.nightly
def test_parts_of_a_sum_that_is_rounded_at_last_are_told_apart():
    """Random products seldom tell sums of 48 from those of 32, once they are rounded to half."""
    found = claim(card("fp16", "fp16", promote=48), 128)
    assert found.spec == "bfma(16,25,fp32,least=-133,promote=48)"
    assert "those of 48 are added in fp32; the last sum is rounded to fp16" in found.rule
