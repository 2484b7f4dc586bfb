"""Multi-step operators against their definition, evaluated with numbers that count.

The definition is checked too: its result must be what ONNX's reference evaluator computes.
"""

import math

import numpy as np
import pytest
from onnxruntime import InferenceSession

from tests.analyzers.cost import counted
from tests.analyzers.cost.counted import clamp, largest, of, power, total
from tests.analyzers.cost.single import run

X = np.random.default_rng(3).normal(size=(2, 4, 3)).astype(np.float32)


def sigmoid(x):
    return 1 / (1 + of(math.exp, -x))


def softplus(x):
    return of(math.log, of(math.exp, x) + 1)


def elu(x, scale):
    return x if x > 0 else scale * (of(math.exp, x) - 1)


def celu(x, alpha):
    bent = alpha * (of(math.exp, x / alpha) - 1)
    return largest([x], 0) + (bent if counted.Number(0) > bent else 0)


ELEMENTWISE = {
    "Sigmoid": (sigmoid, {}),
    "HardSigmoid": (lambda x: clamp(0.3 * x + 0.4, 0, 1), {"alpha": 0.3, "beta": 0.4}),
    "HardSwish": (lambda x: x * clamp((1 / 6) * x + 0.5, 0, 1), {}),
    "Softplus": (softplus, {}),
    "Softsign": (lambda x: x / (1 + abs(x)), {}),
    "Mish": (lambda x: x * of(math.tanh, softplus(x)), {}),
    "Swish": (lambda x: x * sigmoid(1.5 * x), {"alpha": 1.5}),
    "Celu": (lambda x: celu(x, 0.7), {"alpha": 0.7}),
    "Gelu": (lambda x: 0.5 * (x * (1 + of(math.erf, x * math.sqrt(0.5)))), {}),
    "FastGelu": (
        lambda x: 0.5 * (x * (1 + of(math.tanh, 0.7978845608 * (x + 0.044715 * (x * x * x))))),
        {"approximate": "tanh"},
    ),
    "Relu": (lambda x: largest([x], 0), {}),
    "Clip": (lambda x: clamp(x, -0.5, 0.5), {}),
}


def softmax(row):
    shift = largest(row)
    powers = [of(math.exp, x - shift) for x in row]
    whole = total(powers)
    return [x / whole for x in powers]


def log_softmax(row):
    shift = largest(row)
    shifted = [x - shift for x in row]
    whole = of(math.log, total(of(math.exp, x) for x in shifted))
    return [x - whole for x in shifted]


def normalise(row, epsilon=1e-5):
    mean = total(row) / len(row)
    centred = [x - mean for x in row]
    variance = total(x * x for x in centred) / len(row)
    factor = 1 / of(math.sqrt, variance + epsilon)
    return [x * factor for x in centred]


def layer_norm(row):
    return [x * 2.0 + 3.0 for x in normalise(row)]


def rms_norm(row):
    square = total(x * x for x in row) / len(row)
    factor = 1 / of(math.sqrt, square + 1e-5)
    return [x * factor * 2.0 for x in row]


def l2_norm(row):
    length = of(math.sqrt, total(x * x for x in row))
    return [x / length for x in row]


def local_response(row, size=3, alpha=0.2, beta=0.6, bias=1.5):
    padded = [counted.Number(0), *row, counted.Number(0)]
    sums = (total(x * x for x in padded[i : i + size]) for i in range(len(row)))
    squared_once = [s * (alpha / size) + bias for s in sums]
    return [x / power(s, beta) for x, s in zip(row, squared_once, strict=True)]


ROWS = {
    # definition, axis of a row, attributes, shapes of the weights filled with 2 and 3
    "Softmax": (softmax, -1, {}, ()),
    "LogSoftmax": (log_softmax, -1, {}, ()),
    "LayerNormalization": (layer_norm, -1, {}, ((3,), (3,))),
    "RMSNormalization": (rms_norm, -1, {}, ((3,),)),
    "InstanceNormalization": (layer_norm, -1, {}, ((4,), (4,))),
    "LpNormalization": (l2_norm, 1, {"axis": 1}, ()),
}


def assert_same_operations(row, tally):
    assert row["adds"] == tally["adds"]
    assert row["muls"] == tally["muls"]
    assert row["flops"] == tally.total()


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_an_activation_does_what_its_definition_does(name):
    definition, attributes = ELEMENTWISE[name]
    bounds = [np.float32(-0.5), np.float32(0.5)] if name == "Clip" else []
    expected, row, _ = run(name.removeprefix("Fast"), [X, *bounds], opset=24, **attributes)
    numbers = counted.array(X)
    with counted.tally() as tally:
        result = np.vectorize(definition, otypes=[object])(numbers)
    np.testing.assert_allclose(counted.values(result), expected, rtol=1e-4, atol=1e-5)
    assert_same_operations(row, tally)


@pytest.mark.parametrize("name", ROWS)
def test_a_normalisation_does_what_its_definition_does(name):
    definition, axis, attributes, weights = ROWS[name]
    fills = [np.full(shape, 2 + i, np.float32) for i, shape in enumerate(weights)]
    expected, row, _ = run(name, [X, *fills], opset=23, **attributes)
    rows = np.moveaxis(counted.array(X), axis, -1)
    with counted.tally() as tally:
        result = np.array([[definition(list(r)) for r in part] for part in rows], dtype=object)
    values = np.moveaxis(counted.values(result), -1, axis)
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)
    assert_same_operations(row, tally)


def test_local_response_normalisation_squares_its_window():
    x = X[:, :, :, None]
    attributes = {"size": 3, "alpha": 0.2, "beta": 0.6, "bias": 1.5}
    # the reference evaluator leaves out the channels beyond the size of the batch
    evaluator = lambda proto: InferenceSession(proto.SerializeToString())  # noqa: E731
    expected, row, _ = run("LRN", [x], evaluator=evaluator, **attributes)
    columns = np.moveaxis(counted.array(x), 1, -1)
    with counted.tally() as tally:
        result = [[[local_response(list(c)) for c in line] for line in part] for part in columns]
    values = np.moveaxis(counted.values(np.array(result, dtype=object)), -1, 1)
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)
    # The definition squares an element in every window it is in; it need be done only once.
    assert row["muls"] == tally["muls"] - X.size * (3 - 1)
    assert row["adds"] == tally["adds"]
    assert row["flops"] == tally.total() - X.size * (3 - 1)
