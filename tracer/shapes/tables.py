"""Types of the outputs of onnxruntime's operators on rows, words, tokens and texts."""

from collections.abc import Mapping

from tracer.graph.tensor_type import TensorType
from tracer.shapes.known_node import Known, Outputs, Rule


def _distances(known: Known) -> Outputs:
    left, right = known.shape(0), known.shape(1)
    return [] if left is None or right is None else [known.typed(0, (left[0], right[0]))]


def _words(known: Known) -> Outputs:
    words, filters = known.shape(0), known.shape(1)
    return [] if words is None or filters is None else [known.typed(3, (words[0], filters[0]))]


def _scores(known: Known) -> Outputs:
    return [known.type_of(1)]


def _picked(known: Known) -> Outputs:
    table, indices = known.shape(0), known.shape(1)
    if table is None or indices is None or not isinstance(indices[-1], int):
        return []
    return [known.typed(0, (*indices[:-1], *table[indices[-1] :]))]


def _hashes(known: Known) -> Outputs:
    shape = known.shape(0)
    dtype = "uint32" if known.integer("positive", 1) else "int32"
    return [None if shape is None else TensorType(dtype, shape)]


def _unfolded(known: Known) -> Outputs:
    shape, size = known.shape(0), known.integer("size")
    if shape is None:
        return []
    at = known.integer("dim", -1) % len(shape)
    length = shape[at]
    count = (length - size) // known.integer("step", 1) + 1 if isinstance(length, int) else None
    return [known.typed(0, (*shape[:at], count, *shape[at + 1 :], size))]


def _expanded(known: Known) -> Outputs:
    shape, axis = known.shape(0), known.number(1)
    if shape is None or axis is None:
        return []
    at = axis % (len(shape) + 1)
    return [known.typed(0, (*shape[:at], 1, *shape[at:]))]


def _padded(known: Known) -> Outputs:
    shape, pads = known.shape(0), known.numbers(1)
    if shape is None or pads is None or len(pads) != 2 * len(shape):
        return []
    around = zip(shape, pads[: len(shape)], pads[len(shape) :], strict=True)
    sizes = tuple(s + b + a if isinstance(s, int) else None for s, b, a in around)
    return [known.typed(0, sizes)]


RULES: Mapping[str, Rule] = {
    "CDist": _distances,
    "ExpandDims": _expanded,
    "GatherND": _picked,
    "MurmurHash3": _hashes,
    "NGramRepeatBlock": _scores,
    "Pad": _padded,
    "UnfoldTensor": _unfolded,
    "WordConvEmbedding": _words,
}
