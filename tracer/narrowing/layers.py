"""The sums that can be narrowed: layers with stored weights, and sums of activations alone.

A layer is a product of quantised activations and stored weights. A plain sum has no weights: a
product of activations, a pooling, a reduction. Both read integers of a `Grid`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from tracer.accumulators.engine.tensor_scales import TensorScale, TensorScales
from tracer.accumulators.engine.value_ranges import integer_range
from tracer.graph.model import Model, Node
from tracer.interpreter import values
from tracer.interpreter.numeric.windows import padded, patches, window
from tracer.interpreter.ops.quantization import aligned
from tracer.interpreter.values import Value
from tracer.narrowing.requirement import Need
from tracer.support.types import Array, FloatArray


@dataclass(frozen=True, slots=True)
class Grid:
    """The integers `low` <= 0 to `high` >= 0 times `step`, that inputs are rounded to.

    They are stored plus a `zero` point, by default as numbers from 0, or as int8 where `is_int8`.
    """

    step: float
    low: int
    high: int
    zero: int | None = None
    is_int8: bool = False

    def ends(self, need: Need) -> tuple[int, int]:
        """Returns the least and the greatest integer, and 0, as the sums of `need` read them."""
        shift = 0
        if need.reads_stored:
            shift = -self.low if self.zero is None else self.zero
            shift += _LIFT if self.is_int8 and need.lifts_int8 else 0
        return min(self.low + shift, 0), max(self.high + shift, 0)

    @property
    def bits(self) -> int:
        """Bits that number the integers."""
        return (self.high - self.low).bit_length()

    @property
    def extent(self) -> int:
        """The largest magnitude of an integer."""
        return max(self.high, -self.low)

    def integers(self, values: FloatArray) -> FloatArray:
        """Returns real inputs as integers of the grid."""
        result: FloatArray = np.clip(np.rint(values / self.step), self.low, self.high)
        return result

    def of_bits(self, bits: int, kept: float) -> "Grid":
        """Returns a grid of at most `bits` bits over a share of the range."""
        count = (1 << bits) - 1
        step = self.step * kept * (self.high - self.low) / count
        low = max(round(self.low * self.step * kept / step), -count)
        return Grid(step, low, low + count)

    def of_extent(self, extent: int, kept: float) -> "Grid":
        """Returns a grid of integers up to `extent` over a share of the range."""
        step = self.step * kept * self.extent / extent
        low, high = (round(end * self.step * kept / step) for end in (self.low, self.high))
        return Grid(step, max(low, -extent), min(high, extent))

    def clipped(self, kept: float) -> "Grid":
        """Returns the grid without the values beyond a share of its range."""
        return Grid(self.step, round(self.low * kept), round(self.high * kept))


PRODUCTS, MEANS = ("MatMul",), ("AveragePool", "GlobalAveragePool", "ReduceMean")
PLAIN_SUMS = (*MEANS, "ReduceSum")
_FIXED_COST = 1 << 16
"""The cost of what any node takes."""


@dataclass(frozen=True, slots=True)
class PlainSum:
    """A node that adds activations, or products of two: inputs on `grids`, one or two.

    `window` is the number of terms where the node's attributes say it, else None.
    """

    key: str
    op_type: str
    grids: tuple[Grid, ...]
    window: int | None = None
    cost: ClassVar = _FIXED_COST
    """How long a change takes, in the unit of a layer's."""

    @property
    def is_mean(self) -> bool:
        """Whether sums are divided by the number of their terms."""
        return self.op_type in MEANS

    def depth(self, inputs: Sequence[Value], output: Value) -> int:
        """Returns the number of terms of a sum, at most, for these inputs."""
        if self.op_type in PRODUCTS:
            return int(np.asarray(inputs[0]).shape[-1])
        if self.window is not None:
            return self.window
        return int(np.asarray(inputs[0]).size // max(np.asarray(output).size, 1))


def find_plain_sums(model: Model) -> tuple[PlainSum, ...]:
    """Returns the sums of quantised activations with one scale each, in the order of the graph."""
    scales, found = TensorScales(model), list[PlainSum]()
    for node in model.nodes:
        if node.domain or node.scope.path or node.op_type not in (*PRODUCTS, *PLAIN_SUMS):
            continue
        names = node.inputs[: 2 if node.op_type in PRODUCTS else 1]
        grids = [_grid(scales.of(name, node.scope)) for name in names]
        known = tuple(each for each in grids if each is not None)
        stored = any(scales.constant(name, node.scope) for name in names)
        if stored or len(known) < len(grids):
            continue
        attributes = values.attributes_of(node.proto)
        window = math.prod(attributes["kernel_shape"]) if node.op_type == "AveragePool" else None
        found.append(PlainSum(node.key, node.op_type, known, window))
    return tuple(found)


def _grid(scale: TensorScale | None) -> Grid | None:
    if scale is None or scale.step.size > 1 or not scale.recoverable:
        return None
    return Grid(float(scale.step.item()), min(scale.low, 0), max(scale.high, 0), scale.zero,
                scale.dtype == "int8")  # fmt: skip


OPERATORS = ("Conv", "Gemm", "MatMul")
_BIAS = 2
_BYTE, _LEAST_BITS = 8, 2
_LIFT = 128
"""What makes int8 unsigned."""
_SMALL = {
    f"{sign}int{bits}": np.dtype(dtype)
    for bits, dtype in ((2, ml_dtypes.int2), (4, ml_dtypes.int4))
    for sign in ("", "u")
}
"""The signed types that weights of fewer than 8 bits become, by the names of their types."""
_INT8 = np.dtype(np.int8)
_PLAIN = {"transA": 0, "alpha": 1, "beta": 1}
"""Attributes of Gemm, with the values of a product and its bias."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A node as a matrix product: output = weights (M, K) times inputs, plus bias (M) or None.

    Weights are `integers` (M, K) times `scales` (M,); the bias is real. Inputs are on
    `grid`; each of `groups` groups of M / groups outputs reads K of its own.
    `shape` is that of the stored weights; `transposed` where their rows are the K inputs. Weights
    have `weight_bits` bits, 8 at most, and become integers of `weight_type`. They keep one scale
    where the stored tensor `has_one_scale`. `zero` is the zero point of the stored weights.
    """

    key: str
    op_type: str
    integers: FloatArray = field(repr=False)
    scales: FloatArray = field(repr=False)
    bias: FloatArray | None = field(repr=False)
    grid: Grid
    shape: tuple[int, ...]
    transposed: bool
    groups: int
    attributes: Mapping[str, Any]
    weight_bits: int = _BYTE
    weight_type: np.dtype[Any] = _INT8
    has_one_scale: bool = False
    zero: int = 0

    @property
    def most_weight(self) -> int:
        """The largest magnitude of a weight that is changed: no more bits than weights have."""
        return (1 << self.weight_bits - 1) - 1

    @property
    def is_storable(self) -> bool:
        """Whether the weights as they are fit their type without a zero point."""
        low, high = integer_range(self.weight_type)
        return bool(low <= self.integers.min() and self.integers.max() <= high)

    @property
    def weights(self) -> FloatArray:
        """The real weights (M, K)."""
        result: FloatArray = self.integers * self.scales[:, None]
        return result

    @property
    def depth(self) -> int:
        """The number of terms of a sum."""
        return int(self.integers.shape[1])

    @property
    def cost(self) -> int:
        """How long a fit takes, in proportion: its inputs have K² correlations."""
        return _FIXED_COST + self.groups * self.depth**2

    @property
    def kernel(self) -> tuple[int, ...]:
        """The kernel of a convolution; empty for a product of matrices."""
        return tuple(self.shape[2:]) if self.op_type == "Conv" else ()

    @property
    def window(self) -> int:
        """The number of terms of an input channel."""
        return math.prod(self.kernel)

    @property
    def channel_axis(self) -> int:
        """The axis of the input channels in the tensor that the node reads."""
        return 1 if self.op_type == "Conv" else -1

    def of_outputs(self, rows: Array) -> "Layer":
        """Returns the layer with some of its outputs, of a layer without groups."""
        axis = 1 if self.transposed else 0
        shape = (*self.shape[:axis], len(rows), *self.shape[axis + 1 :])
        bias = None if self.bias is None else self.bias[rows]
        return replace(
            self, integers=self.integers[rows], scales=self.scales[rows], bias=bias, shape=shape
        )

    def columns(self, inputs: Array, count: int, generator: np.random.Generator) -> FloatArray:
        """Returns the inputs (at most `count`, groups, K) of random outputs, for a tensor."""
        if self.op_type != "Conv":
            rows = inputs.reshape(-1, 1, inputs.shape[-1])
            return np.asarray(rows[_chosen(len(rows), count, generator)], np.float64)
        options, spatial = self.attributes, self.shape[2:]
        windows = window(
            inputs.shape[2:], spatial, options.get("strides"), options.get("pads"),
            options.get("dilations"), options.get("auto_pad", "NOTSET"),
        )  # fmt: skip
        view = patches(padded(inputs, windows), windows)
        places = (len(inputs), *windows.out)
        kernel = tuple(range(1, 2 + len(spatial)))
        view = view.transpose(0, *range(2 + len(spatial), view.ndim), *kernel)
        picked = _chosen(int(np.prod(places)), count, generator)
        columns = view[np.unravel_index(picked, places)]
        return np.asarray(columns, np.float64).reshape(len(picked), self.groups, -1)

    def stored(self, matrix: Array) -> Array:
        """Returns a matrix (M, K), of some of the input channels, as weights are stored."""
        if self.transposed:
            return np.ascontiguousarray(matrix.T)
        return np.ascontiguousarray(matrix.reshape(len(matrix), -1, *self.shape[2:]))


def find_layers(model: Model) -> tuple[tuple[Layer, ...], Mapping[str, str]]:
    """Returns the layers in the order of the graph, and why other products are none, by key."""
    scales = TensorScales(model)
    layers, others = [], {}
    for node in model.nodes:
        if node.op_type not in OPERATORS or node.domain:
            continue
        found = _layer(node, scales)
        if isinstance(found, Layer):
            layers.append(found)
        else:
            others[node.key] = found
    return tuple(layers), others


def _layer(node: Node, scales: TensorScales) -> Layer | str:
    """Returns the layer of a node, or why it is none."""
    attributes = values.attributes_of(node.proto)
    if node.scope.path:
        return "it is in the body of another node"
    if any(attributes.get(name, usual) != usual for name, usual in _PLAIN.items()):
        return "it scales or transposes its operands"
    inputs, operand = (scales.of(name, node.scope) for name in node.inputs[:_BIAS])
    integers = scales.stored_integers(node.inputs[1], node.scope)
    grid = _grid(inputs)
    if grid is None:
        return "its activations are not quantised with one scale"
    if operand is None or integers is None:
        producer = scales.producer(node.inputs[1], node.scope)
        settings = producer.proto.attribute if producer is not None else ()
        if any(each.name == "block_size" and each.i for each in settings):
            return "its weights are in blocks, each with a scale of its own"
        return "its weights are not stored integers"
    if node.op_type != "Conv" and integers.ndim != 2:
        return "its weights are no matrix"
    bias = _bias(node, scales)
    if isinstance(bias, str):
        return bias
    transposed = node.op_type == "MatMul" or (
        node.op_type == "Gemm" and not attributes.get("transB", 0)
    )
    step = aligned(operand.step.astype(np.float64), integers, operand.axis, 0)
    matrix, steps = (
        np.asarray(each.T if transposed else each.reshape(len(each), -1), np.float64)
        for each in (integers, np.broadcast_to(step, integers.shape))
    )
    if np.ptp(steps, axis=1).any():
        return "its weights have a scale for each input"
    stored = scales.stored_type(node.inputs[1], node.scope)
    dtype = _INT8 if stored is None else _SMALL.get(stored.name, _INT8)
    return Layer(
        key=node.key,
        op_type=node.op_type,
        integers=matrix,
        scales=steps[:, 0],
        bias=bias,
        grid=grid,
        shape=integers.shape,
        transposed=transposed,
        groups=attributes.get("group", 1),
        attributes=attributes,
        weight_bits=_weight_bits(integers, operand, dtype),
        weight_type=dtype,
        has_one_scale=operand.step.size == 1,
        zero=operand.zero or 0,
    )


def _weight_bits(integers: Array, operand: TensorScale, dtype: np.dtype[Any]) -> int:
    """Returns the bits that hold stored weights, at most those of the type that they get.

    Numbers without a sign have the bits of the range of a channel, wherever its zero point is.
    """
    channels = integers.reshape(1, -1)
    if operand.step.size > 1:
        channels = np.moveaxis(integers, operand.axis, 0).reshape(operand.step.size, -1)
    low, high = channels.min(1, initial=0), channels.max(1, initial=0)
    bits = int((high - low).max()).bit_length()
    if operand.zero == 0 and operand.low < 0:
        bits = 1 + int(np.maximum(-low - 1, high).max()).bit_length()
    least, most = integer_range(dtype)
    return min(max(bits, _LEAST_BITS), (most - least).bit_length())


def _bias(node: Node, scales: TensorScales) -> FloatArray | str | None:
    if not node.has_input(_BIAS):
        return None
    name = node.inputs[_BIAS]
    integers, scale = scales.stored_integers(name, node.scope), scales.of(name, node.scope)
    floats = scales.value(name, node.scope)
    if floats is not None:  # as other quantisers store it
        return np.asarray(floats, np.float64).reshape(-1)
    if integers is None or scale is None:
        return "its bias is not stored"
    return np.asarray(integers * scale.step.astype(np.float64), np.float64).reshape(-1)


def _chosen(total: int, count: int, generator: np.random.Generator) -> Array:
    if total <= count:
        return np.arange(total)
    return np.sort(generator.choice(total, count, replace=False))
