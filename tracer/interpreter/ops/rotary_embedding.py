"""RotaryEmbedding of ONNX and of com.microsoft: pairs of channels turned by the position."""

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.numeric.attention import joined_heads, split_heads
from tracer.interpreter.numeric.tensors import are_indices, widened
from tracer.interpreter.operators import MICROSOFT, Arguments, operator, value_of
from tracer.support.types import Array


def check_inputs(given: Arguments) -> None:
    """Raises ModelError for tables and positions that do not fit the heads or each other."""
    X, cos_cache = given.X, given.cos_cache
    heads = split_heads(X, given.num_heads) if X.ndim == 3 else X
    batch, _, tokens, size = heads.shape
    if given.rotary_embedding_dim > size:
        raise ModelError(
            f"rotary_embedding_dim is {given.rotary_embedding_dim}, and heads have {size}"
        )
    check_tables(cos_cache, given.sin_cache, size)
    if given.position_ids is not None:
        _check_positions(given.position_ids, (batch, tokens), cos_cache)
    elif cos_cache.shape[:-1] != (batch, tokens):
        raise ModelError(
            f"tables of shape {list(cos_cache.shape)}, without position_ids, are not "
            f"{[batch, tokens]} and pairs"
        )


@operator("RotaryEmbedding", since=23, check=check_inputs)
def rotary_embedding(
    X: Array, cos_cache: Array, sin_cache: Array, position_ids: Array | None = None,
    *, interleaved: int = 0, num_heads: int | None = None, rotary_embedding_dim: int = 0,
) -> Array:  # fmt: skip
    """Turns the first `rotary_embedding_dim` channels of each head (default: all).

    The tables are [positions, pairs] with `position_ids` [N, L], else [N, L, pairs].
    """
    heads = split_heads(X, num_heads) if X.ndim == 3 else X
    width = rotary_embedding_dim or heads.shape[-1]
    cosines, sines = (rows_at(table, position_ids) for table in (cos_cache, sin_cache))
    pairs = width // 2
    turned = rotated(heads, cosines[..., :pairs], sines[..., :pairs], bool(interleaved))
    return joined_heads(turned) if X.ndim == 3 else turned


def check_contrib_inputs(given: Arguments) -> None:
    """Raises ModelError for tables and positions that do not fit the heads or each other."""
    position_ids, cos_cache = given.position_ids, given.cos_cache
    batch, _, tokens, size = _contrib_heads(given.input, cos_cache, given.num_heads).shape
    check_tables(cos_cache, given.sin_cache, size)
    if position_ids.shape != (1,):
        _check_positions(position_ids, (batch, tokens), cos_cache)
    elif (first := value_of(position_ids)) is not None:
        check_places(first + np.array([0, max(tokens - 1, 0)]), cos_cache.shape[0])


@operator("RotaryEmbedding", domain=MICROSOFT, check=check_contrib_inputs)
def contrib_rotary_embedding(
    input: Array, position_ids: Array, cos_cache: Array, sin_cache: Array,
    *, interleaved: int = 0, is_packed_batching: int = 0, num_heads: int = 0,
    rotary_embedding_dim: int = 0, scale: float = 1.0,
) -> Array:  # fmt: skip
    """Turns as many channels of each head as the tables have pairs for.

    `position_ids` is the first position of all, of shape (1), or one for each token. The size of
    a head follows from the tables where `num_heads` is 0.
    """
    if scale != 1:
        raise ModelError(
            f"scale is {scale}: no definition says what it scales, and onnxruntime ignores it",
            "Scale the tables of cosines and sines instead.",
        )
    heads = _contrib_heads(input, cos_cache, num_heads)
    places = position_ids
    if position_ids.shape == (1,):
        places = position_ids.reshape(1, 1) + np.arange(heads.shape[2])
    cosines, sines = (rows_at(table, places) for table in (cos_cache, sin_cache))
    turned = rotated(heads, cosines, sines, bool(interleaved))
    return joined_heads(turned) if input.ndim == 3 else turned


def rotated(heads: Array, cosines: Array, sines: Array, interleaved: bool) -> Array:
    """Returns heads [N, heads, L, size] with pairs of channels turned; halves in float32.

    `cosines` and `sines` are [N or 1, L, pairs]. Pairs are neighbours if `interleaved`, else the
    first and second half of the 2 * pairs first channels; the others stay.
    """
    pairs = cosines.shape[-1]
    cosine, sine = widened(cosines)[:, None], widened(sines)[:, None]
    first, second = slice(0, pairs), slice(pairs, 2 * pairs)
    if interleaved:
        first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    real, imaginary = widened(heads[..., first]), widened(heads[..., second])
    turned = heads.copy()
    turned[..., first] = cosine * real - sine * imaginary
    turned[..., second] = sine * real + cosine * imaginary
    return turned


def rows_at(table: Array, places: Array | None) -> Array:
    """Returns the rows [N, L, pairs] of a table at positions; the table itself without them."""
    return table if places is None else table[places]


def _contrib_heads(input: Array, cosines: Array, count: int) -> Array:
    """Returns the input as heads. Raises ModelError."""
    if input.ndim == 3:
        return split_heads(input, count or input.shape[-1] // max(1, 2 * cosines.shape[-1]))
    if input.ndim != 4:
        raise ModelError(f"an input of shape {list(input.shape)} has no heads")
    return input


def _check_positions(positions: Array, tokens: tuple[int, int], table: Array) -> None:
    """Refuses positions other than one of the table's rows for each token of the batch."""
    if positions.shape != tokens:
        raise ModelError(f"position_ids are {list(positions.shape)}, not one for each of {tokens}")
    places = value_of(positions)
    if places is not None:
        check_places(places, table.shape[0])


def check_places(places: Array, rows: int) -> None:
    """Raises ModelError for positions that a table of `rows` does not have."""
    if not are_indices(places, rows):
        raise ModelError(
            f"positions {places.min()} to {places.max()}, and a table of {rows}, from 0"
        )


def check_tables(cosines: Array, sines: Array, size: int) -> None:
    """Raises ModelError for tables of unlike shapes, or of more pairs than a head has."""
    if cosines.shape != sines.shape or 2 * cosines.shape[-1] > size:
        raise ModelError(
            f"tables of shapes {list(cosines.shape)} and {list(sines.shape)} for heads of {size} "
            "channels"
        )
