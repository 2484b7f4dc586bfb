"""Types of the outputs of onnxruntime's operators on quantised tensors."""

from collections.abc import Mapping

from tracer.graph.tensor_type import Dim, TensorType
from tracer.shapes.images import pooled, pooled_whole
from tracer.shapes.known_node import Known, Outputs, Rule, broadcast, like_first


def _of_two(known: Known) -> Outputs:
    return [known.typed(0, broadcast(known.shape(0), known.shape(3)))]


def _where(known: Known) -> Outputs:
    values = broadcast(known.shape(1), known.shape(4))
    return [known.typed(1, broadcast(known.shape(0), values))]


def _joined(known: Known) -> Outputs:
    shapes = [known.shape(index) for index in range(2, len(known.node.inputs), 3)]
    first = shapes[0]
    if first is None or any(shape is None for shape in shapes):
        return []
    at = known.integer("axis") % len(first)
    sizes = [shape[at] for shape in shapes if shape is not None]
    total: Dim = sum(size for size in sizes if isinstance(size, int))
    if not all(isinstance(size, int) for size in sizes):
        total = None
    return [known.typed(2, (*first[:at], total, *first[at + 1 :]))]


def _convolved(known: Known) -> Outputs:
    weights = known.shape(3)
    if weights is None:
        return []
    window = tuple(size for size in weights[2:] if isinstance(size, int))
    shape = pooled(known, window, weights[0], bool(known.integer("channels_last")))
    return [known.typed(7, shape)]


def _averaged(known: Known) -> Outputs:
    window = known.integers("kernel_shape")
    return [known.typed(0, pooled(known, window, None, bool(known.integer("channels_last"))))]


def _averaged_whole(known: Known) -> Outputs:
    return [known.typed(0, pooled_whole(known.shape(0), bool(known.integer("channels_last"))))]


def _mean(known: Known) -> Outputs:
    shape, keeps = known.shape(0), known.integer("keepdims", 1)
    if shape is None:
        return []
    axes = {axis % len(shape) for axis in known.integers("axes") or range(len(shape))}
    sizes = [1 if at in axes else size for at, size in enumerate(shape)]
    return [known.typed(0, tuple(s for at, s in enumerate(sizes) if keeps or at not in axes))]


def _product(known: Known) -> Outputs:
    left, right = known.shape(0), known.shape(3)
    if left is None or right is None:
        return []
    rows = left[1 if known.integer("transA") else 0]
    columns = right[0 if known.integer("transB") else 1]
    if known.has(7):
        return [known.typed(8, (rows, columns))]
    return [known.typed(1, (rows, columns))]


def _wide_product(known: Known) -> Outputs:
    left, right = known.shape(0), known.shape(1)
    if left is None or right is None or len(left) < 2 or len(right) != 2:
        return []
    return [TensorType("int32", (*left[:-1], right[1]))]


def _quantized(known: Known) -> Outputs:
    shape = known.shape(0)
    if known.has(2):
        return [known.typed(2, shape)]
    return [None if shape is None else TensorType("uint8", shape)]


def _dequantized(known: Known) -> Outputs:
    return [known.typed(1, known.shape(0))]


RULES: Mapping[str, Rule] = {
    "DequantizeLinear": _dequantized,
    "MatMulInteger16": _wide_product,
    "QGemm": _product,
    "QLinearAdd": _of_two,
    "QLinearAveragePool": _averaged,
    "QLinearConcat": _joined,
    "QLinearConv": _convolved,
    "QLinearGlobalAveragePool": _averaged_whole,
    "QLinearLeakyRelu": like_first,
    "QLinearMul": _of_two,
    "QLinearReduceMean": _mean,
    "QLinearSigmoid": like_first,
    "QLinearSoftmax": like_first,
    "QLinearWhere": _where,
    "QuantizeLinear": _quantized,
}
