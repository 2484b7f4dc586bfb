"""Types of the outputs of operators of ONNX for which onnx's inference is wrong, or stops early.

Its sizes of poolings, ConvTranspose, Resize and STFT are not those of a run; it does not know
negative axes of old opsets, and broadcasting in Einsum. Sizes here are the interpreter's own.
"""

import math
from collections.abc import Mapping

import numpy as np

from tracer.graph.tensor_type import Dim, TensorType
from tracer.interpreter.numeric.tensors import nonnegative_axis
from tracer.interpreter.ops.matmul import einsum_shape
from tracer.interpreter.ops.resize import resized_sizes
from tracer.shapes.images import pooled, transposed
from tracer.shapes.known_node import Known, Outputs, Rule, broadcast, divided, like_first
from tracer.support.types import Array


def _pooled(known: Known) -> Outputs:
    shape = pooled(known, known.integers("kernel_shape"), None, last=False)
    return [known.typed(0, shape), None if shape is None else TensorType("int64", shape)]


def _unpooled(known: Known) -> Outputs:
    shape, window = known.shape(0), known.integers("kernel_shape")
    if known.has(2) or shape is None:
        return [known.typed(0, known.numbers(2))]
    rank = len(window)
    strides, pads = known.integers("strides") or (1,) * rank, known.integers("pads")
    around = [sum(pads[at::rank]) for at in range(rank)]
    axes = zip(shape[2:], strides, window, around, strict=True)
    sizes = ((n - 1) * s + k - p if isinstance(n, int) else None for n, s, k, p in axes)
    return [known.typed(0, (*shape[:2], *sizes))]


def _convolved_back(known: Known) -> Outputs:
    pads, output_shape = known.integers("pads") or None, known.integers("output_shape") or None
    return [known.typed(0, transposed(known, pads, output_shape))]


def _resized(known: Known) -> Outputs:
    shape = known.shape(0)
    if shape is None:
        return []
    axes = [nonnegative_axis(axis, len(shape)) for axis in known.integers("axes")]
    axes = axes or list(range(len(shape)))
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


def _spectra(known: Known) -> Outputs:
    signal, window, step = known.shape(0), known.shape(2), known.number(1)
    length: Dim = known.number(3) if known.has(3) else None if window is None else window[0]
    if signal is None or not isinstance(length, int):
        return []
    bins = length // 2 + 1 if known.integer("onesided", 1) else length
    count = None
    if isinstance(signal[1], int) and step:
        count = (signal[1] - length) // step + 1
    return [known.typed(0, (signal[0], count, bins, 2))]


def _summed(known: Known) -> Outputs:
    shapes = [kind.concrete if kind else None for kind in map(known.type_of, known.positions)]
    concrete = [shape for shape in shapes if shape is not None]
    if len(concrete) < len(shapes):
        return []
    return [known.typed(0, einsum_shape(known.text("equation", ""), concrete))]


def _sloped(known: Known) -> Outputs:
    return [known.typed(0, broadcast(known.shape(0), known.shape(1)))]


def _squeezed(known: Known) -> Outputs:
    shape = known.shape(0)
    axes = known.numbers(1) if known.has(1) else known.integers("axes")
    if shape is None or axes is None or (not axes and not all(isinstance(d, int) for d in shape)):
        return []
    gone = {nonnegative_axis(axis, len(shape)) for axis in axes}
    gone = gone or {at for at, size in enumerate(shape) if size == 1}
    return [known.typed(0, tuple(size for at, size in enumerate(shape) if at not in gone))]


def _unsqueezed(known: Known) -> Outputs:
    shape = known.shape(0)
    axes = known.numbers(1) if known.has(1) else known.integers("axes")
    if shape is None or axes is None:
        return []
    rank = len(shape) + len(axes)
    new, old = {nonnegative_axis(axis, rank) for axis in axes}, iter(shape)
    return [known.typed(0, tuple(1 if at in new else next(old) for at in range(rank)))]


def _joined(known: Known) -> Outputs:
    shapes = [shape for shape in map(known.shape, known.positions) if shape is not None]
    if len(shapes) < len(known.positions):
        return []
    at = nonnegative_axis(known.integer("axis", 1), len(shapes[0]))
    sizes = [shape[at] for shape in shapes]
    numbers = [size for size in sizes if isinstance(size, int)]
    total = sum(numbers) if len(numbers) == len(sizes) else None
    return [known.typed(0, (*shapes[0][:at], total, *shapes[0][at + 1 :]))]


def _sliced(known: Known) -> Outputs:
    shape, starts, ends = known.shape(0), known.integers("starts"), known.integers("ends")
    if shape is None or not starts:
        return []
    after: list[Dim] = list(shape)
    axes = known.integers("axes") or range(len(starts))
    for axis, start, end in zip(axes, starts, ends, strict=True):
        if isinstance(size := shape[axis], int):
            after[axis] = len(range(size)[start:end])
        else:
            after[axis] = None
    return [known.typed(0, tuple(after))]


def _picked(known: Known) -> Outputs:
    shape, condition = known.shape(0), known.value(1)
    if shape is None or condition is None:
        return []
    count = int(np.count_nonzero(condition))
    if not known.has_attribute("axis"):
        return [known.typed(0, (count,))]
    at = nonnegative_axis(known.integer("axis"), len(shape))
    return [known.typed(0, (*shape[:at], count, *shape[at + 1 :]))]


def _reshaped(known: Known) -> Outputs:
    before, after = known.shape(0), known.integers("shape")
    if before is None or not after:
        return []
    sizes = [before[at] if size == 0 else size for at, size in enumerate(after)]
    if -1 in sizes and all(isinstance(size, int) for size in (*before, *sizes)):
        rest = math.prod(size for size in sizes if isinstance(size, int) and size != -1)
        total = math.prod(size for size in before if isinstance(size, int))
        sizes[sizes.index(-1)] = divided(total, rest)
    return [known.typed(0, tuple(None if size == -1 else size for size in sizes))]


def _mel_weights(known: Known) -> Outputs:
    bins, length = known.number(0), known.number(1)
    dtype = _DTYPES.get(known.integer("output_datatype", 1))
    if bins is None or length is None or dtype is None:
        return []
    return [TensorType(dtype, (length // 2 + 1, bins))]


def _dropped(known: Known) -> Outputs:
    return [known.type_of(0), known.type_of(0)]


def _one_size(known: Known) -> Outputs:
    size = known.number(0)
    dtype = _DTYPES.get(known.integer("output_datatype", 1))
    return [] if size is None or dtype is None else [TensorType(dtype, (size,))]


_DTYPES = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}
"""Numbers of the types of floats."""

OLD_RULES: Mapping[str, tuple[int, Rule]] = {"Dropout": (9, _dropped), "Reshape": (4, _reshaped)}
"""Rules of operators that onnx's inference leaves open up to the version named."""

RULES: Mapping[str, Rule] = {
    "AveragePool": _pooled,
    "BlackmanWindow": _one_size,
    "Compress": _picked,
    "Concat": _joined,
    "ConvTranspose": _convolved_back,
    "Einsum": _summed,
    "GroupNormalization": like_first,
    "HammingWindow": _one_size,
    "HannWindow": _one_size,
    "LpPool": _pooled,
    "MaxPool": _pooled,
    "MaxUnpool": _unpooled,
    "MelWeightMatrix": _mel_weights,
    "MeanVarianceNormalization": like_first,
    "PRelu": _sloped,
    "Resize": _resized,
    "STFT": _spectra,
    "Slice": _sliced,
    "Squeeze": _squeezed,
    "Unsqueeze": _unsqueezed,
    "Upsample": _resized,
}
