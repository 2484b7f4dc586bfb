"""Linear algebra beyond products, and transforms of signals."""

import math

from tracer.analyzers.cost.count import Count, Operation, UnknownWorkError, counts, per_input


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


@counts("DFT", settings=(1, 2))
def _dft(op: Operation) -> Count:
    shape = op.input(0).shape
    axis = op.integer("axis", 1) if op.opset < 20 else _scalar(op, 2, -2)
    length = _scalar(op, 1, shape[axis])
    transforms = op.input(0).size // max(shape[axis] * shape[-1], 1)
    return fft(length) * transforms


@counts("STFT", settings=(1, 2, 3))
def _stft(op: Operation) -> Count:
    batch, frames = op.output().shape[:2]
    length = op.input(2).shape[0] if op.has(2) else _scalar(op, 3, 0)
    parts = op.input(0).shape[2] if len(op.input(0).shape) == 3 else 1  # real, or complex
    window = Count(muls=length * parts if op.has(2) else 0)
    return (window + fft(length)) * (batch * frames)


def fft(length: int) -> Count:
    """Counts one transform of `length` complex points."""
    stages = math.ceil(math.log2(length)) if length > 1 else 0
    return Count(adds=3, muls=2) * (length * stages)


def _scalar(op: Operation, index: int, default: int) -> int:
    if not op.has(index):
        return default
    value = op.constant(index)
    if value is None:
        raise UnknownWorkError(f"'{op.node.inputs[index]}' is computed or fed")
    return int(value.reshape(-1)[0])
