"""Linear algebra beyond products."""

from analyzers.cost.count import Count
from analyzers.cost.operation import Operation
from analyzers.cost.registry import counts


@counts("Det")
def _determinant(op: Operation) -> Count:
    """Counts Gaussian elimination with n(n-1)/2 divisions, and the product of the diagonal."""
    n = op.input(0).shape[-1]
    updates = (n - 1) * n * (2 * n - 1) // 6
    one = Count(adds=updates, muls=updates + max(n - 1, 0), other=n * (n - 1) // 2)
    return one * (op.input(0).size // max(n * n, 1))
