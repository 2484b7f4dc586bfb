"""The operands of a node with a float accumulator, cast to the format that it multiplies.

`FloatRunner` sums their products in the accumulator or the block multiply-add, and collects the
statistics of the node.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, assert_never

import numpy as np

from tracer.accumulators.engine.integer_arithmetic import NoIntegerForm
from tracer.accumulators.floats import compiled_sums, oracle
from tracer.accumulators.floats.casting import State, paired
from tracer.accumulators.floats.casting import cast as cast_numbers
from tracer.accumulators.spec.block_fma import BlockFma
from tracer.accumulators.spec.float_accumulator import FloatAccumulator, float_format
from tracer.accumulators.spec.operand_format import BLOCKS, OperandFormat
from tracer.accumulators.spec.orders import Terms
from tracer.accumulators.statistics.float_partial_sums import FloatTally
from tracer.graph.model import Node
from tracer.interpreter.numeric import parallel
from tracer.interpreter.numeric.products import Place, PlacedProduct
from tracer.interpreter.operators import MemoryBudget
from tracer.interpreter.values import Value
from tracer.support.types import Array

_INTEGERS = 127
"""The largest integer of 8 bits, in a range that is symmetric."""
_MX_UNIT = 2.0**-6
"""The unit of an MXINT8 element: the largest exponent of its numbers is 0."""
_LEAST_SCALE, _LARGEST_SCALE = -127, 127
"""Exponents of E8M0."""
_LEAST_OF_TILE = np.float32(1e-4)
"""DeepGEMM takes a tile's largest magnitude to be this at least."""
_SCALE = float_format("fp8-e4m3")
"""The format of the scales of NVFP4."""
_FLOATS = ("float32", "float16", "bfloat16")
"""Types whose numbers are numbers of float32."""
_MATRIX = -3
"""The last two axes add up to it."""
_OF_ALL = ("tensor", "nvfp4")
"""Scalings with a scale of the whole array."""
_SEEDS = 1 << 32
"""Seeds of nodes lie below it, so that those of their groups are different."""
_GATHERED = 1 << 20
"""Terms in another order that are gathered at a time, with zeros that fill up blocks."""
_GROUPS = 1 << 24
"""The same of groups and products."""


@dataclass(frozen=True, slots=True)
class CastOperand:
    """Numbers that are multiplied, float32, and the `factor` of their sums; None is 1.

    Scales of blocks are part of the numbers; with an accumulator that takes them apart, these are
    scaled numbers (`floats.casting`). The factor has as many axes as the numbers.
    """

    numbers: Array
    factor: Array | None = None

    def transposed(self) -> "CastOperand":
        """The transpose of a matrix, and of its factor."""
        return CastOperand(self.numbers.T, None if self.factor is None else self.factor.T)


@dataclass(frozen=True, slots=True)
class FloatOperands:
    """A node, and the `format` of its operands; None keeps the numbers of the graph.

    If `has_scales`, the accumulator takes the scales of blocks apart from their elements.
    `constant` are indices of inputs that are equal in every run: they are cast once, if there is
    `room` for the result. The scale of a whole array is that of each sample, the first axis of any
    other input, so that results do not depend on the batch.
    """

    node: Node
    attributes: Mapping[str, Any]
    format: OperandFormat | None
    constant: frozenset[int]
    room: MemoryBudget
    has_scales: bool = False
    _kept: dict[int, tuple[Array, CastOperand]] = field(default_factory=dict, repr=False)

    def check(self, inputs: Sequence[Value], floats: tuple[int, ...]) -> None:
        """Raises NoIntegerForm unless the inputs at `floats` have sums in floats."""
        for name in (inputs[index].dtype.name for index in floats):
            if name not in (*_FLOATS, "float64"):
                raise NoIntegerForm(f"its operands are {name}, which are no floats")
            if name == "float64" and self.format is None:
                raise NoIntegerForm(
                    "its operands are float64, more than a float accumulator takes: cast them"
                )

    def bias(self, index: int, inputs: Sequence[Value]) -> Array | None:
        """The bias at `index`, float32, which is not cast; None if there is none."""
        return inputs[index].astype(np.float32) if self.node.has_input(index) else None

    def matrix(self, index: int, tensor: Array, axis: int) -> CastOperand:
        """A matrix, or several, whose sums run along `axis`, as blocks that share a scale do.

        Tiles of a constant matrix are square.
        """
        first = 0 if tensor.ndim + axis == 0 else axis
        is_square = index in self.constant and tensor.ndim > 1
        across = _MATRIX - axis if is_square else None
        return self._once(
            index, tensor, lambda form: self._cast(index, tensor, first, form, across)
        )

    def packed_matrix(
        self, index: int, tensor: Array, unpack: Callable[[Array], Array]
    ) -> CastOperand:
        """A matrix that `unpack` makes of a tensor, float32 (N, K); its sums run along K.

        It is kept only if it is cast: a matrix in the graph's format stays packed.
        """
        if self.format is None:
            return CastOperand(unpack(tensor))
        return self._once(
            index, tensor, lambda form: self._cast(index, unpack(tensor), -1, form, -2)
        )

    def images(self, index: int, tensor: Array) -> CastOperand:
        """Images (N, C, *size): blocks that share a scale are along the channels of a group.

        A scale of a channel would differ within a window, so that images have one each.
        """
        groups = self.attributes.get("group", 1)
        groups = 1 if tensor.shape[1] % groups else groups
        shape = len(tensor), groups, tensor.shape[1] // groups, *tensor.shape[2:]

        def compute(form: OperandFormat) -> CastOperand:
            whole = replace(form, scaling="tensor") if form.scaling == "channel" else form
            result = self._cast(index, tensor.reshape(shape), 2, whole)
            factor = None if result.factor is None else result.factor.squeeze(1)
            return CastOperand(result.numbers.reshape(tensor.shape), factor)

        return self._once(index, tensor, compute)

    def kernels(
        self, index: int, tensor: Array, laid_out: Callable[[Array], Array] = np.asarray
    ) -> CastOperand:
        """Weights that `laid_out` turns into (M, C, *kernel), with blocks along their channels.

        A scale of a channel is of each output channel. The factor is (1, M or 1, 1, ...).
        """

        def compute(form: OperandFormat) -> CastOperand:
            weights = laid_out(tensor)
            rows = weights.reshape(len(weights), -1) if form.scaling == "channel" else weights
            result = self._cast(index, rows, 1, form, 0)
            if result.factor is None:
                return CastOperand(result.numbers.reshape(weights.shape))
            shape = (1, -1, *[1] * (weights.ndim - 2))
            return CastOperand(result.numbers.reshape(weights.shape), result.factor.reshape(shape))

        if self.format is None:
            return CastOperand(laid_out(tensor.astype(np.float32, copy=False)))
        return self._once(index, tensor, compute)

    def _once(
        self, index: int, tensor: Array, compute: Callable[[OperandFormat], CastOperand]
    ) -> CastOperand:
        """The numbers of the graph, or what `compute` makes of them: once for a constant."""
        if self.format is None:
            return CastOperand(tensor.astype(np.float32, copy=False))
        before, kept = self._kept.get(index, (None, None))
        if before is tensor:
            assert kept is not None
            return kept
        result = compute(self.format)
        if index in self.constant and before is None and result.numbers.nbytes <= self.room.nbytes:
            self.room.nbytes -= result.numbers.nbytes
            self._kept[index] = tensor, result
        return result

    def _cast(
        self, index: int, tensor: Array, axis: int, form: OperandFormat, across: int | None = None
    ) -> CastOperand:
        """A tensor with sums along `axis`; tiles of the other axis `across` are square."""
        has_samples = index not in self.constant and tensor.ndim > 1 and axis != 0
        if form.scaling not in _OF_ALL or not has_samples or not tensor.size:
            return self._with_scales(cast(tensor, form, axis, across), form, axis)
        inner = axis - 1 if axis > 0 else axis
        parts = [self._with_scales(cast(sample, form, inner), form, inner) for sample in tensor]
        factors = [part.factor for part in parts if part.factor is not None]
        return CastOperand(np.stack([part.numbers for part in parts]), np.stack(factors))

    def _with_scales(self, operands: "Operands", form: OperandFormat, axis: int) -> CastOperand:
        """The elements with the scales of their blocks; a scale of all is a factor of the sums."""
        size = operands.elements.shape[axis]
        match form.scaling:
            case "none":
                return CastOperand(operands.elements)
            case "tensor" | "channel":
                return CastOperand(operands.elements, operands.factor)
            case "mx" | "tiles" | "nvfp4":
                scales = spread(operands.scales, size, axis, form)
                join = paired if self.has_scales else np.multiply
                factor = operands.factor if form.scaling == "nvfp4" else None
                return CastOperand(join(operands.elements, scales), factor)
            case _:
                assert_never(form.scaling)


def scaled(sums: Array, *factors: Array | None) -> Array:
    """Returns sums, float32, times the factors that there are, one after the other."""
    for factor in factors:
        sums = sums if factor is None else sums * factor
    return sums


@dataclass(frozen=True, slots=True)
class Operands:
    """An array in a format: `values`, float32, are elements times both of their scales.

    Hardware sums products of `elements` times `scales`, and multiplies the sum by each `factor`.
    `scales` have one number for each block of the reduction axis, `factor` one for all numbers or
    for those along the reduction axis; both are float32, have the rank of the array, and are 1
    without such scaling. A scale of MX is NaN if a number of its block is not finite.

    Scales of tiles multiply sums over a tile.
    """

    values: Array
    elements: Array
    scales: Array
    factor: Array


def cast(array: Array, form: OperandFormat, axis: int = -1, across: int | None = None) -> Operands:
    """Returns an array in a format; `axis` is the axis of the products that are summed.

    `across` is the other axis of tiles of 128 x 128; without it, tiles are 1 x 128. The last block
    of an axis may be shorter. Scales are computed in float32, as converters do.
    """
    numbers = np.asarray(array, np.float32)
    scales = factor = np.ones((1,) * numbers.ndim, np.float32)
    match form.scaling:
        case "none":
            elements = _elements(numbers, form)
            return Operands(elements, elements, scales, factor)
        case "tensor":
            factor = _ratio(_largest(numbers, None), form)
        case "channel":
            factor = _ratio(_largest(numbers, axis), form)
        case "tiles":
            scales = _ratio(_tile_largest(numbers, axis, across), form)
        case "mx":
            scales = _powers(_block_largest(numbers, axis, BLOCKS["mx"]), form)
        case "nvfp4":  # an fp8-e4m3 for each block, and a float32 for all
            assert form.element is not None
            most = np.float32(form.element.largest)
            factor = _not_0(_largest(numbers, None) / (most * np.float32(_SCALE.largest)))
            largest = _block_largest(numbers, axis, BLOCKS["nvfp4"]) / (most * factor)
            scales = _not_0(cast_numbers(largest, _SCALE, saturates=True))
        case _:
            assert_never(form.scaling)
    with np.errstate(all="ignore"):
        whole = spread(scales, numbers.shape[axis], axis, form) * factor
        elements = _elements(numbers / whole, form)
        return Operands(elements * whole, elements, scales, factor)


def spread(scales: Array, size: int, axis: int, form: OperandFormat) -> Array:
    """Returns the scale of each of `size` numbers along an axis, given the scales of blocks."""
    block = BLOCKS.get(form.scaling)
    if block is None:
        return scales
    return np.repeat(scales, block, axis=axis).take(range(size), axis=axis)


def _elements(numbers: Array, form: OperandFormat) -> Array:
    """Returns numbers as elements, float32."""
    if form.element is not None:
        return cast_numbers(numbers, form.element, form.rounding, form.saturates)
    unit = np.float32(_MX_UNIT if form.scaling == "mx" else 1)
    return np.clip(np.rint(numbers / unit), -_INTEGERS, _INTEGERS) * unit


def _largest(numbers: Array, axis: int | None) -> Array:
    """Returns the largest magnitude of all numbers, or of those along an axis; NaN if one is."""
    if not numbers.size:
        return np.zeros((1,) * numbers.ndim, np.float32)
    return np.asarray(np.max(np.abs(numbers), axis=axis, keepdims=True))


def _block_largest(numbers: Array, axis: int, size: int) -> Array:
    """Returns the largest magnitude of each block of an axis."""
    starts = np.arange(0, numbers.shape[axis], size)
    if not numbers.size:
        shape = list(numbers.shape)
        shape[axis] = len(starts)
        return np.zeros(shape, np.float32)
    return np.maximum.reduceat(np.abs(numbers), starts, axis=axis)


def _tile_largest(numbers: Array, axis: int, across: int | None) -> Array:
    """Returns the largest magnitude of each tile of `axis`, for all numbers of `across`."""
    size = BLOCKS["tiles"]
    largest = _block_largest(numbers, axis, size)
    if across is not None:
        rows = _block_largest(largest, across, size)
        largest = np.repeat(rows, size, axis=across).take(range(numbers.shape[across]), axis=across)
    return np.maximum(largest, _LEAST_OF_TILE)


def _ratio(largest: Array, form: OperandFormat) -> Array:
    """Returns float32 scales by which the largest magnitudes become the largest number."""
    most = _INTEGERS if form.element is None else form.element.largest
    return _not_0(largest / np.float32(most))


def _powers(largest: Array, form: OperandFormat) -> Array:
    """Returns powers of 2, as E8M0 holds them."""
    top = 0 if form.element is None else form.element.largest_exponent
    exponents = np.frexp(np.where(largest == 0, 1, largest))[1] - 1 - top
    exponents = np.where(largest == 0, _LEAST_SCALE, np.maximum(exponents, _LEAST_SCALE))
    scales = np.ldexp(np.ones_like(largest), exponents)
    is_scale = np.isfinite(largest) & (exponents <= _LARGEST_SCALE)
    return np.where(is_scale, scales, np.float32(np.nan))


def _not_0(scales: Array) -> Array:
    """Returns scales, float32, with 1 in place of 0."""
    return np.where(scales == 0, np.float32(1), scales).astype(np.float32)


class FloatRunner:
    """Sums products in blocks, from several threads.

    Stochastic rounding depends on `seed`, on the group, and on the number of the sum among all sums
    of the node, of earlier runs too. A column of sums (all output channels at one position) is
    numbered after those of the images or matrices before it. So batches of any size give the same
    sums, as long as the batch is the first axis and the node runs once for each batch.
    """

    def __init__(
        self, accumulator: FloatAccumulator | BlockFma, tally: FloatTally, seed: int
    ) -> None:
        """`tally` has the names of accumulator and operands; sums are added to it."""
        self.accumulator = accumulator
        self.tally = tally
        self._seed = seed % _SEEDS
        self._columns: dict[int, int] = defaultdict(int)
        self._lock = Lock()

    @property
    def has_run(self) -> bool:
        """Whether the node has computed anything."""
        return any(self._columns.values())

    @property
    def block(self) -> int | None:
        """Neighbouring terms that share scales, which stay apart; None if there are none."""
        if not isinstance(self.accumulator, BlockFma):
            return None
        return BLOCKS.get(self.accumulator.scaling)

    def product(
        self, columns: int, start: Array | None, order: Array | None = None, number: int = 0,
        terms: Terms | None = None,
    ) -> PlacedProduct:  # fmt: skip
        """Returns the product of the next run, which has so many `columns` in all.

        `start` has the first term of each output channel, those of the first group first. `order`
        are the indices of the terms in the order in which they are added, and -1 for a term of 0;
        None is 0, 1, 2 and so on. `terms` are those of a convolution. A node with several products
        for each sample gives each its own `number`.
        """
        first = self._columns[number]
        self._columns[number] += columns

        def product(left: Array, right: Array, out: Array, place: Place) -> None:
            rows = slice(place.group * len(left), (place.group + 1) * len(left))
            begin = None if start is None else start[rows]
            seed = self._seed + (place.group + number * _GROUPS) * _SEEDS
            column = first + place.column
            if order is None:
                out[...] = self._sums(left, right, begin, seed, column, terms)
                return
            ordered = _gathered(left, order)
            for part in parallel.pieces(right.shape[1], max(_GATHERED // len(order), 1)):
                some = _gathered(right[:, part].T, order).T
                out[:, part] = self._sums(ordered, some, begin, seed, column + part.start)

        return product

    def _sums(
        self, left: Array, right: Array, start: Array | None, seed: int, column: int,
        terms: Terms | None = None,
    ) -> Array:  # fmt: skip
        """The sums of a block whose first column has a number; adds to the statistics."""
        number = column * len(left)
        sums = sum_products(left, right, start, self.accumulator, seed, number, terms)
        part = FloatTally.empty(self.tally.accumulator, self.tally.operands).plus(
            sums.values, sums.overflowed, sums.swamped, sums.terms, sums.exact
        )
        with self._lock:
            self.tally = self.tally.merged(part)
        return sums.values


def _gathered(rows: Array, order: Array) -> Array:
    """The terms of rows (N, K) in an order; that at -1 is 0."""
    return np.pad(rows, ((0, 0), (0, 1)))[:, order]


def sum_products(
    left: Array,
    right: Array,
    start: Array | None,
    accumulator: FloatAccumulator | BlockFma,
    seed: int = 0,
    first_output: int = 0,
    terms: Terms | None = None,
) -> State:
    """Returns the sums of `left` (M, K) times `right` (K, P), floats in the format of operands.

    Their values are float32. `start` (M,) is the first term of each row of sums; None is 0. `terms`
    say what K consists of [default: that many channels].
    Operands are float32 numbers, of any float type; for a block multiply-add of operands with
    scales, they are scaled numbers, of which those of a block share a scale. Threads may call it at
    once. Raises UsageError where a block multiply-add gets operands that are not in its format.

    Stochastic rounding hashes the seeds (of the rule, and `seed`, say of the node), the index of
    the output and the step. Outputs count down the columns: (m, p) has the index `first_output` + p
    M + m. So the columns of a product may be summed in blocks: a block that begins with column c
    has `first_output` c M, and any division gives the same sums.
    """
    rows, columns = len(left), right.shape[1]
    begin = np.zeros(rows) if start is None else np.asarray(start, np.float64)
    first, indices = begin[:, None], None
    if accumulator.rounding.name == "sr":
        indices = np.arange(rows * columns).reshape(columns, rows).T + first_output
    sides = left, right
    is_turned = columns < rows  # vectors of the kernels have columns in their lanes
    if is_turned:
        sides, first = (right.T, left.T), first.T
        indices = None if indices is None else indices.T
    with np.errstate(all="ignore"):
        match accumulator:
            case FloatAccumulator(is_plain=False):
                of_k = terms or Terms(left.shape[1])
                state = compiled_sums.by_stages(*sides, first, accumulator, of_k)
            case FloatAccumulator():
                state = compiled_sums.sequential(*sides, first, accumulator, seed, indices)
            case BlockFma(rule="aligned") if indices is None:
                state = compiled_sums.blocks(*sides, first, accumulator)
            case BlockFma():
                factors, others = (
                    side if np.iscomplexobj(side) else np.asarray(side, np.float64)
                    for side in sides
                )  # fmt: skip
                begins = np.broadcast_to(first, (len(factors), others.shape[1]))
                state = oracle.blocks(factors, others, begins, accumulator, seed, indices)
            case _:
                assert_never(accumulator)
    single = state.values.astype(np.float32, copy=False)
    if isinstance(accumulator, BlockFma):  # NaN has the bits of its register's format
        unused = 23 - accumulator.register.fraction_bits
        nan = np.array([0x7FFFFFFF >> unused << unused], np.uint32).view(np.float32)
        single[np.isnan(single)] = nan
    arrays = single, state.overflowed, state.swamped, state.terms, state.exact
    return State(*(each.T if is_turned else each for each in arrays))
