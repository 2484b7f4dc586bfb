"""Rules of products of numpy and torch, replayed on any processor, have the bits of the library."""

import numpy as np
import pytest

import tracer
from tracer.accumulators.floats import casting
from tracer.accumulators.spec import kinds
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.float_accumulator import float_format
from tracer.arithmetic import float_rules
from tracer.arithmetic.float_probes import emulated

TERMS, VECTORS = 18, 500


def linear(a, b):
    torch = pytest.importorskip("torch")
    rows, columns = (torch.tensor(each).repeat(4, 1) for each in (a, b))
    return torch.nn.functional.linear(rows, columns, torch.zeros(4))[0, 0].item()


def brain_sum(a):
    torch = pytest.importorskip("torch")
    return torch.tensor(a, dtype=torch.bfloat16).sum().item()


def replayed(result, left, right):
    if result.spec is None:
        sums = float_rules.sums_of(result.facts, left, right)
    else:
        sums = emulated(kinds.parse(result.spec, Accumulator(32)).accumulator, left, right)
    rounded = result.facts.get("result")
    return sums if rounded is None else casting.cast(sums, float_format(rounded))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("function", "operands"),
    [(np.dot, "float32"), pytest.param(np.dot, "float64", marks=pytest.mark.nightly),
     (lambda a: np.add.reduce(a), "float64"),
     pytest.param(linear, "float32", marks=pytest.mark.nightly), (brain_sum, "bf16")],
)  # fmt: skip
def test_a_rule_that_is_known_has_the_bits_of_the_library(function, operands):
    result = tracer.reveal(function, TERMS, operands=operands, in_process=True)
    assert result.is_known or result.reason
    if not result.is_known:
        return
    kind = np.float64 if operands == "float64" else np.float32
    left, right = np.random.default_rng(7).standard_normal((2, VECTORS, TERMS)).astype(kind)
    if operands == "bf16":
        left = casting.cast(left, float_format("bf16"))
    is_sum = function not in (np.dot, linear)
    expected = [function(row) for row in left] if is_sum else list(map(function, left, right))
    right = np.ones_like(right) if is_sum else right
    np.testing.assert_array_equal(
        replayed(result, left.astype(float), right.astype(float)), expected
    )
