"""Types of the outputs of a node by our own rules: before onnx is asked, or where it has none."""

import math
from collections.abc import Mapping

import numpy as np
import onnx

from tracer.graph import operators
from tracer.graph.model import Node
from tracer.graph.tensor_type import Dim, TensorType
from tracer.interpreter.numeric.tensors import nonnegative_axes, nonnegative_axis
from tracer.interpreter.ops.matmul import einsum_shape
from tracer.interpreter.ops.resize import resized_sizes
from tracer.shapes import fused
from tracer.shapes.known import (
    Known,
    Outputs,
    Rule,
    Rules,
    UnknownError,
    broadcast,
    concatenated,
    divided,
    like_first,
)
from tracer.support.types import Array

_STANDARD = Rules(dict.fromkeys(("GroupNormalization", "MeanVarianceNormalization"), like_first))
"""Rules of operators for which onnx's inference is wrong, or stops early.

Its sizes of poolings, ConvTranspose, Resize and STFT are not those of a run; it does not know
negative axes of old opsets, and broadcasting in Einsum. Sizes here are the interpreter's own."""
_ML = Rules()
"""Rules of the domain ai.onnx.ml, for most of whose operators onnx has no inference."""
_DTYPES = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}
"""Numbers of the types of floats."""
_KEEPS_SHAPE = ("Identity", 1)
_LIKE_INPUT = ("BiasGelu", "FastGelu", "Gelu", "Inverse", "QuickGelu", "Trilu")
_TWINS = {
    # (domain, operator): the standard operator, and how many inputs they share
    (operators.MICROSOFT, "DynamicQuantizeLSTM"): ("LSTM", 7),
    (operators.MICROSOFT, "DynamicQuantizeMatMul"): ("MatMul", 2),
    (operators.MICROSOFT, "FusedConv"): ("Conv", 3),
    (operators.MICROSOFT, "FusedGemm"): ("Gemm", 3),
    (operators.MICROSOFT, "GridSample"): ("GridSample", 2),
    (operators.MICROSOFT, "MatMulIntegerToFloat"): ("MatMul", 2),
    **{(operators.MICROSOFT, each): _KEEPS_SHAPE for each in _LIKE_INPUT},
    (operators.CLASSICAL, "Imputer"): _KEEPS_SHAPE,
    **{(operators.QONNX_DOMAIN, each): _KEEPS_SHAPE for each in operators.QUANTIZERS},
}
_TO_FLOATS = frozenset({(operators.CLASSICAL, "Normalizer"), (operators.CLASSICAL, "Scaler")})
"""Operators whose output is of floats, with the shape of the input."""
_VERSION = 17
"""Version of the standard operators that these were made after; their shapes have not changed."""
_ODD = (UnknownError, IndexError, KeyError, TypeError, ValueError, ZeroDivisionError)
"""What rules raise for what is unknown, and for ranks or numbers that no operator allows: a run
tells what does not fit."""


def outputs(
    node: Node,
    version: int,
    types: Mapping[str, TensorType | None],
    values: Mapping[str, Array | None],
) -> dict[str, TensorType] | None:
    """Returns the types of the outputs by name, as far as they are known.

    None where onnx is to be asked: it has inference at this `version`, or there is no rule. Raises
    ModelError for what the interpreter would refuse.
    """
    rule = rule_of(node, version)
    if rule is None:
        return None
    try:
        told = rule(Known(node, types, values))
    except _ODD:
        told = ()
    found = zip(node.outputs, told, strict=False)
    known = {name: kind for name, kind in found if name and kind is not None}
    return known or ({} if node.domain == operators.MICROSOFT else None)


def rule_of(node: Node, version: int) -> Rule | None:
    """Returns our rule of an operator that onnx does not know at this version, or has wrong."""
    if node.domain == operators.CLASSICAL:
        return _ML.get(node.op_type)
    if node.domain not in ("", operators.MICROSOFT):
        return None
    if not node.domain and node.op_type in _STANDARD:
        return _STANDARD[node.op_type]
    if not node.domain and node.op_type in _OLD:
        last, of_old = _OLD[node.op_type]
        return of_old if version <= last else None
    rule = fused.RULES.get(node.op_type)
    is_ours = node.domain or node.op_type in fused.OF_ONNX
    return rule if is_ours and not onnx.defs.has(node.op_type, version, node.domain) else None


def as_standard(node: Node, version: int) -> tuple[onnx.NodeProto, str, int]:
    """Returns a node with the output shapes of `node`, its domain, and its version.

    It is the node itself, at its own `version`, for an operator that has no twin.
    """
    if (node.domain, node.op_type) in _TO_FLOATS:
        cast = onnx.helper.make_node(
            "Cast", node.inputs[:1], node.outputs, to=onnx.TensorProto.FLOAT
        )
        return cast, "", _VERSION
    if (node.domain, node.op_type) not in _TWINS:
        return node.proto, node.domain, version
    op_type, inputs = _TWINS[node.domain, node.op_type]
    twin = onnx.NodeProto(op_type=op_type, input=node.inputs[:inputs], output=node.outputs)
    allowed = onnx.defs.get_schema(op_type, _VERSION).attributes
    twin.attribute.extend(each for each in node.proto.attribute if each.name in allowed)
    return twin, "", _VERSION


def with_one_dtype(types: Mapping[str, TensorType]) -> dict[str, TensorType]:
    """Returns the types with the float type among them for all: a twin does not mix them."""
    floats = (kind.dtype for kind in types.values() if "float" in kind.dtype)
    dtype = next(floats, "float32")
    return {name: TensorType(dtype, kind.shape) for name, kind in types.items()}


@_STANDARD("AveragePool", "LpPool", "MaxPool")
def _pooled(known: Known) -> Outputs:
    shape = fused.pooled(known, known.integers("kernel_shape"), None, last=False)
    return [known.typed(0, shape), None if shape is None else TensorType("int64", shape)]


@_STANDARD("MaxUnpool")
def _unpooled(known: Known) -> Outputs:
    if known.has(2):
        return [known.typed(0, known.numbers(2))]
    shape, window = known.sizes(0), known.integers("kernel_shape")
    rank = len(window)
    strides, pads = known.integers("strides") or (1,) * rank, known.integers("pads")
    around = [sum(pads[at::rank]) for at in range(rank)]
    axes = zip(shape[2:], strides, window, around, strict=True)
    sizes = ((n - 1) * s + k - p if isinstance(n, int) else None for n, s, k, p in axes)
    return [known.typed(0, (*shape[:2], *sizes))]


@_STANDARD("ConvTranspose")
def _convolved_back(known: Known) -> Outputs:
    pads, output_shape = known.integers("pads") or None, known.integers("output_shape") or None
    return [known.typed(0, fused.transposed(known, pads, output_shape))]


@_STANDARD("Resize", "Upsample")
def _resized(known: Known) -> Outputs:
    shape = known.sizes(0)
    axes = nonnegative_axes(known.integers("axes") or None, len(shape))
    sources = [size for size in (shape[axis] for axis in axes) if isinstance(size, int)]
    scales, sizes = _scales(known), known.value(3)
    if len(sources) < len(axes) or (scales is None and sizes is None):
        return []
    policy = known.text("keep_aspect_ratio_policy", "stretch")
    after: list[Dim] = list(shape)
    for axis, size in zip(axes, resized_sizes(sources, scales, sizes, policy)[1], strict=True):
        after[axis] = size
    return [known.typed(0, tuple(after))]


def _scales(known: Known) -> Array | None:
    """Returns the scales of Resize or Upsample, as far as they are known."""
    if known.node.op_type == "Upsample" and not known.has(1):
        sides = (*known.floats("height_scale"), *known.floats("width_scale"))
        return np.array(known.floats("scales") or (1, 1, *sides), np.float32)
    scales = known.value(1 if len(known.node.inputs) == 2 else 2)
    return scales if scales is not None and scales.size else None


@_STANDARD("STFT")
def _spectra(known: Known) -> Outputs:
    signal, step = known.sizes(0), known.number(1)
    length: Dim = known.number(3) if known.has(3) else known.sizes(2)[0]
    if not isinstance(length, int):
        return []
    bins = length // 2 + 1 if known.integer("onesided", 1) else length
    count = None
    if isinstance(signal[1], int) and step:
        count = (signal[1] - length) // step + 1
    return [known.typed(0, (signal[0], count, bins, 2))]


@_STANDARD("Einsum")
def _summed(known: Known) -> Outputs:
    shapes = [kind.concrete if kind else None for kind in map(known.type_of, known.positions)]
    concrete = [shape for shape in shapes if shape is not None]
    if len(concrete) < len(shapes):
        return []
    return [known.typed(0, einsum_shape(known.text("equation", ""), concrete))]


_STANDARD("PRelu")(lambda known: [known.typed(0, broadcast(known.shape(0), known.shape(1)))])


@_STANDARD("Squeeze")
def _squeezed(known: Known) -> Outputs:
    shape = known.sizes(0)
    axes = known.numbers(1) if known.has(1) else known.integers("axes")
    if not axes and not all(isinstance(size, int) for size in shape):
        return []
    gone = {nonnegative_axis(axis, len(shape)) for axis in axes}
    gone = gone or {at for at, size in enumerate(shape) if size == 1}
    return [known.typed(0, tuple(size for at, size in enumerate(shape) if at not in gone))]


@_STANDARD("Unsqueeze")
def _unsqueezed(known: Known) -> Outputs:
    shape = known.sizes(0)
    axes = known.numbers(1) if known.has(1) else known.integers("axes")
    rank = len(shape) + len(axes)
    new, old = {nonnegative_axis(axis, rank) for axis in axes}, iter(shape)
    return [known.typed(0, tuple(1 if at in new else next(old) for at in range(rank)))]


@_STANDARD("Concat")
def _concatenated(known: Known) -> Outputs:
    shapes = [known.sizes(at) for at in known.positions]
    axis = nonnegative_axis(known.integer("axis", 1), len(shapes[0]))
    return [known.typed(0, concatenated(shapes, axis))]


@_STANDARD("Slice")
def _sliced(known: Known) -> Outputs:
    shape, starts, ends = known.sizes(0), known.integers("starts"), known.integers("ends")
    if not starts:
        return []
    after: list[Dim] = list(shape)
    axes = known.integers("axes") or range(len(starts))
    for axis, start, end in zip(axes, starts, ends, strict=True):
        size = shape[axis]
        after[axis] = len(range(size)[start:end]) if isinstance(size, int) else None
    return [known.typed(0, tuple(after))]


@_STANDARD("Compress")
def _picked(known: Known) -> Outputs:
    shape, condition = known.sizes(0), known.value(1)
    if condition is None:
        return []
    count = int(np.count_nonzero(condition))
    if not known.has_attribute("axis"):
        return [known.typed(0, (count,))]
    at = nonnegative_axis(known.integer("axis"), len(shape))
    return [known.typed(0, (*shape[:at], count, *shape[at + 1 :]))]


def _reshaped(known: Known) -> Outputs:
    before, after = known.sizes(0), known.integers("shape")
    if not after:
        return []
    sizes = [before[at] if size == 0 else size for at, size in enumerate(after)]
    if -1 in sizes and all(isinstance(size, int) for size in (*before, *sizes)):
        rest = math.prod(size for size in sizes if isinstance(size, int) and size != -1)
        total = math.prod(size for size in before if isinstance(size, int))
        sizes[sizes.index(-1)] = divided(total, rest)
    return [known.typed(0, tuple(None if size == -1 else size for size in sizes))]


@_STANDARD("MelWeightMatrix")
def _mel_weights(known: Known) -> Outputs:
    bins, length = known.number(0), known.number(1)
    dtype = _DTYPES.get(known.integer("output_datatype", 1))
    if bins is None or length is None or dtype is None:
        return []
    return [TensorType(dtype, (length // 2 + 1, bins))]


@_STANDARD("BlackmanWindow", "HammingWindow", "HannWindow")
def _one_size(known: Known) -> Outputs:
    size = known.number(0)
    dtype = _DTYPES.get(known.integer("output_datatype", 1))
    return [] if size is None or dtype is None else [TensorType(dtype, (size,))]


_OLD: Mapping[str, tuple[int, Rule]] = {
    "Dropout": (9, lambda known: [known.type_of(0), known.type_of(0)]),
    "Reshape": (4, _reshaped),
}
"""Rules of operators that onnx's inference leaves open up to the version named."""


@_ML("LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier")
def _classified(known: Known) -> Outputs:
    """A label for each row, and a score for each row and class."""
    texts = known.length("classlabels_strings")
    classes = texts or known.length("classlabels_ints", "classlabels_int64s")
    if not classes:
        return []
    rows = _rows(known)
    labels = TensorType("string" if texts else "int64", rows)
    return [labels, TensorType("float32", (*rows, classes))]


@_ML("LinearRegressor", "SVMRegressor", "TreeEnsembleRegressor")
def _estimated(known: Known) -> Outputs:
    default = 1 if known.node.op_type == "LinearRegressor" else 0
    name = "targets" if known.node.op_type == "LinearRegressor" else "n_targets"
    rows, targets = _rows(known), known.integer(name, default) or 1
    return [TensorType("float32", (*rows, targets))]


_ML("TreeEnsemble")(lambda k: [k.typed(0, (*_rows(k), k.integer("n_targets", 1)))])


def _rows(known: Known) -> tuple[Dim, ...]:
    """Returns the first axis of a matrix. Raises UnknownError for another input."""
    shape = known.sizes(0)
    if len(shape) != 2:
        raise UnknownError
    return shape[:1]


@_ML("LabelEncoder")
def _encoded(known: Known) -> Outputs:
    shape = known.sizes(0)
    for name, dtype in (
        ("values_strings", "string"), ("values_int64s", "int64"), ("values_floats", "float32"),
    ):  # fmt: skip
        if known.length(name):
            return [TensorType(dtype, shape)]
    if known.length("classes_strings"):  # opset 1: between texts and their positions
        kind = known.type_of(0)
        return [TensorType("int64" if kind and kind.dtype == "string" else "string", shape)]
    return []


@_ML("FeatureVectorizer")
def _vectorized(known: Known) -> Outputs:
    widths = known.integers("inputdimensions")
    return [TensorType("float32", (*_rows(known), sum(widths)))] if widths else []
