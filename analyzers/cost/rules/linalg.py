"""Linear algebra beyond products: elimination, distances, a cheapest path."""

from tracer.analyzers.cost.count import Count
from tracer.analyzers.cost.operation import Operation
from tracer.analyzers.cost.registry import counts, per_input


@counts("Det")
def _determinant(op: Operation) -> Count:
    """Counts Gaussian elimination with n(n-1)/2 divisions, and the product of the diagonal."""
    n = op.input(0).shape[-1]
    updates = (n - 1) * n * (2 * n - 1) // 6
    one = Count(adds=updates, muls=updates + max(n - 1, 0), other=n * (n - 1) // 2)
    return one * (op.input(0).size // max(n * n, 1))


@counts("Inverse", domain="com.microsoft")
def _inverse(op: Operation) -> Count:
    """Counts Gauss-Jordan elimination in place: n divisions for each of n pivots."""
    n = op.input(0).shape[-1]
    one = Count(adds=n * (n - 1) ** 2, muls=n * n * (n - 1), other=n * n)
    return one * (op.input(0).size // max(n * n, 1))


@counts("CDist", domain="com.microsoft")
def _distances(op: Operation) -> Count:
    """Counts the squares of differences and their sum, and the root."""
    depth = op.input(0).shape[-1]
    roots = int(op.text("metric", "sqeuclidean") == "euclidean")
    return Count(adds=2 * depth, muls=depth, other=roots) * op.output().size


_CELL = Count(adds=1, other=2)  # the least of three neighbours, and the cost
counts("DynamicTimeWarping", domain="com.microsoft")(per_input(_CELL))
