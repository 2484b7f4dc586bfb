"""Sequences (lists) and optionals (the value or None)."""

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.operators import operator
from tracer.interpreter.values import Value
from tracer.support.types import Array

_VIEW = 200
"""Bytes that a part of an array takes by itself."""


operator("SequenceConstruct", since=11)(lambda *inputs: list(inputs))
operator("SequenceLength", since=11)(lambda input_sequence: np.array(len(input_sequence), np.int64))
operator("OptionalHasElement", since=15)(lambda input=None: np.array(input is not None))


@operator("SequenceEmpty", since=11)
def sequence_empty(*, dtype: int = 1) -> list[Value]:
    """An empty sequence; `dtype` matters only to type inference."""
    return []


@operator("SequenceAt", since=11)
def sequence_at(input_sequence: list[Value], position: Array) -> Value:
    """The element at `position`, which counts from the end if negative."""
    return input_sequence[_index(input_sequence, position, 0)]


@operator("SequenceInsert", since=11)
def sequence_insert(
    input_sequence: list[Value], tensor: Value, position: Array | None = None
) -> list[Value]:
    """A sequence with `tensor` inserted before `position` (default: at the end)."""
    at = len(input_sequence) if position is None else _index(input_sequence, position, 1)
    return [*input_sequence[:at], tensor, *input_sequence[at:]]


@operator("SequenceErase", since=11)
def sequence_erase(input_sequence: list[Value], position: Array | None = None) -> list[Value]:
    """A sequence without the element at `position` (default: the last)."""
    at = len(input_sequence) - 1 if position is None else _index(input_sequence, position, 0)
    return [*input_sequence[:at], *input_sequence[at + 1 :]]


@operator("ConcatFromSequence", since=11)
def concat_from_sequence(input_sequence: list[Array], *, axis: int, new_axis: int = 0) -> Array:
    """Concatenates the elements along `axis`, or stacks them with `new_axis`."""
    if input_sequence:
        limits.allow((sum(each.size for each in input_sequence),), input_sequence[0].dtype)
    return (np.stack if new_axis else np.concatenate)(input_sequence, axis=axis)


@operator("SplitToSequence", since=11)
def split_to_sequence(
    input: Array, split: Array | None = None, *, axis: int = 0, keepdims: int = 1
) -> list[Array]:
    """Splits into parts of the sizes in `split`, all of one size, or (default) of size 1."""
    length = input.shape[axis]
    size = 1 if split is None else int(split) if split.ndim == 0 else length
    limits.allow((length // max(size, 1), _VIEW), np.uint8)
    if not length and (split is None or split.ndim == 0):
        return []
    if split is None:
        parts = np.split(input, length, axis)
        return parts if keepdims else [np.squeeze(part, axis) for part in parts]
    if split.ndim == 0:
        return np.split(input, range(int(split), length, int(split)), axis)
    return np.split(input, np.cumsum(split)[:-1], axis)


@operator("Optional", since=15)
def optional(input: Value = None, *, type: object = None) -> Value:
    """The input itself, or None."""
    return input


@operator("OptionalGetElement", since=15)
def optional_get_element(input: Value) -> Value:
    """The value. Raises ModelError for an empty optional."""
    if input is None:
        raise ModelError("the optional is empty")
    return input


def _index(sequence: list[Value], position: Array, beyond: int) -> int:
    """Returns the position from the start; up to `beyond` past the last element."""
    at = int(position.reshape(-1)[0])
    if not -len(sequence) <= at < len(sequence) + beyond:
        raise ModelError(f"position {at} is outside a sequence of {len(sequence)}")
    return at % len(sequence) if at < 0 else at
