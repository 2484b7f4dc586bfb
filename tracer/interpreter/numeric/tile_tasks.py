"""Runs tasks of `kernels.tiles`: arranges their arguments, and chooses the size of the tile."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tracer.interpreter.compiled_code import UnfitError, loaded
from tracer.interpreter.numeric import parallel, tensors
from tracer.support.types import Array

_WORK = 1 << 21
"""Products of a block: about 50 us, so that threads finish together."""
_FEWEST, _MOST = 4, 16
"""Tiles of rows of a block, between: each block packs its columns again, """
_FACTORS = 1 << 17
"""but its factors, 256 KiB of float32, stay in the second-level cache for all its columns."""
_CHUNK = 384
"""Terms of a panel, which stays in the second-level cache together with the factors of a block."""
_FACTOR, _COLUMNS = 0.25, 1.0
"""Cycles that the load of a factor, and of a vector of columns, takes from the multiply-adds beside
it: factors are in the first-level cache, the panel of columns in the second."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns in the flat, contiguous array `source`.

    A column reads its numbers at `offsets` (K), int64, from its beginning. There are `sizes`
    images, lines and places of columns, which begin `strides` apart. Row i of the result of a
    column lies at `out_strides` for its image, for i, and for its number in the image. Each of
    `matrices` has its own columns, `steps` apart in the source and in the results. `zero` is
    subtracted from integers.
    """

    source: Array
    offsets: Array
    sizes: tuple[int, int, int]
    strides: tuple[int, int, int]
    out_strides: tuple[int, int, int]
    matrices: int = 1
    steps: tuple[int, int] = (0, 0)
    zero: int = 0

    @property
    def count(self) -> int:
        """The number of columns."""
        images, lines, places = self.sizes
        return images * lines * places


@dataclass(frozen=True, slots=True)
class Lanes:
    """What lanes hold: twice the limit of a step, and 1 for the sum plus one half.

    The same of register 0 and of products; twice the unit of products.
    """

    limit: int = 0
    half: int = 0
    inner_limit: int = 0
    inner_half: int = 0
    product_limit: int = 0
    product_half: int = 0
    unit: int = 2


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Groups (n, 2) of terms, int64, as `kernels.tiles.Step` explains them, and `registers`."""

    groups: Array
    registers: int


_ONE_REGISTER = Groups(np.empty((0, 2), np.int64), 0)


def run(
    step: Any, store: Any, left: Array, begins: Array, columns: Columns, outs: list[Array],
    lanes: Lanes = Lanes(), parameters: Array | None = None, ends: Array | None = None,
    groups: Groups = _ONE_REGISTER, tables: Array | None = None,
) -> None:  # fmt: skip
    """Multiplies matrices `left` (n, rows, K), floats, each with its columns.

    The sums of row i begin with `begins[:, i]`, of the type of `left`, and end with `ends[:, i]`.
    `outs` are the results of the store. `parameters` (n, rows, 8), float64, are numbers of each row
    for the store; `tables` (threads, any), int64, are statistics that it adds to.
    """
    tiles = loaded("tile_code")
    matrices, count, depth = left.shape
    bits = 8 * left.itemsize
    rows, vectors = _size(step, count, columns.count, bits)
    width = vectors * tiles.lanes(bits)
    where = _where(columns.sizes, columns.strides, columns.out_strides, vectors, width,
                   *_room(columns, count, matrices, outs))  # fmt: skip
    tall, wide = _block(count, depth, rows, width)
    task = tiles.task(step, store, columns.source.dtype, bits, rows, vectors)
    spare = [columns.offsets] * (3 - len(outs))
    chunk = depth if store.repeats else min(depth, _CHUNK)
    both = [_whole_tiles(each, rows) for each in (begins, begins if ends is None else ends)]
    arrays = [_whole_tiles(left, rows), columns.source, columns.offsets, *where, *both,
              *_by_panel(groups, depth, chunk)]  # fmt: skip
    slots = parallel.allowed()
    size = tiles.memory(step, store, bits, rows, vectors, tall, chunk, groups.registers)
    memory = [tensors.empty((slots, size), np.uint8), np.zeros(slots, np.int64)]
    known = np.zeros(0) if parameters is None else _whole_tiles(parameters, rows)
    tables = np.zeros((slots, 0), np.int64) if tables is None else tables
    numbers = (count, tall, columns.count, wide, depth, columns.out_strides[1], lanes.limit,
               lanes.half, matrices, *columns.steps, slots, size, chunk, columns.zero,
               groups.registers, lanes.inner_limit, lanes.inner_half, lanes.product_limit,
               lanes.product_half, lanes.unit, tables.shape[1])  # fmt: skip
    blocks = matrices * -(-count // tall) * -(-columns.count // (wide * width))
    parallel.share(task, blocks, [*arrays, *outs, *spare, *memory, known, tables], numbers)


def _room(columns: Columns, rows: int, matrices: int, outs: list[Array]) -> tuple[int, int]:
    """Where columns must begin before, and results: the last terms, rows and matrices follow.

    Raises UnfitError for numbers below 0, which would lie before the arrays.
    """
    offsets, (step, out_step) = columns.offsets, columns.steps
    numbers = (*columns.strides, *columns.out_strides, step, out_step)
    if min(*numbers, int(offsets.min(initial=0))) < 0:
        raise UnfitError(f"columns and results lie {numbers} apart, from {offsets.min()} on")
    end = columns.source.size - int(offsets.max(initial=0)) - (matrices - 1) * step
    further = (matrices - 1) * out_step + (rows - 1) * columns.out_strides[1]
    return end, min(out.size for out in outs) - further


@lru_cache(maxsize=256)
def _by_panel(groups: Groups, depth: int, chunk: int) -> tuple[Array, Array]:
    """The groups, parted where a panel of `chunk` terms ends, and the first of each panel.

    Raises UnfitError for groups of more or fewer terms than `depth`, or of other registers.
    """
    terms, joined = groups.groups.T
    total, ends = int(terms.sum()), terms.cumsum()
    known = groups.groups.min(initial=0) >= 0 and joined.max(initial=0) <= groups.registers
    if groups.registers and not (known and total == depth):
        raise UnfitError(f"groups of {total} terms do not part {depth}")
    cuts = np.union1d(ends, np.arange(chunk, total, chunk))
    parts = np.zeros((len(cuts), 2), np.int64)
    parts[:, 0] = np.diff(cuts, prepend=0)
    parts[np.searchsorted(cuts, ends), 1] = joined
    firsts = np.searchsorted(cuts - parts[:, 0], np.arange(0, total, chunk))
    return parts, np.append(firsts, len(parts))


@lru_cache(maxsize=1024)
def _size(step: Any, rows: int, columns: int, bits: int) -> tuple[int, int]:
    """Rows and vectors of the tile that computes least beyond the result."""
    kernels = loaded("tile_code")
    lanes = kernels.lanes(bits)
    loads = step.code is kernels.NOTHING.code  # beside other instructions they take no time
    sizes: list[tuple[int, int]] = []
    for vectors in (1, 2, 4, 8):  # few sizes: each is compiled
        most = min(kernels.ROOM // (vectors * (1 + step.states)), kernels.MOST_ROWS)
        if loads and bits == 64:  # products of all heights, most of them in one fit of weights
            sizes += [(most, vectors)]
        elif most:
            even = -(-rows // -(-rows // min(most, rows)))  # of equal height
            sizes += [(min(most, rows), vectors), (even, vectors)]

    def cost(size: tuple[int, int]) -> float:
        """Cycles of all tiles: steps of the multiply-adds, and a part of the loads."""
        tall, vectors = size
        tiles = -(-rows // tall) * -(-columns // (vectors * lanes))
        steps = max(tall * vectors * (1 + step.states), kernels.LATENCY)
        return tiles * (steps + loads * (_FACTOR * tall + _COLUMNS * vectors))

    return min(sizes, key=cost)


def _block(rows: int, depth: int, tall: int, width: int) -> tuple[int, int]:
    """Rows, and tiles of columns, of a block; they depend only on the sizes."""
    most = max(_WORK // (depth * width * tall), _MOST)
    most = min(most, max(_FACTORS // (depth * tall), _FEWEST))
    bands = -(-rows // tall)
    height = -(-bands // -(-bands // most)) * tall  # of equal height
    return height, max(_WORK // (depth * height * width), 1)


@lru_cache(maxsize=256)
def _where(
    sizes: tuple[int, int, int], strides: tuple[int, int, int], out_strides: tuple[int, int, int],
    vectors: int, width: int, end: int, room: int,
) -> tuple[Array, Array, Array, Array]:  # fmt: skip
    """Where columns begin, runs of neighbours, the first run of each tile, places of results.

    A tile has no runs if its columns are no neighbours, or if their vectors pass the `end`. Raises
    UnfitError for columns that begin at the `end`, or results beyond the `room`.
    """
    images, lines, places = (np.arange(size, dtype=np.int64) for size in sizes)
    image, line, place = (each.reshape(-1, *[1] * n) for each, n in
                          zip((images, lines, places), (2, 1, 0), strict=True))  # fmt: skip
    starts = (image * strides[0] + line * strides[1] + place * strides[2]).reshape(-1)
    pixel = line * sizes[2] + place
    out = (image * out_strides[0] + pixel * out_strides[2]).reshape(-1)
    if starts.max(initial=-1) >= end or out.max(initial=-1) >= room:
        raise UnfitError(f"{sizes} columns do not fit arrays that have room for {end} and {room}")
    index = np.arange(starts.size)
    begins = np.ones(starts.size, bool)
    begins[1:] = (np.diff(starts) != 1) | (index[1:] % width == 0)
    first = np.flatnonzero(begins)
    lengths = np.diff(first, append=starts.size)
    runs = np.stack([starts[first], first % width, lengths], axis=1)
    tile = first // width
    lanes = width // vectors
    good = runs[:, 0] + -(-lengths // lanes) * lanes <= end
    count = -(-starts.size // width)
    bad = np.bincount(tile, ~good, count) > 0
    bad |= np.bincount(tile, minlength=count) > width // 2
    kept = ~bad[tile]
    firsts = np.concatenate([[0], np.cumsum(np.bincount(tile[kept], minlength=count))])
    return starts, np.ascontiguousarray(runs[kept]), firsts.astype(np.int64), out


def _whole_tiles(rows: Array, tall: int) -> Array:
    """The rows, with zeros up to whole tiles."""
    missing = -rows.shape[1] % tall
    if not missing:
        return np.ascontiguousarray(rows)
    whole = np.zeros((len(rows), rows.shape[1] + missing, *rows.shape[2:]), rows.dtype)
    whole[:, : rows.shape[1]] = rows
    return whole
