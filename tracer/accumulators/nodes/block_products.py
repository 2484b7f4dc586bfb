"""Sums of products of numbers in blocks: with a scale for each block, or a shared exponent.

Each block is a sum of its own in integers; the sums are scaled and added in float32. MatMulNBits
has integers at accuracy level 4 alone; a float accumulator takes its weights dequantised. In block
floating point, a bias is added last, in float32; blocks are along the channels of a convolution, at
each position of its kernel.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracer.accumulators import nodes
from tracer.accumulators.engine.float_arithmetic import FloatOperands, FloatRunner
from tracer.accumulators.engine.integer_arithmetic import (
    DIFFERENT_SCALES,
    Integers,
    NodeOperands,
    NoIntegerForm,
    narrow,
)
from tracer.accumulators.engine.sum_runner import Reduction, SumRunner
from tracer.accumulators.engine.tensor_scales import TensorScales
from tracer.accumulators.engine.value_ranges import integer_range
from tracer.accumulators.nodes.matmul import float_sums, gemm, matmul, sums_of_blocks
from tracer.accumulators.spec.operand_format import Formats
from tracer.accumulators.spec.orders import Terms
from tracer.errors import ModelError
from tracer.graph.model import Node
from tracer.interpreter import values
from tracer.interpreter.numeric import parallel
from tracer.interpreter.numeric.tensors import nonnegative_axis, unpacked
from tracer.interpreter.numeric.windows import Window, padded, patches
from tracer.interpreter.operators import MICROSOFT
from tracer.interpreter.ops import packed_weights
from tracer.interpreter.ops.quantization import aligned, is_integer
from tracer.interpreter.values import Value
from tracer.support.types import Array

_MATRIX = 2
"""Axes of a matrix."""
_LARGEST = 127
"""The code of the largest activation of a block; the least is -127."""
_WEIGHTS = 1
_WEIGHT_INPUTS = (2, 3, 4)
"""Inputs that the dequantised weights follow from, besides the codes."""
_STORED = {1: "weights", 2: "scales", 3: "zero points"}
"""Inputs that must be equal in every run, for onnxruntime rounds activations only then."""
_PATCHES = 1 << 22
"""Numbers of the windows over images that are written out at a time."""


@nodes.lowering("MatMul")
def matmul_or_blocks(operands: NodeOperands) -> nodes.ComputeSums:
    """Rows times columns; the sums of blocks are scaled and added in float32."""
    shared = SharedProduct.of(operands)
    if shared is not None:
        return _shared_sums(shared, (False, False))
    matrix = _blocked(operands, False)
    return matmul(operands) if matrix is None else _block_sums(operands, matrix, False)


@nodes.lowering("Gemm")
def gemm_or_blocks(operands: NodeOperands) -> nodes.ComputeSums:
    """As MatMul; C is added to scaled sums of blocks in floats."""
    options, shared = operands.attributes, SharedProduct.of(operands)
    is_turned = [bool(options.get(name, 0)) for name in ("transA", "transB")]
    if shared is not None:
        product = _shared_sums(shared, is_turned)
    elif (matrix := _blocked(operands, is_turned[1])) is not None:
        product = _block_sums(operands, matrix, is_turned[0])
    else:
        return gemm(operands)
    alpha, beta = (options.get(name, 1.0) for name in ("alpha", "beta"))

    def then(output: Array, inputs: Sequence[Value]) -> Array:
        added = beta * inputs[2] if operands.node.has_input(2) else 0
        return np.asarray(alpha * output + added).astype(output.dtype)

    return nodes.followed(product, then)


def _shared_sums(shared: "SharedProduct", is_turned: Sequence[bool]) -> nodes.ComputeSums:
    """The product of two matrices, each perhaps turned, whose blocks share exponents."""

    def compute(inputs: Sequence[Value], runner: SumRunner) -> nodes.NodeSums:
        a, b = (inputs[n].T if turned else inputs[n] for n, turned in enumerate(is_turned))
        return nodes.finished(shared.matrices(a, b, runner).astype(a.dtype))

    return compute


def _block_sums(operands: NodeOperands, matrix: "BlockedMatrix", turned: bool) -> nodes.ComputeSums:
    """A sum for each block of terms; the order of additions begins anew in each block."""
    a = operands.activations(0)
    step, columns, size = a.steps(None), matrix.blocks, matrix.block
    width, types = matrix.numbers.shape[1], (matrix.low, matrix.high)
    right = Integers(narrow(columns.transpose(2, 0, 1)), *types, constant=True)
    stored = right.numbers.reshape(-1, size)
    reduction = Reduction(width, Terms(size), a.range, types, stored, blocks=len(columns))

    def compute(inputs: Sequence[Value], runner: SumRunner) -> nodes.NodeSums:
        left = a.integers(inputs[0])
        if runner.accumulator.is_zero_point_in_sum and (left.zero or matrix.has_zero_points):
            raise ModelError(
                f"'{operands.node.key}' has sums of blocks, which keep no zero points",
                "Subtract them from the operands: zero_points='before'.",
            )
        rows = left.values.T if turned else left.values
        batch, depth = rows.shape[:-1], len(columns) * size
        whole = np.zeros((math.prod(batch), depth), rows.dtype)
        whole[:, : rows.shape[-1]] = rows.reshape(len(whole), rows.shape[-1])
        part = Integers(whole.reshape(-1, len(columns), size), left.low, left.high)
        runner.begin(reduction)
        out = np.zeros((len(whole), width), np.float32)
        for steps, sums in zip(matrix.steps, sums_of_blocks(runner, part, right), strict=True):
            out += sums.astype(np.float32) * (step * steps).astype(np.float32)
        return nodes.finished(out.reshape(*batch, width).astype(operands.float_type(inputs[0])))

    return compute


@dataclass(frozen=True, slots=True)
class BlockedMatrix:
    """Integers (K, N) from `low` to `high`; each `block` rows of a column have one step.

    `steps` are (blocks, N), float64. `has_zero_points` tells whether some were subtracted.
    """

    numbers: Array
    steps: Array
    block: int
    low: int
    high: int
    has_zero_points: bool

    @property
    def blocks(self) -> Array:
        """The integers (blocks, block, N); zeros fill the last block."""
        depth, width = self.numbers.shape
        whole = np.zeros((len(self.steps) * self.block, width), self.numbers.dtype)
        whole[:depth] = self.numbers
        return whole.reshape(-1, self.block, width)


def _blocked(operands: NodeOperands, turned: bool) -> BlockedMatrix | None:
    """Returns the matrix B that DequantizeLinear makes with a `block_size`, or None.

    With `turned` the matrix is read as (N, K). Raises NoIntegerForm for blocks that are not along
    K, or not stored.
    """
    if operands.formats is not None:  # which round the floats that the blocks stand for
        return None
    scales, name = operands.scales, operands.node.inputs[1]
    node = scales.producer(name, operands.node.scope)
    if node is not None and node.qualified_type == "Transpose":
        order = [values.from_attribute(a) for a in node.proto.attribute if a.name == "perm"]
        if not order or list(order[0]) == [1, 0]:
            node, turned = scales.producer(node.inputs[0], node.scope), not turned
    if node is None or node.standard_type != "DequantizeLinear":
        return None
    attributes = {a.name: a.i for a in node.proto.attribute}
    block = attributes.get("block_size", 0)
    if not block:
        return None
    stored, steps, zeros = _stored(scales, node, name, block)
    axis = nonnegative_axis(attributes.get("axis", 1), _MATRIX)
    if axis != int(turned):
        raise NoIntegerForm(DIFFERENT_SCALES)
    shape = [-(-n // block) if at == axis else n for at, n in enumerate(stored.shape)]
    if any(list(x.shape) != shape for x in (steps, zeros) if x is not None):
        raise NoIntegerForm(f"has scales or zero points of another shape than {shape}", name)
    if not steps.size or not (steps > 0).all():
        raise NoIntegerForm("has blocks whose step is not above 0", name)
    low, high = integer_range(stored.dtype)
    numbers = stored.astype(np.int64)
    if zeros is not None:
        wide = zeros.astype(np.int64)
        numbers -= aligned(wide, numbers, axis, block)
        low, high = low - int(wide.max()), high - int(wide.min())
    real = steps.astype(np.float64)
    if turned:
        numbers, real = numbers.T, real.T
    is_shifted = zeros is not None and bool(zeros.any())
    return BlockedMatrix(narrow(numbers), real, block, low, high, is_shifted)


def _stored(
    scales: TensorScales, node: Node, name: str, block: int
) -> tuple[Array, Array, Array | None]:
    """Returns the integers, steps and zero points of DequantizeLinear."""
    stored, steps, zeros = (
        scales.value(node.inputs[index], node.scope) if node.has_input(index) else None
        for index in range(3)
    )
    if stored is None or steps is None or (zeros is None and node.has_input(2)):
        raise NoIntegerForm("has blocks of numbers that are computed", name)
    if stored.ndim != _MATRIX or not is_integer(stored.dtype) or block < 1:
        raise NoIntegerForm("has blocks, and is no matrix of integers", name)
    return stored, steps, zeros


@nodes.lowering("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(operands: NodeOperands) -> nodes.ComputeSums:
    """Activations rounded to 8 bits times codes minus zero points.

    The sums of blocks are scaled and added in float32. The order of additions begins anew in each
    block; a last block that K does not fill ends with zeros.
    """
    _check(operands)
    kept: dict[bool, Array] = {}

    def compute(inputs: Sequence[Value], runner: SumRunner) -> nodes.NodeSums:
        product = packed_weights.packed_product(*inputs, **operands.attributes)
        weights, after = product.weights, runner.accumulator.is_zero_point_in_sum
        if after not in kept:
            rows, blocks = weights.scales.shape
            kind = np.int8 if weights.bits < np.iinfo(np.int8).bits else np.int16
            codes = unpacked(weights.codes, weights.bits, blocks * weights.block).astype(kind)
            if not after:
                codes = codes - np.repeat(weights.zeros.astype(kind), weights.block, axis=1)
            codes[:, weights.depth :] = 0
            kept[after] = codes.reshape(rows, blocks, weights.block)
        activations, steps = packed_weights.rounded_activations(product.rows, weights)
        # a NaN or an infinity makes the scale of its block NaN or infinite, and so the output
        activations = np.where(np.isnan(activations), 0, activations).astype(np.int8)
        low, high = 0, (1 << weights.bits) - 1
        if not after and weights.zeros.size:
            low, high = low - int(weights.zeros.max()), high - int(weights.zeros.min())
        rows, blocks, size = kept[after].shape
        stored = kept[after].reshape(-1, size)
        activations_range = -_LARGEST, _LARGEST
        runner.begin(
            Reduction(rows, Terms(size), activations_range, (low, high), stored, blocks=blocks)
        )
        left = Integers(activations.swapaxes(0, 1), *activations_range)
        right = Integers(kept[after], low, high, constant=True)
        out = np.zeros((len(product.rows), len(weights.codes)), np.float32)
        for block, sums in enumerate(sums_of_blocks(runner, left, right)):
            if after:
                terms = activations[block].sum(1, np.int64)
                sums = sums - np.outer(terms, weights.zeros[:, block])
            scales = weights.scales[:, block].astype(np.float32)
            out += packed_weights.scaled(sums.astype(np.float32), steps[block], scales)
        return nodes.finished(product.output(out))

    return compute


@nodes.float_lowering("MatMulNBits", domain=MICROSOFT, floats=(0, 2))
def float_matmul_nbits(operands: FloatOperands) -> nodes.ComputeFloats:
    """One sum over all of K, of dequantised weights in float32, at any accuracy level.

    An accuracy level allows a kernel to round activations to 8 bits, so that it adds integers. A
    float accumulator adds floats, and so activations are cast as `operands` say. The bias is the
    first term; where sums have a factor, it is added after it.
    """
    stored = (index for index in (_WEIGHTS, *_WEIGHT_INPUTS) if operands.node.has_input(index))
    if not operands.constant.issuperset(stored):
        operands = replace(operands, constant=operands.constant - {_WEIGHTS})

    def compute(inputs: Sequence[Value], runner: FloatRunner) -> Array:
        product = packed_weights.packed_product(*inputs, **operands.attributes)

        def unpack(codes: Array) -> Array:
            return packed_weights.dequantized(product.weights, slice(None), product.groups)

        a = operands.matrix(0, inputs[0], -1)
        b = operands.packed_matrix(_WEIGHTS, inputs[_WEIGHTS], unpack).transposed()
        bias = operands.bias(5, inputs)
        is_start = a.factor is None and b.factor is None
        sums = float_sums(a, b, bias if is_start else None, runner)
        return replace(product, bias=None if is_start else bias).output(sums)

    return compute


def _check(operands: NodeOperands) -> None:
    """Raises NoIntegerForm for a node whose products are floats."""
    attributes = operands.attributes
    level = attributes.get("accuracy_level", 0)
    if level != packed_weights.INT8_ACTIVATIONS:
        raise NoIntegerForm(
            f"accuracy_level is {level}, so that it multiplies floats",
            remedy="Set the attribute accuracy_level of MatMulNBits to "
            f"{packed_weights.INT8_ACTIVATIONS}, which rounds activations to 8 bits, or choose a "
            "float accumulator, such as fp16.",
        )
    if operands.node.has_input(4):
        raise NoIntegerForm("g_idx chooses the scale of each term, so that it multiplies floats")
    for index, what in _STORED.items():
        if operands.node.has_input(index) and not operands.constant(index):
            raise NoIntegerForm(f"its {what} are computed, so that it multiplies floats")
    bits, block = attributes.get("bits", 4), attributes["block_size"]
    zeros = None
    if operands.node.has_input(3):
        zeros = operands.scales.value(operands.node.inputs[3], operands.node.scope)
    is_packed = not operands.node.has_input(3) or (zeros is not None and zeros.dtype == np.uint8)
    if not packed_weights.has_integer_kernel(bits, block, is_packed):
        raise NoIntegerForm(
            f"onnxruntime multiplies floats for {bits} bits in blocks of {block}, or zero points "
            "that are floats"
        )


@dataclass(frozen=True, slots=True)
class Blocks:
    """Integers (..., rows, blocks, size) in a `range`, and the steps (..., rows, blocks)."""

    numbers: Array
    steps: Array
    range: tuple[int, int]

    def reshaped(self, *shape: int) -> "Blocks":
        """The same blocks with other axes, the axis of blocks among them."""
        numbers = self.numbers.reshape(*shape, self.numbers.shape[-1])
        return Blocks(numbers, self.steps.reshape(shape), self.range)

    def of_matrices(self, batch: tuple[int, ...]) -> "Iterator[Blocks]":
        """The blocks (rows, blocks, size) of each matrix of a batch that numpy broadcasts."""
        numbers = np.broadcast_to(self.numbers, (*batch, *self.numbers.shape[-3:]))
        steps = np.broadcast_to(self.steps, (*batch, *self.steps.shape[-2:]))
        return (Blocks(numbers[n], steps[n], self.range) for n in np.ndindex(batch))


@dataclass(frozen=True, slots=True)
class SharedProduct:
    """Multiplies the inputs 0 and 1 of a node; weights that are equal in every run bound sums."""

    formats: Formats
    is_constant: bool

    @classmethod
    def of(cls, operands: NodeOperands) -> "SharedProduct | None":
        """The product of a node; None if its operands share no exponents."""
        formats = operands.formats
        return cls(formats, operands.constant(1)) if formats and formats.block else None

    def blocks(self, index: int, values: Array) -> Blocks:
        """Numbers (..., K) of an input, in the format of weights if they are some."""
        is_weight = index == 1 and self.is_constant
        form = self.formats.weights if is_weight else self.formats.activations
        return Blocks(*form.shared(values, self.formats.block), form.range)

    def begin(self, left: tuple[int, int], right: Blocks, runner: SumRunner) -> None:
        """Announces sums of integers in the range `left` times those of `right`."""
        width, blocks, size = right.numbers.shape[-3:]
        is_matrix = self.is_constant and right.numbers.ndim == 3
        stored = right.numbers.reshape(-1, size) if is_matrix else None  # a row for each block
        runner.begin(Reduction(width, Terms(size), left, right.range, stored, blocks=blocks))

    def sums(self, left: Blocks, right: Blocks, runner: SumRunner) -> Array:
        """The product, float32 (R, N), of two matrices' rows, which the runner has begun."""
        a = Integers(left.numbers, *left.range)
        b = Integers(right.numbers, *right.range, self.is_constant)
        out = np.zeros((len(left.steps), len(right.steps)), np.float32)
        for block, sums in enumerate(sums_of_blocks(runner, a, b)):
            steps = np.outer(left.steps[:, block], right.steps[:, block])
            out += sums.astype(np.float32) * steps.astype(np.float32)
        return out

    def matrices(self, a: Array, b: Array, runner: SumRunner) -> Array:
        """The product, float32, of `a` (..., R, K) and `b` (..., K, N), as numpy's matmul."""
        left = self.blocks(0, np.atleast_2d(a))
        right = self.blocks(1, b[None] if b.ndim == 1 else np.swapaxes(b, -1, -2))
        self.begin(left.range, right, runner)
        *batch, rows, blocks = left.steps.shape
        batch = list(np.broadcast_shapes(tuple(batch), right.steps.shape[:-2]))
        out = np.empty((*batch, rows, right.steps.shape[-2]), np.float32)
        if right.steps.ndim == 2:
            batch, rows = [], math.prod(batch) * rows
            left = left.reshaped(rows, blocks)
        lefts, rights = (each.of_matrices(tuple(batch)) for each in (left, right))
        results = out.reshape(math.prod(batch), rows, out.shape[-1])
        for result, one, other in zip(results, lefts, rights, strict=True):
            result[:] = self.sums(one, other, runner)
        return out.squeeze(tuple(at for at, side in ((-2, a), (-1, b)) if side.ndim == 1))

    def images(self, x: Array, w: Array, windows: Window, runner: SumRunner) -> Array:
        """The convolution, float32 (N, M, *out), of `x` (N, C, *size) and `w` (M, C, *kernel)."""
        positions = math.prod(windows.kernel)
        kernel = self.blocks(1, np.moveaxis(w, 1, -1).reshape(len(w), positions, w.shape[1]))
        kernel = kernel.reshaped(len(w), math.prod(kernel.steps.shape[1:]))
        self.begin(self.formats.activations.range, kernel, runner)
        places = self.blocks(0, np.moveaxis(x, 1, -1))
        *shape, blocks, size = places.numbers.shape
        numbers, steps = places.numbers.reshape(*shape, blocks * size), places.steps

        def read(part: slice, places: Array) -> Array:
            """What windows over images (N, *size, C) read, position by position: (P, depth)."""
            images = np.moveaxis(places[part], -1, 1)
            view = patches(padded(images, windows), windows)
            view = view.reshape(*images.shape[:2], positions, windows.pixels)
            depth = positions * images.shape[1]
            return view.transpose(0, 3, 2, 1).reshape(len(images) * windows.pixels, depth)

        out = np.empty((len(x), len(w), windows.pixels), np.float32)
        room = max(_PATCHES // max(kernel.numbers[0].size * windows.pixels, 1), 1)
        for part in parallel.pieces(len(x), room):
            rows = read(part, steps)
            left = Blocks(read(part, numbers).reshape(*rows.shape, size), rows, places.range)
            sums = self.sums(left, kernel, runner)
            out[part] = sums.reshape(-1, windows.pixels, len(w)).swapaxes(1, 2)
        return out.reshape(len(x), len(w), *windows.out)
