"""Published widths of accumulators for tiles of weights: A2Q, A2Q+ and AXE.

They follow from sums over the weights of a tile, so that training can keep to them. Accumulators
are symmetric, [-(2^(P-1) - 1), 2^(P-1) - 1], and the range of the inputs contains 0; then partial
sums in any order are covered. Biases and products of a narrow width are not. `bounds` is exact for
an order where these may round up.
"""

import numpy as np

from tracer.errors import UsageError
from tracer.support.types import Array, IntArray


def a2q_bits(weights: Array, input_bits: int, signed: bool, tile: int | None = None) -> IntArray:
    """Returns the widths by A2Q of integers `weights` (M, K), int64 (M, tiles).

    The least P with ||w||_1 <= (2^(P-1) - 1) 2^(s-N), for N = `input_bits`, and s = 1 for inputs
    that are `signed`, else 0 (Colbert et al., arXiv 2308.13504). `tile` consecutive
    terms are a tile; None takes all terms.
    """
    norms = np.abs(_tiles(weights, tile)).sum(-1)
    return _widths(norms << (input_bits - signed))


def a2q_plus_bits(weights: Array, input_bits: int, tile: int | None = None) -> IntArray:
    """Returns the widths by A2Q+ of tiles of weights that add up to 0, int64 (M, tiles).

    The least P with ||w||_1 <= (2^P - 2) / (2^N - 1), for N = `input_bits` (Colbert et al.,
    arXiv 2401.10432). Raises UsageError where the weights of a tile do not add up to 0.
    """
    tiles = _tiles(weights, tile)
    if tiles.sum(-1).any():
        raise UsageError("the weights of a tile do not add up to 0", "A2Q+ is for centred weights.")
    return _widths(np.abs(tiles).sum(-1) // 2 * ((1 << input_bits) - 1))


def axe_bits(weights: Array, low: int, high: int, tile: int | None = None) -> IntArray:
    """Returns the widths by AXE for inputs from `low` to `high`, int64 (M, tiles).

    The least P with high p + low n <= 2^(P-1) - 1 and low p + high n >= -(2^(P-1) - 1), where p
    and n are the sums of the positive and of the negative weights of a tile (Colbert et al., arXiv
    2409.17092). The papers' margin for rounding is left out: weights are integers. Raises
    UsageError for a range without 0.
    """
    if not low <= 0 <= high:
        raise UsageError(f"inputs from {low} to {high}", "The range contains 0.")
    tiles = _tiles(weights, tile)
    p, n = np.maximum(tiles, 0).sum(-1), np.minimum(tiles, 0).sum(-1)
    return _widths(np.maximum(high * p + low * n, -(low * p + high * n)))


def outer_bits(inner_bits: int, tiles: int) -> int:
    """Returns the width that holds any sum of `tiles` numbers of symmetric `inner_bits`.

    P + ceil(log2(tiles)), as AXE has it.
    """
    return inner_bits + (tiles - 1).bit_length()


def _tiles(weights: Array, tile: int | None) -> Array:
    """Returns the weights (M, tiles, terms), int64; zeros fill the last tile."""
    rows, depth = weights.shape
    size = max(depth if tile is None else tile, 1)
    count = max(-(-depth // size), 1)
    whole = np.zeros((rows, count * size), np.int64)
    whole[:, :depth] = weights
    return whole.reshape(rows, count, size)


def _widths(reach: Array) -> IntArray:
    """Returns the least P of each with `reach` <= 2^(P-1) - 1."""
    return np.vectorize(lambda number: number.bit_length() + 1, otypes=[np.int64])(
        reach.astype(object)
    )
