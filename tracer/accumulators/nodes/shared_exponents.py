"""Products of numbers in blocks that share an exponent (block floating point).

Each block is a sum of its own in integers; the sums are scaled and added in float32, and so is a
bias, last. Blocks are along the channels of a convolution, at each position of its kernel.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tracer.accumulators.engine.integer_arithmetic import Integers, NodeOperands
from tracer.accumulators.engine.sum_runner import Reduction, SumRunner
from tracer.accumulators.nodes.matmul import sums_of_blocks
from tracer.accumulators.spec.operand_format import Formats
from tracer.accumulators.spec.orders import Terms
from tracer.interpreter.numeric import parallel
from tracer.interpreter.numeric.windows import Window, padded, patches
from tracer.support.types import Array

_PATCHES = 1 << 22
"""Numbers of the windows over images that are written out at a time."""


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

    def of_matrices(self, batch: tuple[int, ...]) -> Iterator["Blocks"]:
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
