"""Products are replayed with onnxruntime's bits."""

import numpy as np
import pytest
from onnx import helper

from tracer.arithmetic.kernel import Kernel
from tracer.arithmetic.replays import replay_of
from tracer.arithmetic.rule import are_equal, reveal

FLOAT = np.dtype(np.float32)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(1, 24, 16), (8, 300, 16), (64, 576, 33), (7, 300, 1)])
def test_matmul_has_the_bits_of_onnxruntime(shape, threads):
    rows, terms, columns = shape
    weights = np.random.default_rng(0).standard_normal((terms, columns)).astype(np.float32)
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    kernel = Kernel(node, {"a": (FLOAT, (rows, terms))}, {"b": weights}, {"": 17}, threads)
    replay = replay_of("", "MatMul")
    rule = reveal(replay, kernel)
    inputs = kernel.draw(np.random.default_rng(7))
    assert are_equal(kernel.run(inputs)[0], replay.replay(kernel, rule.facts, inputs)[0]).all()
