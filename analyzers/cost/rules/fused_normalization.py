"""onnxruntime's normalisations with what it fuses before them: residuals, biases, embeddings."""

import math

from tracer.analyzers.cost import traffic
from tracer.analyzers.cost.activations import PER_ELEMENT
from tracer.analyzers.cost.count import Count
from tracer.analyzers.cost.operation import Operand, Operation
from tracer.analyzers.cost.registry import counts
from tracer.analyzers.cost.rules.normalization import (
    SCALE,
    SHIFT,
    normalise,
    root_mean_square,
    rows,
)
from tracer.analyzers.cost.rules.quantization import DEQUANTISE
from tracer.analyzers.cost.traffic import Bytes

_MICROSOFT = "com.microsoft"


@counts("LayerNormalization", domain=_MICROSOFT)
def _layer(op: Operation) -> Count:
    return _layer_norm(op, shift=2)


@counts("SkipLayerNormalization", domain=_MICROSOFT)
def _skip_layer(op: Operation) -> Count:
    residual = Count(adds=1 + op.has(4)) * op.input(0).size
    return residual + _layer_norm(op, shift=3)


@counts("SkipSimplifiedLayerNormalization", domain=_MICROSOFT)
def _skip_rms(op: Operation) -> Count:
    elements = op.input(0).size
    residual = Count(adds=1 + op.has(3)) * elements
    return residual + root_mean_square(elements, rows(op)) + SCALE * elements


@counts("GroupNorm", "SkipGroupNorm", domain=_MICROSOFT)
def _group(op: Operation) -> Count:
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
    rest = traffic.total(operand for operand in op.inputs() if operand.name not in names)
    rows = [_rows_of(table, op.output().size) for table in tables]
    return traffic.known_sum([rest, *rows]), traffic.total(op.outputs())


def _rows_of(table: Operand, elements: int) -> Bytes:
    """Returns the bytes of some elements of a table."""
    return None if table.nbytes is None else table.nbytes * elements // max(table.size, 1)


@counts("EmbedLayerNormalization", domain=_MICROSOFT, moves=_embedding_traffic, settings=(7, 8))
def _embed(op: Operation) -> Count:
    """Sums the embeddings of word, position and, if present, segment; normalises the sum."""
    output = op.output()
    tokens = math.prod(output.shape[:-1])
    summed = Count(adds=1 + op.has(4))
    return normalise(output.size, tokens) + (summed + SCALE + SHIFT) * output.size


@counts("QEmbedLayerNormalization", domain=_MICROSOFT, moves=_embedding_traffic,
        settings=range(7, 18))  # fmt: skip
def _quantized_embed(op: Operation) -> Count:
    """Dequantises the rows of the tables and the weights, then as EmbedLayerNormalization."""
    tables = 2 + op.has(4)
    dequantised = op.output().size * tables + op.input(5).size + op.input(6).size
    return DEQUANTISE * dequantised + _embed(op)


def _layer_norm(op: Operation, shift: int) -> Count:
    elements = op.input(0).size
    affine = SCALE + SHIFT if op.has(shift) else SCALE
    return normalise(elements, rows(op)) + affine * elements
