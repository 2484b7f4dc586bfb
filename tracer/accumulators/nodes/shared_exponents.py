"""Products of numbers in blocks that share an exponent (block floating point).

Each block is a sum of its own in integers; the sums are scaled and added in float32, and so is a
bias, last. Blocks are along the channels of a convolution, at each position of its kernel.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tracer.accumulators.engine.integer_arithmetic import Integers, NodeOperands
from tracer.accumulators.engine.sum_runner import Reduction, SumRunner
from tracer.accumulators.nodes.matmul import begun_sums, sums_of_blocks
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

    def left_blocks(self, values: Array) -> Blocks:
        """Numbers (..., K) in the format of activations."""
        form = self.formats.activations
        return Blocks(*form.shared(values, self.formats.block), form.range)

    def right_blocks(self, values: Array) -> Blocks:
        """Numbers (..., K) in the format of weights, if they are some."""
        form = self.formats.weights if self.is_constant else self.formats.activations
        return Blocks(*form.shared(values, self.formats.block), form.range)

    def begin(self, left: tuple[int, int], right: Blocks, runner: SumRunner) -> None:
        """Announces sums of integers in the range `left` times those of `right`."""
        width, blocks, size = right.numbers.shape[-3:]
        is_matrix = self.is_constant and right.numbers.ndim == 3
        stored = right.numbers.reshape(-1, size) if is_matrix else None  # a row for each block
        runner.begin(Reduction(width, Terms(size), left, right.range, stored, blocks=blocks))

    def sums(self, left: Blocks, right: Blocks, runner: SumRunner) -> Array:
        """The products, float32 (..., R, N), of rows of both, which the runner has begun."""
        a, b = Integers(left.numbers, *left.range), Integers(right.numbers, *right.range)
        *batch, count, _ = left.steps.shape
        shape = np.broadcast_shapes(tuple(batch), right.steps.shape[:-2])
        out = np.zeros((*shape, count, right.steps.shape[-2]), np.float32)
        for block, sums in enumerate(self._sums(a, b, runner)):
            steps = left.steps[..., :, None, block] * right.steps[..., None, :, block]
            out += sums.reshape(out.shape).astype(np.float32) * steps.astype(np.float32)
        return out

    def _sums(self, a: Integers, b: Integers, runner: SumRunner) -> Iterator[Array]:
        """Yields the sums of each block, int64."""
        *batch, blocks, size = a.numbers.shape
        if b.numbers.ndim == 3:
            flat = replace(a, numbers=a.numbers.reshape(math.prod(batch), blocks, size))
            yield from sums_of_blocks(runner, flat, replace(b, constant=self.is_constant))
            return
        for block in range(blocks):
            columns = np.swapaxes(b.numbers[..., block, :], -1, -2)
            rows = replace(a, numbers=a.numbers[..., block, :])
            yield begun_sums(runner, rows, replace(b, numbers=columns))

    def matrices(self, a: Array, b: Array, runner: SumRunner) -> Array:
        """The product, float32, of `a` (..., R, K) and `b` (..., K, N), as numpy's matmul."""
        left = self.left_blocks(np.atleast_2d(a))
        right = self.right_blocks(b[None] if b.ndim == 1 else np.swapaxes(b, -1, -2))
        self.begin(left.range, right, runner)
        out = self.sums(left, right, runner)
        return out.squeeze(tuple(at for at, side in ((-2, a), (-1, b)) if side.ndim == 1))

    def images(self, x: Array, w: Array, windows: Window, runner: SumRunner) -> Array:
        """The convolution, float32 (N, M, *out), of `x` (N, C, *size) and `w` (M, C, *kernel)."""
        rows = np.moveaxis(w, 1, -1).reshape(len(w), -1, w.shape[1])
        kernel = self._by_position(self.right_blocks(rows))
        self.begin(self.formats.activations.range, kernel, runner)
        places = self.left_blocks(np.moveaxis(x, 1, -1))
        numbers = np.moveaxis(places.numbers.reshape(*places.steps.shape[:-1], -1), -1, 1)
        steps = np.moveaxis(places.steps, -1, 1)
        out = np.empty((len(x), len(w), windows.pixels), np.float32)
        size = kernel.numbers[0].size * windows.pixels
        for part in parallel.pieces(len(x), max(_PATCHES // max(size, 1), 1)):
            blocks = Blocks(
                self._windows(numbers[part], windows, kernel.numbers.shape[1:]),
                self._windows(steps[part], windows, kernel.steps.shape[1:]),
                places.range,
            )
            sums = self.sums(blocks, kernel, runner).reshape(-1, windows.pixels, len(w))
            out[part] = sums.swapaxes(1, 2)
        return out.reshape(len(x), len(w), *windows.out)

    def _windows(self, images: Array, windows: Window, shape: tuple[int, ...]) -> Array:
        """What each window over images (N, C, *size) reads, position by position: (P, *shape)."""
        view = patches(padded(images, windows), windows)
        read = view.reshape(*images.shape[:2], math.prod(windows.kernel), windows.pixels)
        return read.transpose(0, 3, 2, 1).reshape(-1, *shape)

    def _by_position(self, blocks: Blocks) -> Blocks:
        """The blocks of all positions, (rows, positions, blocks, size), one after the other."""
        rows, size = len(blocks.numbers), blocks.numbers.shape[-1]
        return Blocks(
            blocks.numbers.reshape(rows, -1, size), blocks.steps.reshape(rows, -1), blocks.range
        )
