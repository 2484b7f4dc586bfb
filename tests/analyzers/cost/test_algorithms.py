"""Operators whose work is that of an algorithm: the algorithm itself, with numbers that count."""

import cmath
import math

import numpy as np
import pytest

from tests.analyzers.cost import counted
from tests.analyzers.cost.counted import clamp, of, total
from tests.analyzers.cost.single import run

RANDOM = np.random.default_rng(5)


def normal(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def assert_same_operations(row, tally):
    assert (row["adds"], row["muls"]) == (tally["adds"], tally["muls"])
    assert row["flops"] == tally.total()


def test_a_fourier_transform_is_radix_2():
    x = normal(2, 8, 2)
    expected, row, _ = run("DFT", [x], opset=17, axis=1)
    signals = [[tuple(map(counted.Number, pair)) for pair in signal] for signal in x]
    with counted.tally() as tally:
        results = [fft(signal) for signal in signals]
    values = [[(re.value, im.value) for re, im in result] for result in results]
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)
    assert_same_operations(row, tally)


def fft(points):
    n = len(points)
    if n == 1:
        return points
    even, odd = fft(points[::2]), fft(points[1::2])
    first, second = [], []
    for k in range(n // 2):
        w = cmath.exp(-2j * cmath.pi * k / n)
        re = odd[k][0] * w.real - odd[k][1] * w.imag
        im = odd[k][0] * w.imag + odd[k][1] * w.real
        first.append((even[k][0] + re, even[k][1] + im))
        second.append((even[k][0] - re, even[k][1] - im))
    return first + second


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_determinant_is_an_elimination(n):
    x = normal(2, n, n)
    expected, row, _ = run("Det", [x])
    with counted.tally() as tally:
        result = [eliminate(counted.array(matrix), n).value for matrix in x]
    np.testing.assert_allclose(result, expected, rtol=1e-3)
    assert_same_operations(row, tally)


def eliminate(a, n):
    for k in range(n):
        for i in range(k + 1, n):
            factor = a[i, k] / a[k, k]
            for j in range(k + 1, n):
                a[i, j] = a[i, j] - factor * a[k, j]
    product = a[0, 0]
    for k in range(1, n):
        product = product * a[k, k]
    return product


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention_is_its_recurrence(rule):
    batch, tokens, heads, queries, width, value_width = 2, 3, 2, 4, 3, 2
    q, k = normal(batch, tokens, queries * width), normal(batch, tokens, heads * width)
    v, decay = normal(batch, tokens, heads * value_width), normal(batch, tokens, heads)
    beta, past = normal(batch, tokens, heads), normal(batch, heads, width, value_width)
    inputs = [q, k, v, past, decay if "gated" in rule else None, beta if "delta" in rule else None]
    while inputs[-1] is None:
        inputs.pop()
    options = {"q_num_heads": queries, "kv_num_heads": heads, "update_rule": rule, "scale": 0.5}
    expected, row, _ = run("LinearAttention", inputs, opset=27, outputs=["y", "state"], **options)
    numbers = [None if x is None else counted.array(x) for x in (q, k, v, past, decay, beta)]
    with counted.tally() as tally:
        result = [recurrence(rule, [x[b] for x in numbers], heads, queries) for b in range(batch)]
    np.testing.assert_allclose(
        counted.values(np.array(result, dtype=object)), expected, rtol=1e-3, atol=1e-4
    )
    assert_same_operations(row, tally)


def recurrence(rule, inputs, heads, queries):
    q, k, v, state, decay, beta = inputs
    out = []
    for t in range(len(q)):
        keys, values = np.split(k[t], heads), np.split(v[t], heads)
        for h in range(heads):
            s, update = state[h], values[h]
            if "gated" in rule:
                s *= of(math.exp, decay[t, h])
            if "delta" in rule:
                seen = [total(column * keys[h]) for column in s.T]
                update = [beta[t, h] * (a - b) for a, b in zip(values[h], seen, strict=True)]
            s += np.outer(keys[h], np.array(update, dtype=object))
        read = zip(
            np.split(q[t], queries), np.repeat(np.arange(heads), queries // heads), strict=True
        )
        out.append([total(c * x) * 0.5 for x, h in read for c in state[h].T])
    return out


@pytest.mark.parametrize("p", [1, 2, 3])
def test_a_p_pool_is_powers_a_sum_and_a_root(p):
    x = normal(1, 2, 4, 4)
    expected, row, _ = run("LpPool", [x], opset=18, kernel_shape=[2, 2], strides=[2, 2], p=p)
    image = counted.array(x)
    with counted.tally() as tally:
        for c, i, j in np.ndindex(2, 2, 2):
            window = image[0, c, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].flat
            assert norm(window, p).value == pytest.approx(expected[0, c, i, j], rel=1e-4)
    assert_same_operations(row, tally)


def norm(window, p):
    if p == 1:
        return total(map(abs, window))
    if p == 2:
        return of(math.sqrt, total(x * x for x in window))
    return counted.power(total(counted.power(abs(x), p) for x in window), 1 / p)


def test_quantising_and_dequantising():
    x, scale, zero = normal(3, 4), np.float32(0.05), np.uint8(100)
    expected, row, _ = run("QuantizeLinear", [x, np.array(scale), np.array(zero)], opset=21)
    with counted.tally() as tally:
        levels = [clamp(of(round, v / scale) + zero, 0, 255) for v in counted.array(x).flat]
    assert [level.value for level in levels] == expected.ravel().tolist()
    assert_same_operations(row, tally)
    restored, row, _ = run(
        "DequantizeLinear", [expected, np.array(scale), np.array(zero)], opset=21
    )
    with counted.tally() as tally:
        values = [(level - zero) * scale for level in counted.array(expected).flat]
    np.testing.assert_allclose([v.value for v in values], restored.ravel(), rtol=1e-5)
    assert_same_operations(row, tally)


def test_linear_interpolation_weighs_the_neighbours():
    x = normal(1, 2, 4, 4)
    sizes = np.array([1, 2, 8, 6], np.int64)
    empty = np.zeros(0, np.float32)
    expected, row, _ = run("Resize", [x, empty, empty, sizes], mode="linear")
    assert (row["muls"], row["adds"]) == (4 * expected.size, 3 * expected.size)
    one_axis = np.array([1, 2, 4, 8], np.int64)
    expected, row, _ = run("Resize", [x, empty, empty, one_axis], mode="linear")
    assert (row["muls"], row["adds"]) == (2 * expected.size, expected.size)
    _, row, _ = run("Resize", [x, empty, empty, sizes], mode="nearest")
    assert row["flops"] == 0
