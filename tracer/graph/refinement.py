"""Combines what is known of the type of a tensor from two sides."""

from collections.abc import Sequence

from tracer.graph.tensor_type import Dim, TensorType


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


def _more_exact(known: Dim, found: Dim) -> Dim:
    if isinstance(known, int) or found is None:
        return known
    return found if isinstance(found, int) or known is None else known
