"""The innermost loop of a depthwise convolution: a stretch of sums stays in vector registers."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from tracer.interpreter.kernels.vectors import REGISTER, VECTORS, Vectors

_SUMS = 2 * VECTORS
STRETCH = _SUMS * REGISTER // 32
"""Sums that are computed at a time."""


def _taps(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    _, base, _, _, first, depth, _, target = arguments
    v = Vectors(builder, 32)

    def data(position: int) -> Any:
        array: Any = make_array(signature.args[position])  # type: ignore[no-untyped-call]
        return array(context, builder, arguments[position]).data

    source, out = v.at(data(0), base), v.at(data(6), target)
    offsets, weights = data(2), v.at(data(3), first)

    def term(k: Any, sums: list[Any]) -> list[Any]:
        factor = v.spread(builder.load(v.at(weights, k)))
        origin = v.at(source, builder.load(v.at(offsets, k)))
        columns = (v.load(v.at(origin, n * v.count)) for n in range(_SUMS))
        return [v.add_product(factor, *pair) for pair in zip(columns, sums, strict=True)]

    for n, value in enumerate(v.loop(depth, [ir.Constant(v.kind, None)] * _SUMS, term)):
        v.store(value, v.at(out, n * v.count))
    return context.get_dummy_value()


@intrinsic
def _taps_of(
    typingctx: Any, source: Any, base: Any, offsets: Any, weights: Any, first: Any, depth: Any,
    out: Any, target: Any,
) -> Any:  # fmt: skip
    i = types.intp
    return types.void(source, i, offsets, weights, i, i, out, i), _taps


taps: Any = _taps_of
"""(source, base, offsets, weights, first, depth, out, target): writes to `out[target:]` the
STRETCH sums of `weights[first + k] * source[offsets[k] + base:]`. Arrays are flat and contiguous;
nothing is checked."""
