"""onnxruntime's operators with quantised weights and float results, domain com.microsoft.

Activations are quantised to uint8 by their own range, as DynamicQuantizeLinear does.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from tracer.interpreter.operators import MICROSOFT, NodeContext, operator
from tracer.interpreter.ops import recurrent
from tracer.interpreter.ops.matmul import matmul_integer
from tracer.interpreter.ops.quantization import dequantize_linear, dynamic_quantize_linear
from tracer.interpreter.ops.recurrent import RecurrentSettings, lstm_cell
from tracer.support.types import Array

_Floats = Sequence[float] | None


@operator("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    A: Array, B: Array, a_scale: Array, b_scale: Array, a_zero_point: Array | None = None,
    b_zero_point: Array | None = None, bias: Array | None = None,
) -> Array:  # fmt: skip
    """(A - a_zero_point) (B - b_zero_point) times both scales, plus the bias."""
    sums = matmul_integer(A, B, a_zero_point, b_zero_point)
    product = sums.astype(a_scale.dtype) * (a_scale * b_scale)
    return product if bias is None else product + bias


@operator("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(
    A: Array, B: Array, b_scale: Array, b_zero_point: Array | None = None, bias: Array | None = None
) -> Array:
    """A, quantised by its range, times the dequantised B, plus the bias."""
    quantised, scale, zero = dynamic_quantize_linear(A)
    return matmul_integer_to_float(quantised, B, scale, b_scale, zero, b_zero_point, bias)


@operator("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(
    X: Array, W: Array, R: Array, B: Array | None, sequence_lens: Array | None,
    initial_h: Array | None, initial_c: Array | None, P: Array | None, W_scale: Array,
    W_zero_point: Array, R_scale: Array, R_zero_point: Array,
    *, activation_alpha: _Floats = None, activation_beta: _Floats = None,
    activations: Sequence[str] | None = None, clip: float | None = None, direction: str = "forward",
    hidden_size: int | None = None, input_forget: int = 0, ctx: NodeContext,
) -> tuple[Array, ...]:  # fmt: skip
    """LSTM with weights W (D, I, 4H) and R (D, H, 4H) of 8 bits; see `lstm` for the rest.

    X is quantised by the range of all steps up to the longest sequence, h by its range over the
    batch in each step. That range has the last h of sequences that have ended; if the node has the
    output Y, only in the step after: onnxruntime then reads h from Y, which is 0 from there on.
    Several threads of onnxruntime each take the range of some of the sequences, and outputs differ
    by about 0.01. Scales and zero points are one number, or one for each direction (D), or one for
    each column (D, 4H).
    """
    names = list(activations or ["Sigmoid", "Tanh", "Tanh"])
    settings = RecurrentSettings(
        activations=(names * len(W))[: 3 * len(W)], activation_alpha=activation_alpha,
        activation_beta=activation_beta, clip=clip, direction=direction,
    )  # fmt: skip
    hidden = R.shape[1]
    functions = recurrent.activations(settings)
    biases = np.zeros((len(W), 8 * hidden), X.dtype) if B is None else B
    peepholes = np.zeros((len(W), 3 * hidden), X.dtype) if P is None else P
    inputs, recurrence = (
        ((q.astype(np.float32) - by_direction(zero)) * by_direction(scale)).swapaxes(1, 2)
        for q, scale, zero in ((W, W_scale, W_zero_point), (R, R_scale, R_zero_point))
    )

    def rounded(x: Array) -> Array:
        return dequantize_linear(*dynamic_quantize_linear(x))

    products, cells = recurrent.gate_products(inputs, recurrence, rounded), []
    for d in range(len(W)):
        bias = biases[d][: 4 * hidden], biases[d][4 * hidden :]
        share, times = partial(products.of_input, d), partial(products.of_state, d)
        step = lstm_cell(
            times, bias, functions[3 * d : 3 * d + 3], peepholes[d], bool(input_forget)
        )
        cells.append((share, step))
    initial = [initial_h, initial_c]
    longest = len(X) if sequence_lens is None else int(sequence_lens.max(initial=0))
    read = np.concatenate([X[:longest], np.zeros_like(X[longest:])])  # zeros are in any range
    clears_ended = ctx.outputs_named[0]
    return recurrent.run(read, sequence_lens, initial, hidden, settings, cells, clears_ended)


def by_direction(parameter: Array) -> Array:
    """Returns a parameter as float32, reshaped (D) or (D, 4H) to match weights (D, I, 4H)."""
    wide = parameter.astype(np.float32)
    return wide.reshape(len(wide), 1, -1) if wide.size > 1 else wide.reshape(1, 1, 1)
