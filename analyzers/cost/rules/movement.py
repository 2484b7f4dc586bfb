"""Operators that view, select, copy or rearrange data, without arithmetic."""

from tracer.analyzers.cost import traffic
from tracer.analyzers.cost.count import NOTHING, Count
from tracer.analyzers.cost.operation import Operation
from tracer.analyzers.cost.registry import counts, no_work

# views
counts("Reshape", "Squeeze", "Unsqueeze", moves=traffic.nothing, settings=(1,))(no_work)
counts("Flatten", "Identity", "BitCast", moves=traffic.nothing)(no_work)
counts("ExpandDims", domain="com.microsoft", moves=traffic.nothing, settings=(1,))(no_work)
counts("Constant", moves=traffic.nothing)(no_work)  # a stored tensor: nothing runs

# descriptions
counts("Shape", "Size", moves=traffic.only_writes)(no_work)

# selections
counts("Gather", "GatherElements", "GatherND", "Compress", "CenterCropPad", "ReverseSequence",
       "Trilu", moves=traffic.selects, settings=(1,))(no_work)  # fmt: skip
counts("Slice", "Split", moves=traffic.selects, settings=(1, 2, 3, 4))(no_work)
counts("GatherND", "Trilu", domain="com.microsoft", moves=traffic.selects, settings=(1,))(no_work)

# copies
counts("Transpose", "Concat", "DepthToSpace", "SpaceToDepth")(no_work)
counts("Expand", "Tile", "OneHot", settings=(1, 2))(no_work)
counts("Pad", settings=(1, 2, 3))(no_work)
counts("Pad", domain="com.microsoft", settings=(1, 2, 3))(no_work)
counts("UnfoldTensor", domain="com.microsoft")(no_work)
counts("MaxUnpool", "TensorScatter", settings=(2,))(no_work)
counts("Scatter", settings=(1,))(no_work)
counts("ReorderInput", "ReorderOutput", domain="com.microsoft.nchwc")(no_work)


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
    mode = op.constant(2)  # a flag that is fed counts as false: inference
    return mode is not None and bool(mode.reshape(-1)[0])


@counts("Dropout", moves=_dropout_traffic, settings=(1, 2))
def _dropout(op: Operation) -> Count:
    """Training draws a number, compares it, masks and scales; inference passes its input on."""
    return Count(muls=2, other=2) * op.input(0).size if _trains(op) else NOTHING
