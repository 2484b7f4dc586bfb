"""Stored values of an optimised graph, told by what they follow from instead of by their bytes.

A value is one of the model, or of the graph at a lower level; or a reordering of one, padded with
zeros, for kernels that work on blocks of channels. Small values are kept as they are.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Iterable, Mapping

import numpy as np

from tracer.arithmetic.rule import NotKnown
from tracer.records.fingerprint import Recipe
from tracer.support.types import Array

_BLOCKS = (8, 16)
_MOST_INLINE = 1 << 14
"""Bytes of a value that is kept as it is; larger ones would be the weights themselves."""
Pool = Mapping[str, list[Array]]
"""Known values by their digest; the values of a digest differ in shape."""


def digest(value: Array) -> str:
    """Returns the SHA-256 of type and bytes, as text."""
    return hashlib.sha256(value.dtype.str.encode() + value.tobytes()).hexdigest()


def pool_of(values: Iterable[Array]) -> Pool:
    """Returns values by their digest."""
    pool: dict[str, list[Array]] = {}
    for value in values:
        same = pool.setdefault(digest(value), [])
        if all(value.shape != other.shape for other in same):
            same.append(value)
    return pool


def describe(value: Array, pool: Pool) -> Recipe:
    """Returns the recipe of a value."""
    sha256, kind = digest(value), value.dtype.str
    if sha256 in pool:
        return Recipe(sha256, kind, value.shape, sha256)
    ways = [(1, 1), *((block, inner) for block in _BLOCKS for inner in (block, 1))]
    for source, shapes in pool.items():
        for original in shapes:
            for block, inner in ways if original.dtype == value.dtype else ():
                made = _reordered(original, value.shape, block, inner)
                if made is not None and np.array_equal(made, value) and digest(made) == sha256:
                    return Recipe(sha256, kind, value.shape, source, block, inner)
    data = zlib.compress(value.tobytes()) if value.nbytes <= _MOST_INLINE else b""
    return Recipe(sha256, kind, value.shape, data=data)


def follow(recipe: Recipe, pool: Pool) -> Array:
    """Returns the value of a recipe, checked by its digest.

    Raises NotKnown where this machine lacks its source, ValueError for a damaged recipe.
    """
    if recipe.source and recipe.source not in pool:
        raise NotKnown("its weights follow from none of the values on this machine")
    if recipe.source:
        found = pool[recipe.source]
        exact = recipe.source == recipe.sha256
        ways = [each.reshape(recipe.shape) for each in found[:1]] if exact else [
            _reordered(each, recipe.shape, recipe.block, recipe.inner) for each in found
        ]  # fmt: skip
        made = next((each for each in ways if each is not None), None)
    elif recipe.data or 0 in recipe.shape:
        content = zlib.decompressobj().decompress(recipe.data, _MOST_INLINE)
        made = np.frombuffer(content, np.dtype(recipe.dtype)).reshape(recipe.shape)
    else:
        raise NotKnown("its weights follow from none of the model, and are too large for the file")
    if made is None or digest(made) != recipe.sha256:
        raise ValueError("a stored value does not have its SHA-256")
    return made


def _reordered(value: Array, shape: tuple[int, ...], block: int, inner: int) -> Array | None:
    """Returns a value padded to a shape and in blocks of channels; None where it does not fit."""
    if value.ndim != len(shape) or not shape or value.shape[2:] != shape[2:]:
        return None
    pairs = zip(value.shape, shape, strict=True)
    if not all(own <= most < own + max(_BLOCKS) for own, most in pairs):
        return None
    padded = np.zeros(shape, value.dtype)
    padded[tuple(map(slice, value.shape))] = value
    if block == inner == 1:
        return padded
    if len(shape) < 2 or shape[0] % block or shape[1] % inner:
        return None
    volume = math.prod(shape[2:])
    apart = padded.reshape(shape[0] // block, block, shape[1] // inner, inner, volume)
    return np.ascontiguousarray(apart.transpose(0, 2, 4, 3, 1)).reshape(shape)
