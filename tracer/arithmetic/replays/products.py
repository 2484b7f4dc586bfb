"""Products of matrices of floats: MatMul, Gemm, and those that onnxruntime fuses."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tracer.arithmetic.kernel import Inputs, Kernel
from tracer.arithmetic.regions import Sample, find_regions, replay_regions
from tracer.arithmetic.replays import interpreter
from tracer.arithmetic.replays.fused import WithActivation
from tracer.arithmetic.rule import Facts, NotKnown, Rule
from tracer.arithmetic.sums import Operands, orders_of_products, sum_rules
from tracer.support.types import Array

_FLOATS = (np.float32, np.float64)
_SAMPLED_PRODUCTS, _SAMPLED_NUMBERS = 3e9, 2e7
_LEAST_SAMPLES, _MOST_SAMPLES = 16, 160
"""Random runs by their size: with more of them, fewer elements have equal bits by chance."""
_MOST_SECONDS = 20.0
"""Time for the probes of one element."""


class _Products:
    """Products of matrices whose sums have an order, with a bias and a factor."""

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        if _dtype(kernel, 0) not in _FLOATS:
            yield interpreter.ROUNDED
            return
        if 0 in (*(kernel.shape(0) or ()), *(kernel.shape(1) or ())):
            raise NotKnown("sums of no terms are not known")
        kernel = _with_computed_inputs(kernel)
        yield find_regions(_samples(kernel), lambda *place: _rules_of_element(kernel, *place))

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        if not facts:
            return kernel.interpret(inputs)
        values = kernel.values(inputs)
        a, b = _matrices(kernel, *values[:2])
        rows = a.shape[-2:-1] if len(kernel.shape(0) or ()) > 1 else ()
        columns = b.shape[-1:] if len(kernel.shape(1) or ()) > 1 else ()
        shape = *np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *rows, *columns
        return [replay_regions(facts, _operands(kernel, values)).reshape(shape)]


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


def _operands(kernel: Kernel, values: list[Array | None]) -> Operands:
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
    return Operands(a, b, bias)


def _has_bias(kernel: Kernel) -> bool:
    return kernel.shape(2) is not None and bool(kernel.attributes.get("beta", 1.0))


def _with_computed_inputs(kernel: Kernel) -> Kernel:
    """Returns the kernel whose stored inputs but the second are computed: they are not packed."""
    names = [name for place, name in enumerate(kernel.node.input) if place != 1]
    stored = {name: kernel.constants[name] for name in names if name in kernel.constants}
    inputs = {name: (value.dtype, value.shape) for name, value in stored.items()}
    constants = {name: value for name, value in kernel.constants.items() if name not in stored}
    return replace(kernel, inputs={**kernel.inputs, **inputs}, constants=constants)


def _samples(kernel: Kernel) -> list[Sample]:
    """Returns runs with random inputs and weights: real weights may be zeros, or few values."""
    random = np.random.default_rng(0)
    weights = kernel.constant(1)
    if weights is not None:
        drawn = random.standard_normal(weights.shape).astype(weights.dtype)
        kernel = kernel.with_constants({1: drawn})
    samples: list[Sample] = []
    count = _LEAST_SAMPLES
    while len(samples) < count:
        turn = len(samples) if len(samples) < 3 else 0  # zeros tell little of the order
        inputs = kernel.draw(random, turn)
        operands = _operands(kernel, kernel.values(inputs))
        samples.append(Sample(operands, kernel.run(inputs)[0].reshape(-1, operands.b.shape[2])))
        several = min(
            _SAMPLED_PRODUCTS / (operands.a.size * operands.b.shape[2]),
            _SAMPLED_NUMBERS / sum(each.size for each in inputs.values()),
        )
        count = int(np.clip(several, _LEAST_SAMPLES, _MOST_SAMPLES))
    return samples


def _rules_of_element(kernel: Kernel, row: int, column: int) -> Iterator[Rule]:
    """Yields known orders, then the one that probes find. Raises NotKnown if these take long."""
    alpha, has_bias = kernel.attributes.get("alpha", 1.0), _has_bias(kernel)
    terms, add = _element(kernel, row, column)
    for rule in orders_of_products(terms, has_bias or alpha != 1, alpha != 1):
        yield Rule(rule.text, {**rule.facts, "scale": alpha} if alpha != 1 else rule.facts)
    if alpha != 1:
        raise NotKnown("no known order of additions fits, and a factor hides the order from probes")
    start = time.perf_counter()
    add(np.ones(terms + has_bias, np.float32))
    if 2 * terms * (time.perf_counter() - start) > _MOST_SECONDS:
        raise NotKnown("no known order of additions fits, and probes would take too long")
    yield from sum_rules(add, terms + has_bias)


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


_PRODUCTS = _Products()
REPLAYS = {
    "MatMul": _PRODUCTS,
    "Gemm": _PRODUCTS,
    "com.microsoft:FusedMatMul": _PRODUCTS,
    "com.microsoft:FusedGemm": WithActivation(_PRODUCTS, "Gemm"),
}
