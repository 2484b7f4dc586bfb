"""onnxruntime's quantised operators: dequantise each operand, compute, requantise the output."""

import math

from tracer.analyzers.cost import traffic
from tracer.analyzers.cost.activations import PER_ELEMENT
from tracer.analyzers.cost.count import Count
from tracer.analyzers.cost.operation import Operation
from tracer.analyzers.cost.registry import counts, per_output
from tracer.analyzers.cost.rules import softmax
from tracer.analyzers.cost.rules.pooling import average
from tracer.analyzers.cost.rules.quantization import DEQUANTISE, REQUANTISE

_MICROSOFT = "com.microsoft"

_UNARY = {
    "QLinearLeakyRelu": PER_ELEMENT["LeakyRelu"],
    "QLinearSigmoid": PER_ELEMENT["Sigmoid"],
    "QLinearSoftmax": softmax.PER_ELEMENT,
}
_BINARY = {"QLinearAdd": Count(adds=1), "QLinearMul": Count(muls=1)}
"""Work per element between dequantising and requantising."""

_CONVERT = DEQUANTISE + REQUANTISE
for _name, _count in _UNARY.items():
    counts(_name, domain=_MICROSOFT, settings=(1, 2, 3, 4))(per_output(_CONVERT + _count))
counts("QLinearConcat", domain=_MICROSOFT, settings=(0, 1))(per_output(_CONVERT))
counts("QLinearWhere", domain=_MICROSOFT, settings=(0, 2, 3, 5, 6, 7, 8))(per_output(_CONVERT))


@counts(*_BINARY, domain=_MICROSOFT, settings=(1, 2, 4, 5, 6, 7))
def _binary(op: Operation) -> Count:
    operands = op.input(0).size + op.input(3).size
    return DEQUANTISE * operands + (_BINARY[op.op_type] + REQUANTISE) * op.output().size


@counts("QLinearAveragePool", domain=_MICROSOFT, settings=(1, 2, 3, 4))
def _average_pool(op: Operation) -> Count:
    window = math.prod(op.integers("kernel_shape"))
    return (average(window) + REQUANTISE) * op.output().size


@counts("QLinearGlobalAveragePool", "QLinearReduceMean", domain=_MICROSOFT, settings=(1, 2, 3, 4))
def _mean(op: Operation) -> Count:
    return Count(adds=op.input(0).size) + (Count(other=1) + REQUANTISE) * op.output().size


def _unpacked(op: Operation) -> int:
    """Returns the elements of the table: two in a byte, one in an element of a 4-bit type."""
    table = op.input(0)
    return table.size * (8 // op.integer("bits", 4)) if table.dtype == "uint8" else table.size


counts("GatherBlockQuantized", domain=_MICROSOFT, moves=traffic.selects, settings=(1, 2, 3),
       packed={0: _unpacked})(per_output(DEQUANTISE))  # fmt: skip
