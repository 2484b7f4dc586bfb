"""The sizes that a dimension of an input usually has, in the order to try: images, tokens, audio.

Names, types, ranks and the nodes that read an input tell what a dimension counts.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tracer.graph import tensor_type
from tracer.graph.model import Address, Model
from tracer.graph.tensor_type import Dim
from tracer.inputs.caches_met import cache_sizes
from tracer.inputs.dims import Declared
from tracer.inputs.weights_met import sizes_met, weight_shape

_COMMON = (32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 384, 416, 448, 512, 576, 640, 768, 1024)
"""Networks halve images and sequences up to five times; few inputs are longer than 1024."""


@dataclass(frozen=True, slots=True)
class Usual:
    """What a dimension counts, and sizes to try: the usual one, then larger, then smaller ones."""

    what: str
    sizes: tuple[int, ...]


def _around(what: str, usual: int, others: Sequence[int] = ()) -> Usual:
    sizes = sorted({*_COMMON, *others, 16, 8, 4, 2, 1} - {usual})
    smaller = [size for size in reversed(sizes) if size < usual]
    return Usual(what, (usual, *(size for size in sizes if size > usual), *smaller))


IMAGE = _around("image", 224, (299, 112, 56, 48, 28, 14, 7))
TOKENS = _around("tokens", 128, (77, 50))
SEQUENCE = _around("sequence", 128, (100, 1500, 3000))
OTHER = _around("kind unknown", 16)
AUDIO = Usual("audio", (16000, 48000, 8000, 4096, 2048, *reversed(_COMMON), 16, 8, 4, 2, 1))
CHANNELS = Usual("channels", (3, 1, 4, 2, 8, 16, 32, 64))
PAST = Usual("past", (0, 1))

_NAMED = (
    # the name of a dimension, and what it counts
    (re.compile(r"(?i)past|cache"), PAST),
    (re.compile(r"(?i)seq|len|tok|time|step|frame"), SEQUENCE),
    (re.compile(r"(?i)^[hw]$|height|width|size|rows|cols"), IMAGE),
)
_COLOURS, _SPEAKERS = frozenset({1, 3, 4}), frozenset({1, 2})
"""Channels of an image, and of a sound."""

_BEFORE_FEATURES = frozenset(
    {
        "Cast", "Concat", "Div", "Identity", "Mul", "Pad", "Reshape", "Slice", "Squeeze", "Sub",
        "Transpose", "Unsqueeze",
    }
)  # fmt: skip
"""Operators that prepare a sound before the first node that computes features of it."""


def usual_sizes(model: Model, declared: Declared, name: str, axis: int) -> Usual:
    """Returns what the open dimension `axis` of input `name` counts, and its usual sizes."""
    met = sizes_met(model, name, len(declared[name]))
    if axis in met:
        return Usual("weights", (met[axis],))
    shape = declared[name]
    heads = cache_sizes(model, name) if len(shape) == 4 else {}
    if axis in heads:
        return Usual("heads", (heads[axis],))
    dtype = _dtypes(model)[name]
    called = _by_name(shape[axis])
    if called is PAST or (shape[axis] is None and _by_name(name) is PAST):
        return PAST
    if _is_sound(model, name, shape, dtype) and axis == len(shape) - 1:
        return AUDIO
    if called is not None:
        return TOKENS if called is SEQUENCE and dtype.startswith("int") else called
    if dtype.startswith(("int32", "int64", "bool")):
        return TOKENS if len(shape) <= 2 else OTHER
    if len(shape) == 4:
        return IMAGE if axis in _spatial_axes(shape) else CHANNELS
    return SEQUENCE if len(shape) == 3 else OTHER


def _by_name(name: Dim) -> Usual | None:
    text = name if isinstance(name, str) else ""
    return next((usual for pattern, usual in _NAMED if pattern.search(text)), None)


def _dtypes(model: Model) -> Mapping[str, str]:
    kinds = ((v.name, tensor_type.from_type_proto(v.type)) for v in model.inputs)
    return {name: kind.dtype for name, kind in kinds if kind is not None}


def _spatial_axes(shape: Sequence[Dim]) -> tuple[int, int]:
    """Returns height and width of a tensor of rank 4: channels are first unless they are last."""
    return (1, 2) if shape[3] in _COLOURS and shape[1] not in _COLOURS else (2, 3)


def _is_sound(model: Model, name: str, shape: Sequence[Dim], dtype: str) -> bool:
    """Whether an input is a waveform: [samples], [batch, samples] or [batch, 1 or 2, samples]."""
    if not dtype.startswith(("float", "bfloat")) or len(shape) > 3:
        return False
    if len(shape) == 3 and shape[1] not in _SPEAKERS:
        return False
    return any(_first_features(model, ("", name)))


def _first_features(model: Model, tensor: Address) -> Iterator[bool]:
    """Yields whether the first nodes that compute features of `tensor` do so along one axis."""
    visited, waiting = {tensor}, [tensor]
    while waiting:
        for node in model.dataflow.readers.get(waiting.pop(), ()):
            if node.op_type in ("STFT", "DFT"):
                yield True
            elif node.op_type == "Conv":
                yield len(weight_shape(model, node, 1) or ()) == 3
            elif node.op_type in _BEFORE_FEATURES:
                new = set(model.dataflow.outputs_of(node)) - visited
                visited |= new
                waiting += new
