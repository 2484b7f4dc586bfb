"""Products of floats and packed weights of a few bits: MatMulNBits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tracer.arithmetic.kernel import Inputs, Kernel
from tracer.arithmetic.regions import Sample, find_regions, replay_regions
from tracer.arithmetic.rule import Facts, NotKnown, Rule
from tracer.arithmetic.sums import Operands, orders_of_products, sum_rules
from tracer.interpreter.compiled_code import loaded
from tracer.interpreter.numeric.block_weights import unpacked
from tracer.interpreter.ops.packed_weights import PackedProduct, packed_product
from tracer.support.types import Array

_SAMPLES = 24
_ROUNDED_BLOCK = 32
_ROUNDED = (
    "activations rounded to 8 bits, exact sums of 8 products in 16 lanes with fused multiply-add, "
    "zero points last"
)
_CODES, _SCALES, _ZEROS, _GROUPS, _BIAS = range(1, 6)
_ZERO_POINTS = {2: 0xAA, 4: 0x88, 8: 0x80}
"""Bytes of zero points in the middle of the range, which are taken where none are stored."""
_ONE_MORE = {2: 0xFF, 4: 0x99, 8: 0x81}


class _PackedProducts:
    """Weights are unpacked to float32, one rounding each, and multiplied like others."""

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        if any(kernel.constant(place) is None for place in (_CODES, _SCALES)):
            raise NotKnown("weights that a graph computes are not known")
        if kernel.shape(_GROUPS) is not None:
            raise NotKnown("groups of weights are not known")
        product = _product(kernel, kernel.draw(np.random.default_rng(0)))
        if product.rounds_activations:
            if (product.weights.bits, product.weights.block) != (4, _ROUNDED_BLOCK):
                raise NotKnown("activations are rounded to 8 bits, in blocks of another size")
            yield Rule(_ROUNDED, {"rounded": True})
            return
        random = np.random.default_rng(0)
        drawn = kernel.with_constants(
            {
                _CODES: random.integers(0, 256, kernel.shape(_CODES)).astype(np.uint8),
                _SCALES: random.uniform(0.01, 1, kernel.shape(_SCALES)).astype(np.float32),
            }
        )
        samples = []
        for _ in range(_SAMPLES):
            inputs = drawn.draw(random)
            operands = _operands(drawn, inputs)
            output = drawn.run(inputs)[0]
            samples.append(Sample(operands, output.reshape(-1, output.shape[-1])))
        yield find_regions(samples, lambda *place: _rules_of_element(kernel, *place))

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        if facts.get("rounded"):
            product = _product(kernel, inputs)
            return [_rounded_sums(product).reshape(product.shape)]
        shape = kernel.shape(0) or ()
        output = replay_regions(facts, _operands(kernel, inputs))
        return [output.reshape(*shape[:-1], output.shape[-1])]


def _product(kernel: Kernel, inputs: Inputs) -> PackedProduct:
    values: list[Any] = kernel.values(inputs)
    return packed_product(*values, **kernel.attributes)


def _rounded_sums(product: PackedProduct) -> Array:
    """Returns the products (M, N) of activations that are rounded to 8 bits, block by block.

    Source: onnxruntime, QuantizeARow_CompInt8 in core/mlas/lib/sqnbitgemm_kernel_avx2.cpp.
    """
    weights = product.weights
    rows, blocks = len(product.rows), weights.scales.shape[1]
    padded = np.zeros((rows, blocks * _ROUNDED_BLOCK), np.float32)
    padded[:, : weights.depth] = product.rows
    values = padded.reshape(rows, blocks, _ROUNDED_BLOCK)
    most, top = np.abs(values).max(2), np.float32(127)
    with np.errstate(divide="ignore"):
        factors = np.where(most > 0, top / most, np.float32(0))
    codes = np.rint(values * factors[..., None]).astype(np.int32)
    scales = most / top
    whole = unpacked(weights.codes, 4, padded.shape[1]).astype(np.int32)
    out = np.empty((rows, len(whole)), np.float32)
    loaded("integers", "tracer.arithmetic.kernels").rounded_products(
        (codes.reshape(rows, -1), whole),
        (scales, np.ascontiguousarray(weights.scales)),
        (scales * codes.sum(2).astype(np.float32), -(weights.scales * np.float32(weights.zeros))),
        np.zeros(0, np.float32) if product.bias is None else product.bias, out,
    )  # fmt: skip
    return out


def _operands(kernel: Kernel, inputs: Inputs) -> Operands:
    product = _product(kernel, inputs)
    weights = np.concatenate(
        [product.weights.dequantized(each) for each in product.weights.pieces()]
    )
    shape = 1, len(product.rows), len(weights)
    bias = None if product.bias is None else np.broadcast_to(product.bias, shape)
    return Operands(product.rows[None], weights.T[None], bias)


def _rules_of_element(kernel: Kernel, row: int, column: int) -> Iterator[Rule]:
    """Yields known orders, then the one that probes find: their weights are all 1."""
    bits, terms = kernel.attributes.get("bits", 4), kernel.attributes["K"]
    bias = kernel.shape(_BIAS)
    yield from orders_of_products(terms, bias is not None, False)
    ones: dict[int, Array] = {
        _CODES: np.full(kernel.shape(_CODES) or (), _ONE_MORE[bits], np.uint8),
        _SCALES: np.ones(kernel.shape(_SCALES) or (), np.float32),
    }
    if kernel.shape(_ZEROS) is not None:
        ones[_ZEROS] = np.full(kernel.shape(_ZEROS) or (), _ZERO_POINTS[bits], np.uint8)
    if bias is not None:
        ones[_BIAS] = np.zeros(bias, np.float32)
    probed = kernel.with_constants(ones)
    rows = np.ones(kernel.shape(0) or (), np.float32)

    def add(numbers: Array) -> float:
        rows.reshape(-1, terms)[row] = numbers
        output = probed.run({kernel.node.input[0]: rows})[0]
        return float(output.reshape(-1, output.shape[-1])[row, column])

    for rule in sum_rules(add, terms):
        program = rule.facts["program"]
        last = [4 * terms + 1] if bias is not None else []
        yield Rule(rule.text, {**rule.facts, "program": [*program, *last]})


REPLAYS = {"com.microsoft:MatMulNBits": _PackedProducts()}
