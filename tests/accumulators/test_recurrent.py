"""RNN, GRU, LSTM and DynamicQuantizeLSTM: two narrow sums a step, against int64 sums."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.accumulators.nodes import RANDOM, int8, multiplied, narrowed, plain
from tests.accumulators.test_quantized_operators import model
from tests.accumulators.test_sum_operators import by_onnxruntime
from tracer.accumulators.spec.policy import parse_policy
from tracer.errors import ModelError

STEPS, BATCH, INPUTS, HIDDEN = 3, 2, 4, 4
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FIXED = "8:5/8:6"


def network(op_type, directions=1, **attributes):
    """A node with stored weights and biases, and its input."""
    rows = GATES[op_type] * HIDDEN
    weights = {
        "w": (directions, rows, INPUTS), "r": (directions, rows, HIDDEN),
        "b": (directions, 2 * rows),
    }  # fmt: skip
    drawn = {k: RANDOM.normal(0, 0.8, shape).astype(np.float32) for k, shape in weights.items()}
    proto = model(
        f"(float[{STEPS},{BATCH},{INPUTS}] x) => (float[a,b,c,d] y, float[e,f,g] h)"
        f" {{ y, h = {op_type} <hidden_size = {HIDDEN}> (x, w, r, b) }}",
        **drawn,
    )
    for name, value in attributes.items():
        proto.graph.node[0].attribute.append(helper.make_attribute(name, value))
    return proto, drawn, RANDOM.normal(0, 1, (STEPS, BATCH, INPUTS)).astype(np.float32)


def product(rows, weights, bits):
    """Rows in 8:5 times weights in 8:6, summed in `bits` bits."""
    left = np.clip(np.rint(rows.astype(np.float64) * 32), -128, 127).astype(np.int64)
    right = np.clip(np.rint(weights.astype(np.float64) * 64), -128, 127).astype(np.int64)
    return (multiplied(left, right.T, bits) * 2.0**-11).astype(np.float32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def rnn(share, h, r, b, bits, linear):
    return np.tanh(share + product(h, r, bits) + b[0] + b[1])


def gru(share, h, r, b, bits, linear):
    z, reset, _ = np.split(share + product(h, r, bits) + b[0] + b[1], 3, axis=1)
    z, reset, last = sigmoid(z), sigmoid(reset), slice(2 * HIDDEN, None)
    if linear:
        past = reset * (product(h, r[last], bits) + b[1][last])
    else:
        past = product(reset * h, r[last], bits) + b[1][last]
    return (1 - z) * np.tanh(share[:, last] + past + b[0][last]) + z * h


def by_definition(op_type, drawn, x, bits, linear=0):
    """Y (steps, batch, H) of one direction."""
    w, r, b = drawn["w"][0], drawn["r"][0], np.split(drawn["b"][0], 2)
    h, c, every = np.zeros((BATCH, HIDDEN), np.float32), np.zeros((BATCH, HIDDEN)), []
    for element in x:
        share = product(element, w, bits)
        if op_type == "LSTM":
            i, o, f, g = np.split(share + product(h, r, bits) + b[0] + b[1], 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        else:
            h = (rnn if op_type == "RNN" else gru)(share, h, r, b, bits, linear)
        h = h.astype(np.float32)
        every.append(h)
    return np.stack(every)


@pytest.mark.parametrize("bits", [10, 13, 14, 32])
@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [("RNN", {}), ("LSTM", {}), ("GRU", {}), ("GRU", {"linear_before_reset": 1})],
)
def test_input_and_state_are_summed_apart(op_type, attributes, bits):
    proto, drawn, x = network(op_type, **attributes)
    output, narrowing = narrowed(proto, parse_policy(str(bits), FIXED), x)
    expected = by_definition(op_type, drawn, x, bits, attributes.get("linear_before_reset", 0))
    np.testing.assert_allclose(output[:, 0], expected, atol=1e-5)
    (kept,) = narrowing.accumulations().values()
    if bits == 10:  # and the saturated sums are not those of 32 bits
        assert kept.tally.outputs_changed.sum() > 0
        wide = by_definition(op_type, drawn, x, 32, attributes.get("linear_before_reset", 0))
        assert np.abs(wide - expected).max() > 0.05
    gates = GATES[op_type] * HIDDEN
    assert kept.tally.outputs.sum() == 2 * STEPS * BATCH * gates


@pytest.mark.parametrize("op_type", GATES)
def test_with_fine_steps_and_wide_sums_the_result_is_that_of_onnxruntime(op_type):
    proto, _, x = network(op_type, 2, direction="bidirectional")
    output, narrowing = narrowed(proto, parse_policy("40", "22:16/22:17"), x)
    np.testing.assert_allclose(output, by_onnxruntime(proto, x), atol=1e-3)
    (kept,) = narrowing.accumulations().values()
    assert len(kept.tally.outputs) == 2 * GATES[op_type] * HIDDEN


def test_the_wider_of_both_products_is_guaranteed():
    """Activations are from -128 to 127; rows of the state's weights are the larger ones."""
    proto, drawn, x = network("LSTM")
    for name, scale in (("w", 0.1), ("r", 1.0)):
        (stored,) = (t for t in proto.graph.initializer if t.name == name)
        stored.CopyFrom(onnx.numpy_helper.from_array(drawn[name] * np.float32(scale), name))
    (kept,) = narrowed(proto, parse_policy("32", FIXED), x)[1].accumulations().values()
    r = np.clip(np.rint(drawn["r"][0].astype(np.float64) * 64), -128, 127).astype(np.int64)
    most = np.maximum(r * 127, r * -128).sum(1).max()
    least = np.minimum(r * 127, r * -128).sum(1).min()
    assert kept.guaranteed == max(int(most).bit_length(), int(-least - 1).bit_length()) + 1


def test_without_a_format_the_state_has_no_integers():
    proto, _, x = network("LSTM")
    with pytest.raises(ModelError, match="the state that it multiplies is floats") as told:
        narrowed(proto, parse_policy("16"), x)
    assert "--fixed 8:5" in told.value.hint


DYNAMIC = """(float[3,2,4] x) => (float[a,b,c,d] y) {
  y = com.microsoft.DynamicQuantizeLSTM <hidden_size = 4> (x, w, r, b, , , , , s, z, t, v) }"""


def dynamic(most=5):
    """Zero points are up to `most` from 0; onnxruntime has none but 0."""
    weights = {"w": int8(1, INPUTS, 16) // 2, "r": int8(1, HIDDEN, 16) // 2}
    bias = RANDOM.normal(0, 0.5, (1, 32)).astype(np.float32)
    scales = RANDOM.uniform(0.005, 0.01, (2, 1, 16)).astype(np.float32)
    zeros = RANDOM.integers(-most, most + 1, (2, 1, 16)).astype(np.int8)
    proto = model(DYNAMIC, **weights, b=bias, s=scales[0], t=scales[1], z=zeros[0], v=zeros[1])
    sides = [
        (q[0].astype(np.int64) - zero[0], scale[0])
        for q, zero, scale in zip(weights.values(), zeros, scales, strict=True)
    ]
    return proto, sides, bias[0], RANDOM.normal(0, 1, (STEPS, BATCH, INPUTS)).astype(np.float32)


def in_bytes(x):
    """Rounded to uint8 by its range with 0, as DynamicQuantizeLinear is defined; and the scale."""
    low, high = min(x.min(), 0), max(x.max(), 0)
    scale = (np.float32(high) - np.float32(low)) / np.float32(255) or np.float32(1)
    zero = np.clip(np.rint(-low / scale), 0, 255)
    return (np.clip(np.rint(x / scale) + zero, 0, 255) - zero).astype(np.int64), scale


@pytest.mark.parametrize("bits", [12, 15, 16, 32])
def test_a_dynamic_lstm_adds_bytes(bits):
    proto, ((w, ws), (r, rs)), bias, x = dynamic()
    output, narrowing = narrowed(proto, parse_policy(str(bits)), x)
    numbers, scale = in_bytes(x)
    h, c, changed = np.zeros((BATCH, HIDDEN), np.float32), np.zeros((BATCH, HIDDEN)), 0
    for place in range(STEPS):
        state, own = in_bytes(h)
        for rows, weights in ((numbers[place], w), (state, r)):
            changed += np.count_nonzero(multiplied(rows, weights, bits) != rows @ weights)
        share = multiplied(numbers[place], w, bits).astype(np.float32) * (scale * ws)
        past = multiplied(state, r, bits).astype(np.float32) * (own * rs)
        i, o, f, g = np.split(share + past + bias[:16] + bias[16:], 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = (sigmoid(o) * np.tanh(c)).astype(np.float32)
        np.testing.assert_allclose(output[place, 0], h, atol=1e-5)
    (kept,) = narrowing.accumulations().values()
    assert kept.tally.outputs.sum() == 2 * STEPS * BATCH * 16
    assert kept.tally.outputs_changed.sum() == changed
    assert (changed > 0) == (bits < 16)


def test_a_wide_dynamic_lstm_is_the_one_of_onnxruntime():
    proto, *_, x = dynamic(0)
    wide = narrowed(proto, parse_policy("32"), x)[0]
    np.testing.assert_allclose(wide, plain(proto, x), atol=1e-5)
    np.testing.assert_allclose(wide, by_onnxruntime(proto, x), atol=0.02)
