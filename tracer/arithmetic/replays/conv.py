"""Convolutions of floats: Conv, FusedConv, Conv of blocks of channels (NCHWc), ConvTranspose.

Each is products of matrices: of filters and patches of images, or of images. Blocks of channels are
laid out by ReorderInput, and back by ReorderOutput.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper

from tracer.arithmetic import sums, trees
from tracer.arithmetic.kernel import Facts, Inputs, Kernel, NotKnown, Rule
from tracer.arithmetic.replays import WithActivation
from tracer.interpreter.numeric.windows import Window, padded, patches, window
from tracer.interpreter.ops.conv import geometry
from tracer.support.types import Array

_TILE = 1 << 19
"""Elements of a matrix of patches, 2 MB: larger ones cost more in pages than they save."""
_FUSED, _PLAIN = (True, True), (False, True)
_LEAST_RUNS, _LEAST_SEEN = 2, 30
"""Random runs, and results of each place, that tell which order fits there."""
Way = tuple[bool, bool]
_TRANSPOSED_RUNS = 3
_SHAPING = "strides", "pads", "dilations", "auto_pad", "output_padding", "output_shape"
BLOCKS_DOMAIN = "com.microsoft.nchwc"


def slide(x: Sequence[int], w: Sequence[int], attributes: Mapping[str, Any]) -> Window:
    """Returns the windows of a convolution of these shapes."""
    strides, pads, dilations = (attributes.get(n) for n in ("strides", "pads", "dilations"))
    auto_pad = attributes.get("auto_pad", "NOTSET")
    return window(x[2:], w[2:], strides, pads, dilations, auto_pad)


@dataclass(frozen=True)
class Convolution:
    """What a convolution takes, laid out as ONNX says: `x` (N, C, *size), `bias` (M).

    `w` is (M, C / group, *kernel). `bias` and `residual` (N, M, *out) may be left out. Term
    `c * V + v` of a sum is channel c of a group at position v of a window of V positions, term K
    the bias, and term K + 1 the element of the residual input. What a window reads beyond the input
    counts as 0: a product of +0 is added, which changes no sum of finite numbers, where a runtime
    may skip it.
    """

    x: Array
    w: Array
    bias: Array | None
    residual: Array | None
    slid: Window
    group: int

    @property
    def terms(self) -> int:
        """The number of products in a sum."""
        return math.prod(self.w.shape[1:])

    @property
    def filters(self) -> Array:
        """The filters of each group, with their bias: (G, M / G, K + 1)."""
        bias = np.zeros(len(self.w), np.float32) if self.bias is None else self.bias
        flat = np.concatenate([self.w.reshape(len(self.w), -1), bias[:, None]], axis=1)
        return flat.reshape(self.group, -1, self.terms + 1)

    def by_group(self, values: Array) -> Array:
        """Returns values (N, M, *out) as (N, G, M / G, pixels)."""
        return values.reshape(len(self.x), self.group, -1, self.slid.pixels)

    def at(self, pixel: int) -> sums.Operands:
        """Returns the operands at one pixel of all images: the columns are these."""
        view = patches(padded(self.x, self.slid), self.slid)
        index: Any = ..., *np.unravel_index(pixel, self.slid.out)
        columns = view[index].reshape(len(self.x), self.group, self.terms).transpose(1, 2, 0)
        residual = None
        if self.residual is not None:
            residual = self.by_group(self.residual)[..., pixel].transpose(1, 2, 0)
        ones = np.ones((self.group, 1, len(self.x)), np.float32)
        return sums.Operands(self.filters, np.concatenate([columns, ones], axis=1), residual)

    def compute(self, facts: Facts) -> Array:
        """Returns the sums (N, M, *out), by filter and pixel as `replay_regions` computes them."""
        slid, filters = self.slid, self.filters
        out = np.empty((len(self.x), *filters.shape[:2], slid.pixels), np.float32)
        line = slid.pixels // slid.out[0]
        rows = max(1, _TILE // (self.group * (self.terms + 1) * line))
        for image in range(len(self.x)):
            for top in range(0, slid.out[0], rows):
                lines = slice(top, min(top + rows, slid.out[0]))
                part = image, ..., slice(lines.start * line, lines.stop * line)
                residual = None if self.residual is None else self.by_group(self.residual)[part]
                operands = sums.Operands(filters, self._columns(image, lines), residual)
                out[part] = sums.replay_regions(facts, operands, part[2].start)
        return out.reshape(len(self.x), len(self.w), *slid.out)

    def _columns(self, image: int, rows: slice) -> Array:
        """Returns the patches (G, K + 1, pixels) of rows of windows; the bias has 1."""
        slid, count = self.slid, rows.stop - rows.start
        view = patches(padded(self.x[image : image + 1], slid, rows=rows), slid, count)[0]
        b = np.empty((self.group, self.terms + 1, count * math.prod(slid.out[1:])), np.float32)
        b[:, -1] = 1
        shape = self.group, len(view) // self.group, *slid.kernel, count, *slid.out[1:]
        b[:, :-1].reshape(shape, copy=False)[:] = view.reshape(shape)
        return b


class _Conv:
    """Sums over windows: candidates come of the shapes, and if none fits, of probes.

    Orders depend on the pixel of the output; on the filter, where there is one pixel.
    """

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        if any(dtype != np.float32 for dtype, _ in kernel.inputs.values()):
            raise NotKnown("convolutions of other types than float32 are not known")
        block = block_size() if kernel.node.domain == BLOCKS_DOMAIN else 0
        random, seen = np.random.default_rng(1), 0
        drawn = {}  # weights of a model may hide sums
        for at in range(1, len(kernel.node.input)):
            value = kernel.constant(at)
            if value is not None:
                drawn[at] = random.standard_normal(value.shape).astype(np.float32)
        probed, runs = kernel.with_constants(drawn), list[_Run]()
        while len(runs) < _LEAST_RUNS or seen < _LEAST_SEEN:  # each place is seen often
            inputs = probed.draw(random, len(runs))
            given, output = _convolution(probed, block, inputs), _output(probed, block, inputs)
            pixels = given.slid.pixels
            grid = (1, pixels) if pixels > 1 else (len(given.w) // given.group, 1)
            runs.append(_Run(given, output.reshape(-1, *grid)))
            seen += output.size // math.prod(grid)
        rule = sums.find_regions(
            runs, lambda *place: _rules(kernel, block, runs[0], *place), ("filters", "pixels")
        )
        yield Rule(rule.text, {**rule.facts, **({"block": block} if block else {})})

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        block = facts.get("block", 0)
        out = _convolution(kernel, block, inputs).compute(facts)
        return [to_blocks(out, block) if block else out]


class _Run(NamedTuple):
    """A run: `output` is (…, 1, pixels), or (…, filters of a group, 1) where there is one pixel."""

    given: Convolution
    output: Array

    def element(self, row: int, column: int) -> tuple[sums.Operands, Array]:
        """Returns the operands of a pixel, or of a filter, of all images."""
        filters = slice(None) if self.given.slid.pixels > 1 else slice(row, row + 1)
        a, b, beside = self.given.at(column)
        expected = self.given.by_group(self.output)[..., column].transpose(1, 2, 0)[:, filters]
        return sums.Operands(
            a[:, filters], b, None if beside is None else beside[:, filters]
        ), expected

    def compute(self, facts: Facts) -> Array:
        """Returns the sums in the order that the facts tell."""
        return self.given.compute(facts).reshape(self.output.shape)


def _convolution(kernel: Kernel, block: int, inputs: Inputs) -> Convolution:
    """Returns what the kernel takes in ONNX's layout; with `block` 0 it is in that already."""
    x, w, bias, residual = (*kernel.values(inputs), None, None)[:4]
    if block:
        w = weights_from_blocks(w, block)
        x = from_blocks(x, block) if x.shape[1] >= block else x
        residual = None if residual is None else from_blocks(residual, block)
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
        yield "in blocks of 4, then the blocks", sums.four_by_four(terms), _PLAIN
    likely = width = 128
    while columns < terms and width > max(16, 2 * columns - 1):
        likely, width = likely * 2, width // 2
    for size in dict.fromkeys(min(size, terms) for size in (likely, 128, 256, 512, 1024)):
        text = "one after the other" if size == terms else f"in blocks of {size}, then the blocks"
        yield text, sums.blocks(terms, size), _FUSED


def _by_channels(channels: int, volume: int, size: int) -> trees.Program:
    """Returns the order of blocks of channels, each at one position of the window after another."""
    program: trees.Program = []
    for low in range(0, channels, size):
        part = range(low, min(low + size, channels))
        program += sums.in_order([c * volume + v for v in range(volume) for c in part])
        program += [trees.JOIN] * (low > 0)
    return program


def _with_extras(program: trees.Program, given: Convolution) -> Iterator[tuple[str, trees.Program]]:
    """Yields the order with the places that bias and residual may have, the likeliest first."""
    extras = [("the residual", given.terms + 1)] * (given.residual is not None)
    extras += [("the bias", given.terms)] * (given.bias is not None)
    for chosen in product(*([trees.PLACES] * len(extras))):
        if extras and extras[-1][0] == "the bias":  # which is added last by most kernels
            chosen = (*chosen[:-1], {"first": "last", "last": "first"}.get(chosen[-1], chosen[-1]))
        text, whole = "", program
        for (name, term), place in zip(extras, chosen, strict=True):
            text += f", {name} {place}"
            whole = trees.with_term(whole, term, place)
        yield text, whole


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


def _output(kernel: Kernel, block: int, inputs: Inputs) -> Array:
    out = kernel.run(inputs)[0]
    return from_blocks(out, block) if block else out


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
        values = to_blocks(values, block) if is_blocked else values
        out = _output(probed, block, {**feeds, kernel.node.input[0]: values})
        return float(out[0, filter_].flat[pixel])

    if kernel.constant(0) is not None or len(inside) < 2:
        raise NotKnown("the input cannot be probed")
    return trees.with_terms(trees.find_program(add, len(inside)), inside)


class _ConvTranspose:
    """The order of products is found where no windows overlap: there a pixel is one product."""

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        if kernel.shape(1) is None or any(t != np.float32 for t, _ in kernel.inputs.values()):
            raise NotKnown("transposed convolutions of other types than float32 are not known")
        apart = kernel
        if kernel.constant(1) is not None:
            drawn = np.random.default_rng(0).standard_normal(kernel.shape(1)).astype(np.float32)
            apart = kernel.with_constants({1: drawn})
        apart = apart.without_attributes(*_SHAPING)
        node = onnx.NodeProto()
        node.CopyFrom(apart.node)
        unused = set(node.input[2:]) - set(node.input[:2])
        del node.input[2:]  # no bias, and windows that lie side by side
        node.attribute.append(helper.make_attribute("strides", (kernel.shape(1) or ())[2:]))
        apart = replace(
            apart,
            node=node,
            inputs={name: kept for name, kept in apart.inputs.items() if name not in unused},
            constants={name: kept for name, kept in apart.constants.items() if name not in unused},
        )
        random, samples = np.random.default_rng(1), []
        for _ in range(_TRANSPOSED_RUNS):
            inputs = apart.draw(random)
            x, w = apart.values(inputs)[:2]
            operands = _transposed(x[0], w, kernel.attributes.get("group", 1))
            samples.append(sums.Sample(operands, _pixels(apart.run(inputs)[0][0], w)))
        terms = samples[0].operands.a.shape[2]
        rule = sums.find_regions(
            samples, lambda row, column: sums.orders_of_products(terms, False, False)
        )
        yield Rule(f"products {rule.text}; position by position of the window", dict(rule.facts))

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        x, w, bias = (*kernel.values(inputs), None)[:3]
        values, group, rank = kernel.attributes, kernel.attributes.get("group", 1), x.ndim - 2
        strides, dilations = (values.get(n, [1] * rank) for n in ("strides", "dilations"))
        full, before, size = geometry(
            x.shape[2:], w.shape[2:], strides, dilations, values.get("pads"),
            values.get("output_padding"), values.get("output_shape"),
            values.get("auto_pad", "NOTSET"),
        )  # fmt: skip
        maps = w.shape[1] * group
        spans = [max(f, b + n) for f, b, n in zip(full, before, size, strict=True)]
        out = np.zeros((len(x), maps, *spans), np.float32)
        for image, target in zip(x, out, strict=True):
            columns = sums.replay_regions(facts, _transposed(image, w, group))
            columns = columns.reshape(maps, *w.shape[2:], *x.shape[2:])
            for position in np.ndindex(*w.shape[2:]):
                pixels = (
                    slice(p * d, p * d + (n - 1) * s + 1, s)
                    for p, d, n, s in zip(position, dilations, x.shape[2:], strides, strict=True)
                )
                target[(slice(None), *pixels)] += columns[(slice(None), *position)]
        out = out[:, :, *(slice(b, b + n) for b, n in zip(before, size, strict=True))]
        shown = out if bias is None else out + bias.reshape(-1, *[1] * rank)
        return [np.ascontiguousarray(shown)]


def _transposed(image: Array, w: Array, group: int) -> sums.Operands:
    """Returns the products of weights (C, M / group, *kernel) and an image (C, *size)."""
    a = w.reshape(group, len(w) // group, -1).swapaxes(1, 2)
    return sums.Operands(a, image.reshape(group, len(w) // group, -1))


def _pixels(image: Array, w: Array) -> Array:
    """Returns products (M * positions, pixels) of an image (M, *size) of windows side by side."""
    kernel, maps = w.shape[2:], len(image)
    cut = [n for size, k in zip(image.shape[1:], kernel, strict=True) for n in (size // k, k)]
    rank = len(kernel)
    inner, outer = range(2, 2 * rank + 1, 2), range(1, 2 * rank + 1, 2)
    return image.reshape(maps, *cut).transpose(0, *inner, *outer).reshape(
        maps * math.prod(kernel), -1
    )  # fmt: skip


@cache
def block_size() -> int:
    """Returns how many channels a block has on this processor: onnxruntime's kernel shows it."""
    node = helper.make_node("ReorderInput", ["x"], ["y"], domain=BLOCKS_DOMAIN)
    shape = 1, 64, 2, 1  # the second pixel of channel 0 comes after the first of a whole block
    kernel = Kernel(node, {"x": (np.dtype(np.float32), shape)}, {}, {"": 17, BLOCKS_DOMAIN: 1})
    (reordered,) = kernel.run({"x": np.arange(128, dtype=np.float32).reshape(shape)})
    return int(np.flatnonzero(reordered.ravel() == 1)[0])


def from_blocks(x: Array, block: int) -> Array:
    """Returns a tensor (N, C, *size) of one in blocks of channels, which has the same shape."""
    size = x.shape[2:]
    blocks = x.reshape(len(x), x.shape[1] // block, *size, block)
    return np.ascontiguousarray(np.moveaxis(blocks, -1, 2)).reshape(x.shape)


def to_blocks(x: Array, block: int) -> Array:
    """Returns a tensor (N, C, *size) in blocks of channels; C is a multiple of the block."""
    size = x.shape[2:]
    blocks = x.reshape(len(x), x.shape[1] // block, block, *size)
    return np.ascontiguousarray(np.moveaxis(blocks, 2, -1)).reshape(x.shape)


def weights_from_blocks(w: Array, block: int) -> Array:
    """Returns weights (M, C, *kernel) of those in blocks of M, and of C where C fills any."""
    maps, channels, *kernel = w.shape
    inner = block if channels % block == 0 else 1
    volume = math.prod(kernel)
    blocks = w.reshape(maps // block, channels // inner, volume, inner, block)
    return np.ascontiguousarray(blocks.transpose(0, 4, 1, 3, 2)).reshape(w.shape)


class _Moves:
    """Reorders fill channels up with 0, or drop what was filled up; Upsample repeats pixels."""

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        if kernel.attributes.get("mode", "nearest") != "nearest":
            raise NotKnown("interpolation in blocks of channels is not known")
        block = block_size()
        yield Rule(f"moved, {block} channels side by side", {"block": block})

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        (x,) = inputs.values()
        block, is_last = facts["block"], bool(kernel.attributes.get("channels_last", 0))
        if kernel.op_type == "ReorderInput":
            x = np.moveaxis(x, -1, 1) if is_last else x
            filled = np.pad(x, [(0, 0), (0, -x.shape[1] % block), (0, 0), (0, 0)])
            return [to_blocks(filled, block)]
        y = from_blocks(x, block)
        if kernel.op_type == "ReorderOutput":
            y = y[:, : kernel.attributes["channels"]]
            return [np.ascontiguousarray(np.moveaxis(y, 1, -1) if is_last else y)]
        for axis, scale in enumerate(kernel.attributes["scales"]):
            y = np.repeat(y, scale, axis)
        return [to_blocks(y, block)]


_CONV = WithActivation(_Conv())
REPLAYS = {
    "Conv": _CONV,
    "com.microsoft:FusedConv": _CONV,
    f"{BLOCKS_DOMAIN}:Conv": _CONV,
    "ConvTranspose": _ConvTranspose(),
    **{
        f"{BLOCKS_DOMAIN}:{name}": _Moves()
        for name in ("ReorderInput", "ReorderOutput", "Upsample")
    },
}
