"""Combines what is known of the type of a tensor from two sides."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tracer.graph.tensor_type import CallTypes, Dim, TensorType

Types: TypeAlias = tuple[TensorType, ...]
_Pair: TypeAlias = tuple[Types, Types]


def refined(known: TensorType | None, found: TensorType | None) -> TensorType | None:
    """Returns what both together tell; `known` where they contradict each other."""
    if known is None or found is None:
        return known or found
    dtype = found.dtype if known.dtype == "undefined" else known.dtype
    if known.shape is None or found.shape is None:
        return TensorType(dtype, found.shape if known.shape is None else known.shape)
    if len(known.shape) != len(found.shape):
        return known
    dims = zip(known.shape, found.shape, strict=True)
    return TensorType(dtype, tuple(_more_exact(a, b) for a, b in dims))


def common(types: Sequence[TensorType | None]) -> TensorType | None:
    """Returns what is true of all `types`: sizes that differ are unknown."""
    first, *others = types
    for other in others:
        if first is None or other is None or first.dtype != other.dtype:
            return None
        if first.shape is None or other.shape is None or len(first.shape) != len(other.shape):
            first = TensorType(first.dtype, None)
            continue
        dims = zip(first.shape, other.shape, strict=True)
        first = TensorType(first.dtype, tuple(a if a == b else None for a, b in dims))
    return first


def of_all_calls(calls: Mapping[_Pair, int]) -> tuple[_Pair, tuple[CallTypes, ...]]:
    """Returns the types of inputs and outputs in all calls, and the calls apart if these differ.

    `calls` has how many calls there were with these types. A size that differs is None.
    """
    if len(calls) == 1:
        return next(iter(calls)), ()
    sides = [common_of_each(side) for side in zip(*calls, strict=True)]
    apart = tuple(CallTypes(*pair, count) for pair, count in calls.items())
    return (sides[0], sides[1]), apart


def common_of_each(calls: Sequence[Types]) -> Types:
    """Returns the types of the tensors of several calls of one kernel, as `common` has them."""
    if len({len(types) for types in calls}) > 1:
        return calls[0]
    shared = [common(types) for types in zip(*calls, strict=True)]
    return tuple(kind or first for kind, first in zip(shared, calls[0], strict=True))


def _more_exact(known: Dim, found: Dim) -> Dim:
    if isinstance(known, int) or found is None:
        return known
    return found if isinstance(found, int) or known is None else known
