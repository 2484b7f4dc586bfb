"""Convolutions of floats: Conv, FusedConv, and Conv of blocks of channels (NCHWc)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from tracer.arithmetic import layouts, orders, sums, trees
from tracer.arithmetic.kernel import Kernel
from tracer.arithmetic.regions import find_regions
from tracer.arithmetic.replays.fused import WithActivation
from tracer.arithmetic.rule import NotKnown, Rule
from tracer.arithmetic.sums import Operands
from tracer.arithmetic.windows import Convolution, slide
from tracer.interpreter.numeric.windows import padded, patches
from tracer.support.types import Array

_FUSED, _PLAIN = (True, True), (False, True)
_LEAST_RUNS, _LEAST_SEEN = 2, 30
"""Random runs, and results of each place, that tell which order fits there."""
Way = tuple[bool, bool]


class _Conv:
    """Sums over windows: candidates come of the shapes, and if none fits, of probes.

    Orders depend on the pixel of the output; on the filter, where there is one pixel.
    """

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        if any(dtype != np.float32 for dtype, _ in kernel.inputs.values()):
            raise NotKnown("convolutions of other types than float32 are not known")
        block = layouts.block_size() if kernel.node.domain == layouts.DOMAIN else 0
        runs = _runs(kernel, block)
        rule = find_regions(
            runs, lambda *place: _rules(kernel, block, runs[0], *place), ("filters", "pixels")
        )
        yield Rule(rule.text, {**rule.facts, **({"block": block} if block else {})})

    def replay(
        self, kernel: Kernel, facts: Mapping[str, Any], inputs: Mapping[str, Array]
    ) -> list[Array]:
        block = facts.get("block", 0)
        out = _convolution(kernel, block, inputs).compute(facts)
        return [layouts.to_blocks(out, block) if block else out]


class _Run(NamedTuple):
    """A run: `output` is (…, 1, pixels), or (…, filters of a group, 1) where there is one pixel."""

    given: Convolution
    output: Array

    def element(self, row: int, column: int) -> tuple[Operands, Array]:
        """Returns the operands of a pixel, or of a filter, of all images."""
        filters = slice(None) if self.given.slid.pixels > 1 else slice(row, row + 1)
        a, b, beside = self.given.at(column)
        expected = self.given.by_group(self.output)[..., column].transpose(1, 2, 0)[:, filters]
        return Operands(a[:, filters], b, None if beside is None else beside[:, filters]), expected

    def compute(self, facts: Mapping[str, Any]) -> Array:
        """Returns the sums in the order that the facts tell."""
        return self.given.compute(facts).reshape(self.output.shape)


def _runs(kernel: Kernel, block: int) -> list[_Run]:
    """Returns random runs in which each place is seen often. Weights of a model may hide orders."""
    random, seen = np.random.default_rng(1), 0
    drawn = {}
    for at in range(1, len(kernel.node.input)):
        value = kernel.constant(at)
        if value is not None:
            drawn[at] = random.standard_normal(value.shape).astype(np.float32)
    kernel = kernel.with_constants(drawn)
    runs: list[_Run] = []
    while len(runs) < _LEAST_RUNS or seen < _LEAST_SEEN:
        inputs = kernel.draw(random, len(runs))
        given, output = _convolution(kernel, block, inputs), _output(kernel, block, inputs)
        pixels = given.slid.pixels
        grid = (1, pixels) if pixels > 1 else (len(given.w) // given.group, 1)
        runs.append(_Run(given, output.reshape(-1, *grid)))
        seen += output.size // math.prod(grid)
    return runs


def _convolution(kernel: Kernel, block: int, inputs: Mapping[str, Array]) -> Convolution:
    """Returns what the kernel takes in ONNX's layout; with `block` 0 it is in that already."""
    x, w, bias, residual = (*kernel.values(inputs), None, None)[:4]
    assert x is not None and w is not None
    if block:
        w = layouts.weights_from_blocks(w, block)
        x = layouts.from_blocks(x, block) if x.shape[1] >= block else x
        residual = None if residual is None else layouts.from_blocks(residual, block)
    slid = slide(x.shape, w.shape, kernel.attributes)
    return Convolution(x, w, bias, residual, slid, kernel.attributes.get("group", 1))


def _likely_orders(given: Convolution, block: int) -> Iterator[tuple[str, trees.Program, Way]]:
    """Yields orders that onnxruntime's kernels are known for, the likeliest first.

    Matrices of patches are multiplied in blocks of terms, which are longer where there are few
    positions; one filter alone in blocks of 4, without FMA. Kernels of blocks of channels add the
    channels of a block position by position; 128 channels where a window is one element.
    """
    volume, terms, columns = math.prod(given.slid.kernel), given.terms, given.slid.pixels
    channels = terms // volume
    if block:
        first = 1 if channels < block else 128 if volume == 1 else block
        for size in dict.fromkeys(min(size, channels) for size in (first, block, 128, 1)):
            text = f"in blocks of {size} channel{'s' * (size > 1)}, position by position"
            yield text, _by_channels(channels, volume, size), _FUSED
        return
    if len(given.w) == given.group:
        yield "in blocks of 4, then the blocks", orders.four_by_four(terms), _PLAIN
    likely = width = 128
    while columns < terms and width > max(16, 2 * columns - 1):
        likely, width = likely * 2, width // 2
    for size in dict.fromkeys(min(size, terms) for size in (likely, 128, 256, 512, 1024)):
        text = "one after the other" if size == terms else f"in blocks of {size}, then the blocks"
        yield text, orders.blocks(terms, size), _FUSED


def _by_channels(channels: int, volume: int, size: int) -> trees.Program:
    """Returns the order of blocks of channels, each at one position of the window after another."""
    program: trees.Program = []
    for low in range(0, channels, size):
        part = range(low, min(low + size, channels))
        program += orders.run([c * volume + v for v in range(volume) for c in part])
        program += [trees.JOIN] * (low > 0)
    return program


def _with_extras(program: trees.Program, given: Convolution) -> Iterator[tuple[str, trees.Program]]:
    """Yields the order with the places that bias and residual may have, the likeliest first."""
    extras = [("the residual", given.terms + 1)] * (given.residual is not None)
    extras += [("the bias", given.terms)] * (given.bias is not None)
    places = "first", "last", "as the register's start"
    for chosen in product(*([places] * len(extras))):
        if extras and extras[-1][0] == "the bias":  # which is added last by most kernels
            chosen = (*chosen[:-1], {"first": "last", "last": "first"}.get(chosen[-1], chosen[-1]))
        text, whole = "", program
        for (name, term), place in zip(extras, chosen, strict=True):
            text += f", {name} {place}"
            whole = _with_term(whole, term, place)
        yield text, whole


def _with_term(program: trees.Program, term: int, place: str) -> trees.Program:
    if place == "last":
        return [*program, 4 * term + trees.ADD]
    if place == "first":  # the first register, or block, is added to the term
        second = [at for at, step in enumerate(program) if step % 4 == trees.BEGIN][1:]
        end = second[0] if second else len(program)
        return [4 * term + trees.BEGIN, *program[:end], trees.JOIN, *program[end:]]
    return [4 * term + trees.BEGIN, program[0] - trees.BEGIN + trees.ADD, *program[1:]]


def _rules(kernel: Kernel, block: int, run: _Run, row: int, column: int) -> Iterator[Rule]:
    """Yields the rules that a place of the output may have: known orders, then what probes find."""
    given = run.given
    for text, program, (fused, from_zero) in _likely_orders(given, block):
        place, whole = next(_with_extras(program, given))
        facts = {"program": whole, "fused": fused, "from_zero": from_zero}
        yield Rule(f"{sums.WAYS[fused, from_zero]}, {text}{place}", facts)
    program = _probe(kernel, block, given, row, column)
    for place, whole in _with_extras(program, given):
        yield from sums.rules_of_order(whole, trees.describe(program) + place)


def _output(kernel: Kernel, block: int, inputs: Mapping[str, Array]) -> Array:
    out = kernel.run(inputs)[0]
    return layouts.from_blocks(out, block) if block else out


def _probe(
    kernel: Kernel, block: int, given: Convolution, filter_: int, pixel: int
) -> trees.Program:
    """Returns the order of products at a pixel of the output, which probes find."""
    x = given.x
    numbers = np.arange(1, x[0].size + 1).reshape(1, *x.shape[1:])  # 0 is beyond the input
    windows = patches(padded(numbers, given.slid), given.slid)[0]
    channels = given.w.shape[1]
    read = windows[:channels].reshape(given.terms, -1)[:, pixel]
    inside = np.flatnonzero(read)
    fixed = {1: np.ones_like(given.w)}
    fixed |= {2: np.zeros_like(given.bias)} if given.bias is not None else {}
    fixed |= {3: np.zeros_like(given.residual)} if given.residual is not None else {}
    stored = {at: value for at, value in fixed.items() if kernel.constant(at) is not None}
    probed = kernel.with_constants(stored)
    feeds = {kernel.node.input[at]: value for at, value in fixed.items() if at not in stored}
    is_blocked = block and x.shape[1] >= block

    def add(terms: Array) -> float:
        values = np.zeros(x.shape, np.float32)
        values[0].reshape(-1)[read[inside] - 1] = terms
        values = layouts.to_blocks(values, block) if is_blocked else values
        out = _output(probed, block, {**feeds, kernel.node.input[0]: values})
        return float(out[0, filter_].flat[pixel])

    if kernel.constant(0) is not None or len(inside) < 2:
        raise NotKnown("the input cannot be probed")
    return trees.with_terms(trees.find_program(add, len(inside)), inside)


_CONV = WithActivation(_Conv())
REPLAYS = {
    "Conv": _CONV,
    "com.microsoft:FusedConv": _CONV,
    f"{layouts.DOMAIN}:Conv": _CONV,
}
