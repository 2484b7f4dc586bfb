"""Packed weights of a few bits, in blocks that share a scale: unpacked a few rows at a time.

onnxruntime's ContribOperators.md defines the layout (MatMulNBits, QMoE, GatherBlockQuantized).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tracer.errors import ModelError
from tracer.support.types import Array

BITS = (2, 4, 8)
"""Widths of a packed weight."""

_ROWS_BYTES = 8 << 20
"""Bytes of the float32 weights that are unpacked at a time: they stay in the caches."""


@dataclass(frozen=True, slots=True)
class BlockWeights:
    """A matrix [rows, depth] whose weights are (code - zero) * scale.

    `codes` is uint8 [rows, bytes], the bits of a row, low bits first, its last block filled up.
    `scales` is [rows, blocks]; so is `zeros`, of codes or of floats.
    """

    codes: Array
    scales: Array
    zeros: Array
    bits: int
    block: int
    depth: int

    def pieces(self) -> Iterator[slice]:
        """Yields slices of rows that unpack to a bounded number of bytes."""
        step = max(1, _ROWS_BYTES // (4 * max(1, self.scales.shape[1] * self.block)))
        for low in range(0, len(self.codes), step):
            yield slice(low, min(low + step, len(self.codes)))

    def centred(self, rows: slice | Array) -> Array:
        """Returns code - zero of some rows as float32 [rows, blocks, block], padding included."""
        blocks = self.scales.shape[1]
        codes = unpacked(self.codes[rows], self.bits, blocks * self.block)
        whole = codes.reshape(len(codes), blocks, self.block).astype(np.float32)
        whole -= self.zeros[rows, :, None].astype(np.float32)
        return whole

    def dequantized(self, rows: slice | Array) -> Array:
        """Returns some rows as float32 [rows, depth]."""
        weights = self.centred(rows)
        weights *= self.scales[rows, :, None].astype(np.float32)
        return weights.reshape(len(weights), -1)[:, : self.depth]


def unpacked(packed: Array, bits: int, count: int) -> Array:
    """Returns the first `count` numbers of the last axis of uint8 `packed`, low bits first."""
    if bits == 8:
        return packed[..., :count]
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = packed[..., None] >> shifts & np.uint8((1 << bits) - 1)
    return numbers.reshape(*packed.shape[:-1], -1)[..., :count]


def packed_bytes(count: int, bits: int) -> int:
    """Returns the bytes of `count` numbers of `bits` bits."""
    return -(-count * bits // 8)


def check_bits(bits: int) -> None:
    """Raises ModelError for a width that weights are not packed with."""
    if bits not in BITS:
        raise ModelError(f"{bits} bits", f"Weights have {', '.join(map(str, BITS))} bits.")


def check_block(size: int) -> None:
    """Raises ModelError for a size of blocks that is no power of two from 16."""
    if size < 16 or size & (size - 1):
        raise ModelError(
            f"the block size is {size}", "It is a power of two from 16: 16, 32, 64, 128, 256."
        )
