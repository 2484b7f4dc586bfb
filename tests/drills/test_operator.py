"""The drill of CONTRIBUTING: an operator is a function, a cost rule, and this test."""

import json

import numpy as np
import onnx
import onnx.parser

MODEL = """
<ir_version: 8, opset_import: ["": 17, "drill": 1]>
m (float[2, 3] a, float[2, 3] b) => (float[2, 3] y) {
    [hypot] y = drill.Hypot(a, b)
}
"""
COMPUTED = '''
"""Hypot of a domain of our own."""

import numpy as np

from tracer.interpreter.operators import operator


@operator("Hypot", domain="drill")
def hypot(a, b):
    """The root of a² + b²."""
    return np.hypot(a, b)
'''
COUNTED = '''
"""Hypot of a domain of our own."""

from tracer.analyzers.cost.count import Count, counts


@counts("Hypot", domain="drill")
def _hypot(op):
    """Two squares, an addition, a root."""
    return Count(adds=1, muls=2, other=1) * op.input(0).size
'''


def test_an_operator_takes_two_files_and_no_edit(copy):
    copy.add("tracer/interpreter/ops/drill.py", COMPUTED)
    copy.add("analyzers/cost/rules/drill.py", COUNTED)
    model = onnx.parser.parse_model(MODEL)
    onnx.save(model, copy.root / "m.onnx")
    a, b = np.float32([[3, 5, 8], [7, 9, 0]]), np.float32([[4, 12, 15], [24, 40, 1]])
    np.savez(copy.root / "feeds.npz", a=a, b=b)
    copy.tracer("interpret", "m.onnx", "--inputs", "feeds.npz", "-o", "outputs.npz")
    with np.load(copy.root / "outputs.npz") as outputs:
        np.testing.assert_array_equal(outputs["y"], np.hypot(a, b))
    (row,) = json.loads(copy.tracer("count", "m.onnx", "--json"))["runs"][0]["nodes"]
    assert (row["flops"], row["adds"], row["muls"]) == (24, 6, 12)
