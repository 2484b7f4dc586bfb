"""The work of sides that count none: a framework's operators do what their ONNX nodes do."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from tracer.analyzers.compare.alignment import Layer
from tracer.analyzers.compare.operators import BACKWARD
from tracer.analyzers.compare.sides import Side

COLUMNS = ("macs", "flops", "params")


def lent(sides: Sequence[Side], layers: Sequence[Layer]) -> list[Side]:
    """Returns the sides; one without work has the work of its layers on another side.

    The lender is the first side that ran on inputs of the same shapes. The first row of a layer has
    the work of the whole layer. Rows of backward passes have none.
    """
    return [_with_work(index, sides, layers) for index in range(len(sides))]


def _with_work(index: int, sides: Sequence[Side], layers: Sequence[Layer]) -> Side:
    side = sides[index]
    if _counts(side):
        return side
    lenders = [
        other
        for other, lender in enumerate(sides)
        if _counts(lender) and _input_shapes(lender) == _input_shapes(side)
    ]
    if not lenders:
        return side
    lender = sides[lenders[0]]
    nodes = side.nodes.copy()
    backward = nodes["op_type"].str.endswith(BACKWARD).fillna(False).tolist()
    forward = [[row for row in layer.rows[index] if not backward[row]] for layer in layers]
    for column in COLUMNS:
        sums = lender.sums_of(column, [layer.rows[lenders[0]] for layer in layers])
        values = nodes[column].tolist()
        for rows, work in zip(forward, sums.tolist(), strict=True):
            if rows and not math.isnan(work):
                values[rows[0]] = int(work)
        nodes[column] = pd.array(values, "Int64")
    return replace(side, nodes=nodes, lender=lender)


def _counts(side: Side) -> bool:
    return bool(side.nodes["macs"].notna().any())


def _input_shapes(side: Side) -> list[str]:
    """Returns the shapes of the inputs by position; names and types differ between frameworks."""
    return [text.partition("[")[2] for text in side.run.inputs.values()]
