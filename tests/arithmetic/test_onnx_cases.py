"""Kernels of ONNX's own cases have onnxruntime's bits, on random numbers and on those of the case.

The first input is computed, as in a model; the others are stored in it.
"""

from functools import cache

import numpy as np
import pytest

from tests.conformance import suite
from tests.examples import at_night
from tracer.arithmetic.kernel import Kernel, NotKnown, are_equal, parts, reveal
from tracer.arithmetic.replays import replay_of
from tracer.errors import ModelError

NEWEST = 24
"""Opset of the newest operators that onnxruntime has."""
NOT_KNOWN = {
    "AffineGrid": 4, "Attention": 9, "BatchNormalization": 2, "DFT": 2, "DeformConv": 4, "Det": 2,
    "Dropout": 4, "GroupNormalization": 2, "LSTM": 1, "MaxUnpool": 1,
    "MeanVarianceNormalization": 1, "NegativeLogLikelihoodLoss": 14, "OneHot": 2,
    "QuantizeLinear": 1, "ReduceProd": 2, "Resize": 10, "SoftmaxCrossEntropyLoss": 34,
}  # fmt: skip
"""The most cases of an operator that are not known: training, padded attention, antialiasing, real
inverse transforms, peepholes, indices that are no integers, zero points of 8-bit floats."""
DAILY = {"AveragePool", "DFT", "GridSample", "LpPool", "MaxPool", "Range", "STFT"}


@cache
def kernels():
    """Returns by operator the kernels of cases with one node, whose first input is float32."""
    found = {}
    for case in suite.node_cases():
        inputs, _ = next(suite.data_sets(case))
        graph = case.model.graph
        values = dict(zip((each.name for each in graph.input), inputs, strict=False))
        node = graph.node[0]
        first = values.get(node.input[0]) if node.input else None
        if len(graph.node) > 1 or getattr(first, "dtype", None) != np.float32:
            continue
        opsets = {each.domain: min(each.version, NEWEST) for each in case.model.opset_import}
        name = node.input[0]
        stored = {key: value for key, value in values.items() if key != name}
        kernel = Kernel(node, {name: (first.dtype, first.shape)}, stored, opsets, 1)
        found.setdefault(node.op_type, []).append((case.name, kernel, {name: first}))
    return found


@pytest.mark.parametrize("op_type", at_night(sorted(kernels()), but=DAILY))
def test_kernels_of_cases_have_onnxruntimes_bits(op_type):
    unknown, equal = [], 0
    for name, kernel, inputs in kernels()[op_type]:
        try:
            outputs = parts(kernel.run(inputs)[0])
        except NotKnown:  # onnxruntime lacks the type, or refuses the case
            continue
        replay = replay_of(kernel.node.domain, op_type)
        try:
            facts = reveal(replay, kernel).facts
        except (NotKnown, ModelError, ValueError):
            unknown.append(name)
            continue
        replayed = parts(replay.replay(kernel, facts, inputs)[0])
        assert all(are_equal(*pair).all() for pair in zip(outputs, replayed, strict=True)), name
        equal += 1
    assert len(unknown) <= NOT_KNOWN.get(op_type, 0), unknown
    assert equal or unknown or op_type not in DAILY
