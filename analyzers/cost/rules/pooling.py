"""Pooling over windows or whole maps; the full window counts, padding included.

Like every sum, a maximum is accumulated from its neutral element: K operations for K elements.
"""

import math

from tracer.analyzers.cost.count import Count, Operation, counts, per_input


@counts("MaxPool")
@counts("MaxPool", domain="com.microsoft.nchwc")
@counts("NhwcMaxPool", domain="com.microsoft")
@counts("MaxpoolWithMask", domain="com.microsoft", settings=(1,))
def _max_pool(op: Operation) -> Count:
    return Count(other=_window(op)) * op.output().size


@counts("AveragePool")
@counts("AveragePool", domain="com.microsoft.nchwc")
def _average_pool(op: Operation) -> Count:
    return average(_window(op)) * op.output().size


@counts("LpPool")
def _lp_pool(op: Operation) -> Count:
    return _norm(_window(op), op.integer("p", 2)) * op.output().size


counts("GlobalMaxPool")(per_input(Count(other=1)))
counts("GlobalMaxPool", domain="com.microsoft.nchwc")(per_input(Count(other=1)))


@counts("GlobalAveragePool")
@counts("GlobalAveragePool", domain="com.microsoft.nchwc")
def _global_average(op: Operation) -> Count:
    return Count(adds=op.input(0).size, other=op.output().size)


@counts("GlobalLpPool")
def _global_lp(op: Operation) -> Count:
    outputs = op.output().size
    return _norm(op.input(0).size // max(outputs, 1), op.integer("p", 2)) * outputs


def average(window: int) -> Count:
    """Counts a sum of `window` elements and a division."""
    return Count(adds=window, other=1)


def _norm(window: int, p: int) -> Count:
    """Counts the p-norm of `window` elements: powers, their sum, a root."""
    if p == 1:
        return Count(adds=window, other=window)
    if p == 2:
        return Count(adds=window, muls=window, other=1)
    return Count(adds=window, other=2 * window + 1)  # absolute value and power of each, the root


def _window(op: Operation) -> int:
    return math.prod(op.integers("kernel_shape"))
