"""Products of matrices of bytes: exact, or with pairs that saturate, as x86 without VNNI adds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tracer.arithmetic.kernel import Kernel
from tracer.arithmetic.replays import interpreter
from tracer.arithmetic.rule import Rule, share_of_equal
from tracer.interpreter.compiled_code import loaded
from tracer.interpreter.ops.matmul import integer_matmul
from tracer.interpreter.ops.quantization import dynamic_quantize_linear
from tracer.interpreter.ops.quantized import gemm_output, matmul_factor, requantized
from tracer.support.types import Array

_EXACT = Rule("sums of products are exact, and wrap at 32 bits")
_PAIRS = Rule(
    "products of terms 0 and 1, 2 and 3 … are added, and saturate, in 16 bits (x86-maddubs)",
    {"pairs": True},
)
_SHIFT = 1 << 7
"""What MLAS adds to activations that are int8, and to their zero points."""


class _Integers:
    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        """Yields the rules that hold for weights of the whole range: those stored may be small."""
        place = 3 if kernel.op_type in ("QLinearMatMul", "QGemm") else 1
        weights = kernel.constant(place)
        extreme = kernel
        if weights is not None:
            info = np.iinfo(weights.dtype)
            random = np.random.default_rng(0)
            drawn = random.integers(info.min, info.max, weights.shape, endpoint=True)
            extreme = kernel.with_constants({place: drawn.astype(weights.dtype)})
        for rule in (_EXACT, _PAIRS):
            if share_of_equal(self, extreme, rule) == 1:
                yield rule

    def replay(
        self, kernel: Kernel, facts: Mapping[str, Any], inputs: Mapping[str, Array]
    ) -> list[Array]:
        if not facts:
            return interpreter.REPLAY.replay(kernel, facts, inputs)
        values = kernel.values(inputs)
        values += [None] * (9 - len(values))
        finish = _FINISHES[kernel.op_type]
        return [finish(kernel, values)]


def _sums(a: Array, zero_a: Array | None, b: Array, zero_b: Array | None) -> Array:
    """Returns the products of matrices less their zero points, from sums whose pairs saturate.

    Weights that are uint8 take another instruction, which does not saturate.
    """
    left = np.zeros((), np.int32) if zero_a is None else zero_a.astype(np.int32)
    right = np.zeros((), np.int32) if zero_b is None else zero_b.astype(np.int32)
    left = left[..., None] if left.size > 1 else left.reshape(())
    if a.dtype == np.int8:
        a, left = (a.astype(np.int16) + _SHIFT).astype(np.uint8), left + _SHIFT
    lines = a.astype(np.int32).sum(-1, keepdims=True, dtype=np.int32)
    columns = b.astype(np.int32).sum(-2, keepdims=True, dtype=np.int32)
    raw = integer_matmul(a, b, _add_pairs)
    sums: Array = raw - left * columns - right * lines + a.shape[-1] * left * right
    return sums


def _add_pairs(a: Array, b: Array, out: Array) -> None:
    wide = (each[None].astype(np.int16, order="C") for each in (a, b))
    loaded("pairs", "tracer.arithmetic.kernels").add_pairs(*wide, out[None])


def _to_float(kernel: Kernel, values: list[Any]) -> Array:
    a, b, a_scale, b_scale, zero_a, zero_b, bias, *_ = values
    product: Array = _sums(a, zero_a, b, zero_b).astype(np.float32) * (a_scale * b_scale)
    return product if bias is None else product + bias


def _dynamic(kernel: Kernel, values: list[Any]) -> Array:
    a, b, b_scale, zero_b, bias, *_ = values
    quantised, scale, zero_a = dynamic_quantize_linear(a)
    return _to_float(kernel, [quantised, b, scale, b_scale, zero_a, zero_b, bias])


def _requantised(kernel: Kernel, values: list[Any]) -> Array:
    a, a_scale, zero_a, b, b_scale, zero_b, y_scale, zero_y, *_ = values
    factor = matmul_factor(a_scale, b_scale, y_scale)
    return requantized(_sums(a, zero_a, b, zero_b), factor, zero_y)


def _gemm(kernel: Kernel, values: list[Any]) -> Array:
    a, a_scale, zero_a, b, b_scale, zero_b, bias, y_scale, zero_y = values
    attributes = kernel.attributes
    sums = _sums(
        a.T if attributes.get("transA") else a, zero_a,
        b.T if attributes.get("transB") else b, zero_b,
    )  # fmt: skip
    step = np.float32(attributes.get("alpha", 1.0)) * a_scale * b_scale
    return gemm_output(sums if bias is None else sums + bias, step, y_scale, zero_y)


_FINISHES = {
    "MatMulInteger": lambda kernel, values: _sums(values[0], values[2], values[1], values[3]),
    "MatMulIntegerToFloat": _to_float,
    "DynamicQuantizeMatMul": _dynamic,
    "QLinearMatMul": _requantised,
    "QGemm": _gemm,
}
_STANDARD = ("MatMulInteger", "QLinearMatMul")
REPLAYS = {
    name if name in _STANDARD else f"com.microsoft:{name}": _Integers() for name in _FINISHES
}
