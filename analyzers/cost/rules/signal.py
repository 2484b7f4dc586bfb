"""Fourier transforms, counted as radix-2 FFTs for any length: N/2 log2 N butterflies.

A butterfly is a complex multiplication and two complex additions: 4 multiplications, 6 additions.
"""

import math

from tracer.analyzers.cost.count import Count, UnknownWorkError
from tracer.analyzers.cost.operation import Operation
from tracer.analyzers.cost.registry import counts


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
