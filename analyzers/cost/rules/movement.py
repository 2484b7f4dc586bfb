"""Operators that view, select, copy or rearrange data, without arithmetic."""

from analyzers.cost import traffic
from analyzers.cost.count import NOTHING, Count
from analyzers.cost.operation import Operation
from analyzers.cost.registry import counts


@counts("Reshape", "Squeeze", "Unsqueeze", moves=traffic.nothing, settings=(1,))
@counts("Flatten", "Identity", "BitCast", moves=traffic.nothing)
@counts("ExpandDims", domain="com.microsoft", moves=traffic.nothing, settings=(1,))
def _view(op: Operation) -> Count:
    return NOTHING


@counts("Shape", "Size", moves=traffic.only_writes)
def _describe(op: Operation) -> Count:
    return NOTHING


@counts("Constant", moves=traffic.nothing)
def _stored(op: Operation) -> Count:
    """A stored tensor: nothing runs."""
    return NOTHING


@counts("Gather", "GatherElements", "GatherND", "Compress", moves=traffic.selects, settings=(1,))
@counts("Slice", "Split", moves=traffic.selects, settings=(1, 2, 3, 4))
@counts("CenterCropPad", moves=traffic.selects, settings=(1,))
@counts("ReverseSequence", "Trilu", moves=traffic.selects, settings=(1,))
@counts("GatherND", domain="com.microsoft", moves=traffic.selects, settings=(1,))
@counts("Trilu", domain="com.microsoft", moves=traffic.selects, settings=(1,))
def _select(op: Operation) -> Count:
    return NOTHING


@counts("Transpose", "Concat", "DepthToSpace", "SpaceToDepth")
@counts("Expand", "Tile", settings=(1, 2))
@counts("Pad", settings=(1, 2, 3))
@counts("OneHot", settings=(1, 2))
@counts("MaxUnpool", settings=(2,))
@counts("Pad", domain="com.microsoft", settings=(1, 2, 3))
@counts("ReorderInput", "ReorderOutput", domain="com.microsoft.nchwc")
def _copy(op: Operation) -> Count:
    return NOTHING


@counts("Scatter", settings=(1,))
@counts("TensorScatter", settings=(2,))
def _scatter(op: Operation) -> Count:
    return NOTHING


@counts("ScatterElements", "ScatterND", settings=(1,))
def _scatter_reduce(op: Operation) -> Count:
    reduction = op.text("reduction", "none")
    if reduction == "none":
        return NOTHING
    one = {"add": Count(adds=1), "mul": Count(muls=1)}.get(reduction, Count(other=1))
    return one * op.input(2).size


def _dropout_traffic(op: Operation) -> tuple[traffic.Bytes, traffic.Bytes]:
    return traffic.everything(op) if _trains(op) else traffic.nothing(op)


def _trains(op: Operation) -> bool:
    if op.opset < 7:
        return op.integer("is_test", 0) == 0
    mode = op.constant(2)  # a flag that is fed is taken for inference, which is what we count
    return mode is not None and bool(mode.reshape(-1)[0])


@counts("Dropout", moves=_dropout_traffic, settings=(1, 2))
def _dropout(op: Operation) -> Count:
    """Training draws a number, compares it, masks and scales; inference passes its input on."""
    return Count(muls=2, other=2) * op.input(0).size if _trains(op) else NOTHING
