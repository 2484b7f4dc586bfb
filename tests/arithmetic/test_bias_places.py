"""Where a black box adds its bias: in loops of numpy and Python, and in torch."""

import numpy as np
import pytest

import tracer


def claim(function, terms=8, operands="float32"):
    return tracer.reveal(function, terms, operands=operands, in_process=True)


def total(a, b, start, kind):
    """A loop over numbers of numpy."""
    for x, y in zip(a, b, strict=True):
        start = kind(start + x * y)
    return start


def lanes(a, b, start, first):
    """Four lanes, which are added in turn; the first lane, or the sum of lanes, has a start."""
    sums = [start if first else np.float32(0), *[np.float32(0)] * 3]
    for k, product in enumerate(a * b):
        sums[k % 4] = sums[k % 4] + product
    whole = np.float32(0) if first else start
    for each in sums:
        whole = whole + each
    return whole


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("function", "operands", "spec", "place"),
    [
        (lambda a, b, c: total(a, b, c, np.float32), "float32", "fp32", "first"),
        (lambda a, b, c: total(a, b, np.float32(0), np.float32) + c, "float32",
         "fp32(bias=last)", "last"),
        (lambda a, b, c: np.float32(total(a, b, np.float16(0), np.float16)) + np.float32(c),
         "float16", None, "after the last rounding, in fp32"),
        (lambda a, b, c: lanes(a, b, c, False), "float32", "fp32(order=lanes(4))", "first"),
        (lambda a, b, c: lanes(a, b, c, True), "float32", None, "as the register's start"),
        (lambda a, b, c: sum((x * y for x, y in zip(a.tolist(), b.tolist(), strict=True)), c),
         "float64", None, "as the register's start"),
    ],
)  # fmt: skip
def test_the_place_of_a_bias_of_floats_is_found(function, operands, spec, place):
    result = claim(function, 8, operands)
    assert (result.spec, result.facts["bias"]) == (spec, place), result.reason
    assert result.rule.endswith(f"; the bias {place}")


def saturating(a, b, bias, bits):
    """A loop in Python."""
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    bias = max(low, min(high, int(bias)))
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        bias = max(low, min(high, bias + x * y))
    return bias


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("function", "spec", "place"),
    [
        (lambda a, b, bias: saturating(a, b, bias, 16), "16", "first"),
        (lambda a, b, bias: saturating(np.append(a, bias), np.append(b, 1), 0, 16), "16(bias=last)",
         "last"),
        (lambda a, b, bias: saturating(a, b, 0, 16) + int(bias), None,
         "after the sum, in more bits"),
        (lambda a, b, bias: saturating(a, b, bias, 24), "24", "first"),
        (lambda a, b, bias: np.dot(a.astype(np.int32), b.astype(np.int32)) + bias,
         "32(overflow=wrap)", "first"),
    ],
)  # fmt: skip
def test_the_place_of_a_bias_of_integers_is_found(function, spec, place):
    """A bias also tells a register that no sum of bytes leaves."""
    result = claim(function, 8, "int8")
    assert (result.spec, result.facts["bias"]) == (spec, place), result.reason


def test_a_bias_tells_an_unsigned_register_that_no_sum_leaves():
    """Pairs hold 16 bits, so that no sum of them passes 18: only a bias brings it beyond 24."""

    def pairs(a, b, bias):
        total = max(0, min((1 << 24) - 1, int(bias)))
        for pair in (a * b).reshape(-1, 2).sum(1).tolist():
            total = max(0, min((1 << 24) - 1, total + max(-(1 << 15), min((1 << 15) - 1, pair))))
        return total

    result = claim(pairs, 16, "int64")
    assert result.spec.startswith("u24(order="), result.spec
    assert result.facts["bias"] == "first"


@pytest.mark.nightly
@pytest.mark.parametrize("factor", [2, None])
def test_a_bias_that_is_scaled_or_added_amid_the_terms_is_not_known(factor):
    def product(a, b, bias):
        if factor:
            return total(a, b, factor * bias, np.float32)
        half = total(a[:4], b[:4], np.float32(0), np.float32)
        return total(a[4:], b[4:], half + bias, np.float32)

    result = claim(product)
    assert not result.is_known and "no place explains the bias" in result.reason


@pytest.mark.nightly
def test_an_argument_that_has_a_default_is_a_bias_by_its_name_alone():
    def linear(a, b, bias=None):
        return total(a, b, np.float32(0) if bias is None else bias, np.float32)

    assert claim(linear).facts["bias"] == "first"
    assert "bias" not in claim(lambda a, b, out=None: total(a, b, np.float32(0), np.float32)).facts


@pytest.mark.nightly
def test_the_bias_of_torch_has_a_place():
    torch = pytest.importorskip("torch")

    def linear(a, b, bias):
        rows, weights = (torch.tensor(np.repeat(each[None], 8, 0)) for each in (a, b))
        return float(torch.nn.functional.linear(rows, weights, torch.full((8,), float(bias)))[0, 0])

    result = claim(linear, 32)
    if not result.is_known:
        pytest.skip(f"torch adds in an order of its own on this processor: {result.reason}")
    assert result.facts["bias"] in ("first", "last")
