"""Products of matrices of floats: MatMul, Gemm, those that onnxruntime fuses, and MatMulNBits.

The weights of MatMulNBits are packed, a few bits each. A linear model multiplies as a Gemm whose
weights are not packed; source: onnxruntime's `core/providers/cpu/ml/linearclassifier.cc`.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tracer.arithmetic import c_library, mlas, sums
from tracer.arithmetic.kernel import Facts, Inputs, Kernel, NotKnown, Rule
from tracer.arithmetic.replays import (
    INTERPRETED,
    ROUNDED,
    WithActivation,
    attention,
    of_floats,
    replay_of,
)
from tracer.graph.operators import CLASSICAL
from tracer.interpreter.compiled_code import loaded
from tracer.interpreter.numeric.tensors import unpacked
from tracer.interpreter.ops.packed_weights import PackedProduct, packed_product
from tracer.support.types import Array

_FLOATS = (np.float32, np.float64)
_SAMPLED_PRODUCTS, _SAMPLED_NUMBERS = 3e9, 2e7
_LEAST_SAMPLES, _MOST_SAMPLES = 16, 160
"""Random runs by their size: with more of them, fewer elements have equal bits by chance."""
_MOST_SECONDS = 20.0
"""Time for the probes of one element."""
_PACKED_SAMPLES = 24
_LEAST_BLOCK = 32
_ROUNDED = (
    "activations rounded to 8 bits, exact sums of {products} products in {lanes} lanes with fused "
    "multiply-add, zero points {when}"
)
_CODES, _SCALES, _ZEROS, _GROUPS, _BIAS = range(1, 6)
_ZERO_POINTS = {2: 0xAA, 4: 0x88, 8: 0x80}
"""Bytes of zero points in the middle of the range, which are taken where none are stored."""
_ONE_MORE = {2: 0xFF, 4: 0x99, 8: 0x81}


class _Products:
    """Products of matrices whose sums have an order, with a bias and a factor."""

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        if _dtype(kernel, 0) not in _FLOATS:
            yield ROUNDED
            return
        if 0 in (*(kernel.shape(0) or ()), *(kernel.shape(1) or ())):
            raise NotKnown("sums of no terms are not known")
        # stored inputs but the second are computed here, so that they are not packed
        names = [name for place, name in enumerate(kernel.node.input) if place != 1]
        stored = {name: kernel.constants[name] for name in names if name in kernel.constants}
        inputs = {name: (value.dtype, value.shape) for name, value in stored.items()}
        constants = {n: value for n, value in kernel.constants.items() if n not in stored}
        kernel = replace(kernel, inputs={**kernel.inputs, **inputs}, constants=constants)
        yield sums.find_regions(_samples(kernel), lambda *place: _rules_of_element(kernel, *place))

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        if not facts:
            return kernel.interpret(inputs)
        values = kernel.values(inputs)
        a, b = _matrices(kernel, *values[:2])
        rows = a.shape[-2:-1] if len(kernel.shape(0) or ()) > 1 else ()
        columns = b.shape[-1:] if len(kernel.shape(1) or ()) > 1 else ()
        shape = *np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *rows, *columns
        return [sums.replay_regions(facts, _operands(kernel, values)).reshape(shape)]


def _dtype(kernel: Kernel, position: int) -> np.dtype[Any]:
    constant = kernel.constant(position)
    return kernel.inputs[kernel.node.input[position]][0] if constant is None else constant.dtype


def _matrices(kernel: Kernel, a: Any, b: Any) -> tuple[Array, Array]:
    """Returns views of the first two inputs as they are multiplied: (..., M, K) and (..., K, N)."""
    attributes = kernel.attributes
    a, b = a[None] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b
    if attributes.get("transBatchA"):
        a = np.moveaxis(a, 0, -2)
    if attributes.get("transBatchB"):
        b = np.moveaxis(b, 0, -2)
    return (
        a.swapaxes(-1, -2) if attributes.get("transA") else a,
        b.swapaxes(-1, -2) if attributes.get("transB") else b,
    )


def _operands(kernel: Kernel, values: list[Array | None]) -> sums.Operands:
    a, b = _matrices(kernel, *values[:2])
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if b.size == b.shape[-2] * b.shape[-1]:  # one matrix for all rows
        a, b = a.reshape(1, -1, a.shape[-1]), b.reshape(1, *b.shape[-2:])
    else:
        a = np.broadcast_to(a, (*batch, *a.shape[-2:])).reshape(-1, *a.shape[-2:])
        b = np.broadcast_to(b, (*batch, *b.shape[-2:])).reshape(-1, *b.shape[-2:])
    shape, bias = (*a.shape[:2], b.shape[2]), None
    if _has_bias(kernel):
        beta = a.dtype.type(kernel.attributes.get("beta", 1.0))
        bias = np.broadcast_to(values[2] * beta, shape)
    elif kernel.attributes.get("alpha", 1.0) != 1:
        bias = np.full(shape, -0.0, a.dtype)  # which adds nothing, not even to -0
    return sums.Operands(a, b, bias)


def _has_bias(kernel: Kernel) -> bool:
    return kernel.shape(2) is not None and bool(kernel.attributes.get("beta", 1.0))


def _samples(kernel: Kernel) -> list[sums.Sample]:
    """Returns runs with random inputs and weights: real weights may be zeros, or few values."""
    random = np.random.default_rng(0)
    weights = kernel.constant(1)
    if weights is not None:
        kind = np.float64 if weights.dtype == np.float64 else np.float32
        drawn = random.standard_normal(weights.shape, kind)
        kernel = kernel.with_constants({1: drawn})
    samples: list[sums.Sample] = []
    count = _LEAST_SAMPLES
    while len(samples) < count:
        turn = len(samples)
        if turn > 2:  # few zeros: they tell what a sum of few terms begins with, and no order
            turn = 0 if turn % 4 else 2
        inputs = kernel.draw(random, turn)
        operands = _operands(kernel, kernel.values(inputs))
        samples.append(
            sums.Sample(operands, kernel.run(inputs)[0].reshape(-1, operands.b.shape[2]))
        )
        several = min(
            _SAMPLED_PRODUCTS / (operands.a.size * operands.b.shape[2]),
            _SAMPLED_NUMBERS / sum(each.size for each in inputs.values()),
        )
        count = int(np.clip(several, _LEAST_SAMPLES, _MOST_SAMPLES))
    if weights is None or len(operands.a) > 1:
        return samples
    rows, _, bias = zip(*(each.operands for each in samples), strict=True)
    beside = None if bias[0] is None else np.concatenate(bias, axis=1)
    stacked = sums.Operands(np.concatenate(rows, axis=1), sums.laid_out(operands.b), beside)
    return [sums.Sample(stacked, np.stack([each.output for each in samples]))]


def _rules_of_element(kernel: Kernel, row: int, column: int) -> Iterator[Rule]:
    """Yields known orders, then the one that probes find. Raises NotKnown if these take long."""
    alpha, has_bias = kernel.attributes.get("alpha", 1.0), _has_bias(kernel)
    terms, add = _element(kernel, row, column)
    for rule in sums.orders_of_products(terms, has_bias or alpha != 1, alpha != 1):
        place = "first" if alpha != 1 else "after the first" if "blocks" in rule.text else "last"
        text = rule.text + f", times {alpha:g}" * (alpha != 1) + f", the bias {place}" * has_bias
        yield Rule(text, {**rule.facts, "scale": alpha} if alpha != 1 else rule.facts)
    if alpha != 1:
        raise NotKnown("no known order of additions fits, and a factor hides the order from probes")
    start = time.perf_counter()
    add(np.ones(terms + has_bias, np.float32))
    if 2 * terms * (time.perf_counter() - start) > _MOST_SECONDS:
        raise NotKnown("no known order of additions fits, and probes would take too long")
    yield from sums.sum_rules(add, terms + has_bias)


def _element(kernel: Kernel, row: int, column: int) -> tuple[int, Callable[[Array], float]]:
    """Returns the number of terms of an element, and a function of these and of the bias."""
    names = list(kernel.node.input)
    values = {
        name: np.ones(kernel.shape(place) or (), _dtype(kernel, place))
        for place, name in enumerate(names)
        if name
    }
    lines, right = _matrices(kernel, values[names[0]], values[names[1]])
    terms = lines.shape[-1]
    if kernel.constant(1) is not None:
        kernel = kernel.with_constants({1: values[names[1]]})

    def add(numbers: Array) -> float:
        lines[..., row % lines.shape[-2], :] = numbers[:terms]
        if len(numbers) > terms:
            values[names[2]][...] = numbers[terms] / kernel.attributes.get("beta", 1.0)
        return float(kernel.run(values)[0].reshape(-1, right.shape[-1])[row, column])

    return terms, add


class _Einsum:
    """Of two tensors, a product of matrices for each index that both and the result have."""

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        if _letters(kernel) is None:
            yield from INTERPRETED.candidates(kernel)
            return
        random, samples = np.random.default_rng(0), []
        stored = {n: kernel.shape(n) or () for n in (0, 1) if kernel.constant(n) is not None}
        drawn = {n: random.standard_normal(shape).astype(np.float32) for n, shape in stored.items()}
        kernel = kernel.with_constants(drawn)
        for _ in range(_PACKED_SAMPLES):
            inputs = kernel.draw(random)
            operands, turn, _ = _matrices_of_letters(kernel, kernel.values(inputs))
            output = np.einsum(turn, kernel.run(inputs)[0])
            samples.append(sums.Sample(operands, output.reshape(-1, operands.b.shape[2])))
        terms = samples[0].operands.a.shape[2]
        yield sums.find_regions(samples, lambda *_: sums.orders_of_products(terms, False, False))

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        if not facts:
            return kernel.interpret(inputs)
        operands, turn, shape = _matrices_of_letters(kernel, kernel.values(inputs))
        output = sums.replay_regions(facts, operands).reshape(shape)
        return [np.ascontiguousarray(np.einsum("->".join(turn.split("->")[::-1]), output))]


def _letters(kernel: Kernel) -> list[str] | None:
    """Returns those of both tensors and of the result; None where one is summed by itself."""
    text = kernel.attributes["equation"].replace(" ", "")
    letters = text.replace("->", ",").split(",")
    is_plain = (text.count(","), text.count("->"), text.count(".")) == (1, 1, 0)
    if not is_plain or any(len(set(each)) < len(each) for each in letters):
        return None
    sizes = {pair for n in (0, 1) for pair in zip(letters[n], kernel.shape(n) or (), strict=True)}
    is_whole = set(letters[0]) ^ set(letters[1]) <= set(letters[2])
    return letters if is_whole and len(dict(sizes)) == len(sizes) else None


def _matrices_of_letters(
    kernel: Kernel, values: list[Any]
) -> tuple[sums.Operands, str, tuple[int, ...]]:
    """Returns the matrices, the equation that turns the result into theirs, and its shape then."""
    first, second, result = _letters(kernel) or ("", "", "")
    shared = [letter for letter in first if letter in second]
    several, summed = (
        "".join(n for n in shared if (n in result) == kept) for kept in (True, False)
    )
    rows, columns = ("".join(n for n in own if n not in shared) for own in (first, second))
    a = np.einsum(f"{first}->{several}{rows}{summed}", values[0])
    b = np.einsum(f"{second}->{several}{columns}{summed}", values[1])
    ends = len(several), len(several + rows), len(several + columns)
    groups, terms = math.prod(a.shape[: ends[0]]), math.prod(a.shape[ends[1] :])
    operands = sums.Operands(
        a.reshape(groups, -1, terms), b.reshape(groups, -1, terms).swapaxes(1, 2)
    )
    shape = a.shape[: ends[1]] + b.shape[ends[0] : ends[2]]
    return operands, f"{result}->{several}{rows}{columns}", shape


class _PackedProducts:
    """Weights are unpacked to float32, one rounding each, and multiplied like others."""

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        if any(kernel.constant(place) is None for place in (_CODES, _SCALES)):
            raise NotKnown("weights that a graph computes are not known")
        if kernel.shape(_GROUPS) is not None:
            raise NotKnown("groups of weights are not known")
        product = _product(kernel, kernel.draw(np.random.default_rng(0)))
        if product.rounds_activations:
            bits, block = product.weights.bits, product.weights.block
            if bits not in (4, 8) or block < _LEAST_BLOCK:
                raise NotKnown(f"rounded activations and {bits} bits in blocks of {block}")
            yield from _rules_of_rounded(kernel, block)
            return
        random = np.random.default_rng(0)
        drawn = kernel.with_constants(
            {
                _CODES: random.integers(0, 256, kernel.shape(_CODES)).astype(np.uint8),
                _SCALES: random.uniform(0.01, 1, kernel.shape(_SCALES)).astype(np.float32),
            }
        )
        samples = []
        for _ in range(_PACKED_SAMPLES):
            inputs = drawn.draw(random)
            operands = _packed_operands(drawn, inputs)
            output = drawn.run(inputs)[0]
            samples.append(sums.Sample(operands, output.reshape(-1, output.shape[-1])))
        yield sums.find_regions(samples, lambda *place: _rules_of_packed(kernel, *place))

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        if facts.get("rounded"):
            product = _product(kernel, inputs)
            return [_rounded_sums(product, facts).reshape(product.shape)]
        shape = kernel.shape(0) or ()
        output = sums.replay_regions(facts, _packed_operands(kernel, inputs))
        return [output.reshape(*shape[:-1], output.shape[-1])]


def _product(kernel: Kernel, inputs: Inputs) -> PackedProduct:
    values: list[Any] = kernel.values(inputs)
    return packed_product(*values, **kernel.attributes)


def _rules_of_rounded(kernel: Kernel, block: int) -> Iterator[Rule]:
    """Yields the rules of AVX-512 and AVX2: a single row has another kernel with AVX2."""
    if block > _LEAST_BLOCK:
        pair = 2 if block == 2 * _LEAST_BLOCK else 1
        for blocks, lanes, is_first, together in (
            (pair, 16, False, False), (pair, 16, False, True), (1, 8, False, True),
            (1, 8, True, True),
        ):  # fmt: skip
            text = _ROUNDED.format(products=8, lanes=lanes, when="first" if is_first else "last")
            own = {"rounded": True, "blocks": blocks, "lanes": lanes, "zeros_first": is_first}
            yield Rule(text, {**own, "together": together})
        return
    alone = 2 if kernel.shape(_ZEROS) is None else 1
    for blocks, is_first in ((4, False), (2, False), (alone, True)):
        text = _ROUNDED.format(
            products=4 if blocks == 1 else 8, lanes=16 if blocks == 4 else 8,
            when="first" if is_first else "last",
        )  # fmt: skip
        yield Rule(text, {"rounded": True, "blocks": blocks, "zeros_first": is_first})


def _lanes(block: int, bits: int, facts: Facts) -> tuple[int, Array, Array]:
    """Returns the size of a block that lanes add, and the lanes of `rounded_products`.

    A lane has the number of a block of those that are added at once, and where four products of it
    begin, and four others. Larger blocks are added in parts of 128, or of 64 in 8 lanes.
    """
    lane, at_once = np.arange(16), facts.get("blocks", 4)
    none = np.zeros(16, np.int64)
    alone = np.stack([none, 4 * lane, none], 1)
    if block == _LEAST_BLOCK:
        step = at_once // 2
        if not step:
            return block, alone[:0], alone[:8]
        low = 16 * (lane // 4 % 2) + 8 // step * (lane % 2)
        which = step * (lane // 2 % 2) + lane // 8
        return block, np.stack([which, low, low + 4 * step], 1)[: 8 * step], alone[:8]
    if facts["lanes"] == 8:
        low, apart = 4 * lane, 32
        if bits == 4:
            low, apart = 32 * (lane // 2 % 2) + 16 * (lane // 4) + 8 * (lane % 2), 4
        return 64, np.stack([none, low, low + apart], 1)[:8], alone[:0]
    if at_once == 2:
        low = 16 * (lane // 4) + 4 * (lane // 2 % 2)
        return block, np.stack([lane % 2, low, low + 8], 1), alone
    return 128, np.stack([none, 4 * lane, 64 + 4 * lane], 1), alone[:0]


def _rounded_sums(product: PackedProduct, facts: Facts) -> Array:
    """Returns the products (M, N) of activations that are rounded to 8 bits, block by block.

    Fingerprints of earlier versions have no `blocks`, which are four there. Source: onnxruntime,
    QuantizeARow_CompInt8 in core/mlas/lib/sqnbitgemm_kernel_avx2.cpp.
    """
    weights = product.weights
    rows, blocks, block = len(product.rows), weights.scales.shape[1], weights.block
    padded = np.zeros((rows, blocks * block), np.float32)
    padded[:, : weights.depth] = product.rows
    values = padded.reshape(rows, blocks, block)
    most, top = np.abs(values).max(2), np.float32(127)
    with np.errstate(divide="ignore"):
        factors = np.where(most > 0, top / most, np.float32(0))
    codes = np.rint(values * factors[..., None]).astype(np.int32)
    scales = most / top
    whole = unpacked(weights.codes, weights.bits, padded.shape[1]).astype(np.int32)
    zeros = np.broadcast_to(weights.zeros, weights.scales.shape)
    if facts.get("zeros_first"):
        whole -= np.repeat(zeros, block, 1).astype(np.int32)
        zeros = np.zeros_like(zeros)
    out = np.empty((rows, len(whole)), np.float32)
    size, *lanes = _lanes(block, weights.bits, facts)
    loaded("sums", "tracer.arithmetic.kernels").rounded_products(
        (codes.reshape(rows, -1), whole),
        (np.repeat(scales, block // size, 1), np.repeat(weights.scales, block // size, 1)),
        (scales * codes.sum(2).astype(np.float32), -(weights.scales * zeros.astype(np.float32))),
        np.zeros(0, np.float32) if product.bias is None else product.bias, out,
        tuple(map(np.ascontiguousarray, lanes)),
        0 if facts.get("together", True) else rows // 2 * 2,
    )  # fmt: skip
    return out


def _packed_operands(kernel: Kernel, inputs: Inputs) -> sums.Operands:
    product = _product(kernel, inputs)
    weights = np.concatenate(
        [product.weights.dequantized(each) for each in product.weights.pieces()]
    )
    shape = 1, len(product.rows), len(weights)
    bias = None if product.bias is None else np.broadcast_to(product.bias, shape)
    return sums.Operands(product.rows[None], weights.T[None], bias)


def _rules_of_packed(kernel: Kernel, row: int, column: int) -> Iterator[Rule]:
    """Yields known orders, then the one that probes find: their weights are all 1."""
    bits, terms = kernel.attributes.get("bits", 4), kernel.attributes["K"]
    bias = kernel.shape(_BIAS)
    yield from sums.orders_of_products(terms, bias is not None, False)
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

    for rule in sums.sum_rules(add, terms):
        program = rule.facts["program"]
        last = [4 * terms + 1] if bias is not None else []
        yield Rule(rule.text, {**rule.facts, "program": [*program, *last]})


_TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX")


class _Linear:
    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        transform = kernel.attributes.get("post_transform", "NONE")
        if transform not in _TRANSFORMS:
            raise NotKnown(f"the transform {transform} is not known")
        weights = _coefficients(kernel)
        if len(weights) < 2 and (_is_classifier(kernel) or transform != "NONE"):
            raise NotKnown("a second class, and transforms of a single target, are not known")
        product = attention.reveal_part(_gemm(kernel, weights))
        facts = {"product": product.facts}
        if transform != "SOFTMAX":
            yield Rule(product.text, facts)
            return
        rows = attention.part("Softmax", (_count_rows(kernel), len(weights)))
        lanes = attention.reveal_part(rows).facts["lanes"]
        yield Rule(f"{product.text}; a softmax, in {lanes} lanes", {**facts, "lanes": lanes})
        yield Rule(f"{product.text}; a softmax by the C library", facts)

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        x = np.ascontiguousarray(kernel.values(inputs)[0].reshape(_count_rows(kernel), -1))
        weights = _coefficients(kernel)
        step = _gemm(kernel, weights)
        given = dict(zip(step.inputs, (x, weights, _biases(kernel)), strict=False))
        (scores,) = replay_of("", "Gemm").replay(step, facts["product"], given)
        outputs = [scores]
        if _is_classifier(kernel):
            own = kernel.attributes
            names = own.get("classlabels_ints") or own.get("classlabels_strings", [])
            labels = np.array([n.decode() if isinstance(n, bytes) else n for n in names])
            outputs.insert(0, labels[scores.argmax(1)])
        match kernel.attributes.get("post_transform", "NONE"):
            case "LOGISTIC":
                outputs[-1] = mlas.logistic(scores)
            case "SOFTMAX":
                outputs[-1] = _shares(scores, facts.get("lanes", 0))
        return [v for name, v in zip(kernel.node.output, outputs, strict=False) if name]


def _shares(scores: Array, lanes: int) -> Array:
    """Returns the softmax of rows, in lanes or, without any, one after the other."""
    if not lanes:  # as it is of few classes
        powers = c_library.exp(scores - scores.max(1, keepdims=True))
        return np.asarray(powers / np.add.accumulate(powers, 1)[:, -1:])
    return attention.softmax(scores, lanes)


def _is_classifier(kernel: Kernel) -> bool:
    return kernel.op_type == "LinearClassifier"


def _biases(kernel: Kernel) -> Array:
    return np.array(kernel.attributes.get("intercepts", []), np.float32)


def _coefficients(kernel: Kernel) -> Array:
    """Returns the weights (targets, features)."""
    weights = np.array(kernel.attributes["coefficients"], np.float32)
    targets = len(_biases(kernel)) if _is_classifier(kernel) else kernel.attributes["targets"]
    return weights.reshape(targets, -1)


def _count_rows(kernel: Kernel) -> int:
    shape = kernel.shape(0) or ()
    return shape[0] if len(shape) > 1 else 1


def _gemm(kernel: Kernel, weights: Array) -> Kernel:
    biases = [(len(weights),)] * (len(_biases(kernel)) == len(weights))
    shapes = (_count_rows(kernel), weights.shape[1]), weights.shape, *biases
    return replace(attention.part("Gemm", *shapes, transB=1), threads=kernel.threads)


_PRODUCTS = _Products()
REPLAYS = {
    "MatMul": _PRODUCTS,
    "Gemm": _PRODUCTS,
    "com.microsoft:FusedMatMul": _PRODUCTS,
    "com.microsoft:FusedGemm": WithActivation(_PRODUCTS, "Gemm"),
    "com.microsoft:MatMulNBits": _PackedProducts(),
    **of_floats(
        {
            "Einsum": _Einsum(),
            f"{CLASSICAL}:LinearClassifier": _Linear(),
            f"{CLASSICAL}:LinearRegressor": _Linear(),
        }
    ),
}
