"""The work of sides that count none: a framework's operators do what their ONNX nodes do."""

from collections.abc import Sequence
from dataclasses import replace

from analyzers.compare.alignment import Layer
from analyzers.compare.operators import BACKWARD
from analyzers.compare.sides import Side

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
    backward = nodes["op_type"].str.endswith(BACKWARD).fillna(False)
    for layer in layers:
        rows = [row for row in layer.rows[index] if not backward.iloc[row]]
        for column in COLUMNS if rows else ():
            work = lender.sum_of(column, layer.rows[lenders[0]])
            if work is not None:
                nodes.loc[rows[0], column] = int(work)
    return replace(side, nodes=nodes, lender=lender)


def _counts(side: Side) -> bool:
    return bool(side.nodes["macs"].notna().any())


def _input_shapes(side: Side) -> list[str]:
    """Returns the shapes of the inputs by position; names and types differ between frameworks."""
    return [text.partition("[")[2] for text in side.run.inputs.values()]
