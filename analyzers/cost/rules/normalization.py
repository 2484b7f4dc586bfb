"""Normalisations. With stored statistics: one multiplication and one addition per element.

With statistics of the data:

- mean: a sum and a division
- variance: a subtraction, a square, a sum and a division
- factor: an addition of epsilon, a root, a reciprocal, and one multiplication per element

Scale and shift are one operation per element each.
"""

import math

from tracer.analyzers.cost.count import Bytes, Count, Operation, counts, known_sum, require, total
from tracer.analyzers.cost.rules.elementwise import PER_ELEMENT
from tracer.analyzers.cost.rules.quantization import DEQUANTISE
from tracer.graph.operators import MICROSOFT

SCALE = Count(muls=1)
SHIFT = Count(adds=1)
_STATISTICS = Count(adds=3, muls=1)  # sum; centre, square, sum: per element


@counts("BatchNormalization", settings=(3, 4))
def _batch(op: Operation) -> Count:
    per_element = SCALE + SHIFT
    if op.integer("training_mode", 0) or len(op.node.outputs) > 1:
        per_element += _STATISTICS
    return per_element * op.output().size


@counts("InstanceNormalization")
def _instance(op: Operation) -> Count:
    groups = math.prod(op.input(0).shape[:2])
    require(op.input(1).size == op.input(0).shape[1])
    return normalise(op.input(0).size, groups) + (SCALE + SHIFT) * op.input(0).size


@counts("GroupNormalization")
def _group(op: Operation) -> Count:
    groups = op.input(0).shape[0] * op.integer("num_groups", 1)
    return normalise(op.input(0).size, groups) + (SCALE + SHIFT) * op.input(0).size


@counts("LayerNormalization", domain=("", MICROSOFT))
def _layer(op: Operation) -> Count:
    return _layer_norm(op, scale=1)


@counts("RMSNormalization")
@counts("SimplifiedLayerNormalization", domain=("", MICROSOFT))
def _rms(op: Operation) -> Count:
    return root_mean_square(op.input(0).size, rows(op)) + _scaled(op, 1)


@counts("MeanVarianceNormalization")
def _mean_variance(op: Operation) -> Count:
    shape = op.input(0).shape
    axes = {axis % len(shape) for axis in op.integers("axes") or (0, 2, 3)}
    groups = math.prod(size for axis, size in enumerate(shape) if axis not in axes)
    return normalise(op.input(0).size, groups)


@counts("LpNormalization")
def _lp(op: Operation) -> Count:
    elements = op.input(0).size
    rows = elements // max(op.input(0).shape[op.integer("axis", -1)], 1)
    if op.integer("p", 2) == 1:
        return Count(adds=1, other=2) * elements  # absolute value, sum, division
    return Count(adds=1, muls=1, other=1) * elements + Count(other=rows)


@counts("LRN")
def _local_response(op: Operation) -> Count:
    """x / (bias + alpha / size × the sum of `size` squares) ** beta."""
    return Count(adds=op.integer("size", 1) + 1, muls=2, other=2) * op.output().size


def normalise(elements: int, groups: int) -> Count:
    """Counts normalising to mean 0 and variance 1 within each group."""
    return (_STATISTICS + SCALE) * elements + Count(adds=1, other=4) * groups


def root_mean_square(elements: int, groups: int) -> Count:
    """Counts normalising to a mean square of 1 within each group."""
    root = Count(adds=1, other=3)  # divide, add epsilon, root, reciprocal
    return (Count(adds=1, muls=1) + SCALE) * elements + root * groups


def rows(op: Operation) -> int:
    """Returns the number of groups: the product of the axes before `axis`."""
    shape = op.input(0).shape
    return math.prod(shape[: op.integer("axis", -1) % len(shape)])


@counts("SkipLayerNormalization", domain=MICROSOFT)
def _skip_layer(op: Operation) -> Count:
    residual = Count(adds=1 + op.has(4)) * op.input(0).size
    return residual + _layer_norm(op, scale=2)


@counts("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def _skip_rms(op: Operation) -> Count:
    elements = op.input(0).size
    residual = Count(adds=1 + op.has(3)) * elements
    return residual + root_mean_square(elements, rows(op)) + _scaled(op, 2)


@counts("GroupNorm", "SkipGroupNorm", domain=MICROSOFT)
def _fused_group(op: Operation) -> Count:
    """Adds skip and bias, if present, and normalises; the activation is SiLU or none."""
    elements = op.input(0).size
    groups = op.input(0).shape[0] * op.integer("groups", 1)
    residual = Count(adds=op.has(3) + op.has(4))
    activation = PER_ELEMENT["Sigmoid"] + Count(muls=1) if op.integer("activation", 0) else Count()
    return normalise(elements, groups) + (residual + SCALE + SHIFT + activation) * elements


def _embedding_traffic(op: Operation) -> tuple[Bytes, Bytes]:
    """Reads as many elements of each table as the output has, and the other inputs whole."""
    tables = [op.input(index) for index in (2, 3, 4) if op.has(index)]
    names = [table.name for table in tables]
    rest = total(operand for operand in op.inputs() if operand.name not in names)
    size = op.output().size
    rows = [None if t.nbytes is None else t.nbytes * size // max(t.size, 1) for t in tables]
    return known_sum([rest, *rows]), total(op.outputs())


@counts("EmbedLayerNormalization", domain=MICROSOFT, moves=_embedding_traffic, settings=(7, 8))
def _embed(op: Operation) -> Count:
    """Sums the embeddings of word, position and, if present, segment; normalises the sum."""
    output = op.output()
    tokens = math.prod(output.shape[:-1])
    summed = Count(adds=1 + op.has(4))
    return normalise(output.size, tokens) + (summed + SCALE + SHIFT) * output.size


@counts("QEmbedLayerNormalization", domain=MICROSOFT, moves=_embedding_traffic,
        settings=range(7, 18))  # fmt: skip
def _quantized_embed(op: Operation) -> Count:
    """Dequantises the rows of the tables and the weights, then as EmbedLayerNormalization."""
    tables = 2 + op.has(4)
    dequantised = op.output().size * tables + op.input(5).size + op.input(6).size
    return DEQUANTISE * dequantised + _embed(op)


def _layer_norm(op: Operation, scale: int) -> Count:
    elements = op.input(0).size
    shift = SHIFT * elements if op.has(scale + 1) else Count()
    return normalise(elements, rows(op)) + _scaled(op, scale) + shift


def _scaled(op: Operation, scale: int) -> Count:
    shape, factors = op.input(0).shape, op.input(scale).known_shape or ()
    axes = zip(reversed(factors), reversed(shape), strict=False)
    require(len(factors) <= len(shape) and all(size in (1, n) for size, n in axes))
    return SCALE * op.input(0).size
