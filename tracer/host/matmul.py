"""Measures peak arithmetic rates by products of square matrices that fit in the caches."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from threadpoolctl import threadpool_limits

from tracer.executors.onnxruntime import sessions
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.graph import loading
from tracer.graph.encoding import encoded
from tracer.host.peak_timer import PeakTimer
from tracer.records.environment import Peak
from tracer.support.timing import times_us

_SMALLEST, _LARGEST = 1024, 8192
_LONG_ENOUGH_US = 10_000
"""A shorter product has too little work per core."""


def by_numpy(timer: PeakTimer) -> Peak:
    """Returns the rate of float32 products by numpy's BLAS, in flop/s."""

    def product(size: int) -> Callable[[], object]:
        a, b, out = (np.ones((size, size), np.float32) for _ in range(3))
        return lambda: np.matmul(a, b, out=out)

    with threadpool_limits(timer.threads, user_api="blas"):
        return _peak(product, timer, f"numpy {np.__version__} matmul")


def by_onnxruntime(operator: str, timer: PeakTimer) -> Peak:
    """Returns the rate, operations/s, of float32 `MatMul` or uint8 x int8 `MatMulInteger`."""
    types = (np.uint8, np.int8) if operator == "MatMulInteger" else (np.float32, np.float32)
    options = OrtSettings(threads=timer.threads)

    def product(size: int) -> Callable[[], object]:
        session = _session(operator, size, np.ones((size, size), types[1]), options)
        feeds = {"a": np.ones((size, size), types[0])}
        return lambda: session.run(None, feeds)

    return _peak(product, timer, f"onnxruntime {ort.__version__} {operator}")


def _peak(product: Callable[[int], Callable[[], object]], timer: PeakTimer, by: str) -> Peak:
    """Returns the rate of the smallest product that keeps all threads busy for 10 ms."""
    size = _SMALLEST
    run = product(size)
    while size < _LARGEST and times_us(run, 1, warmup=1)[0] < _LONG_ENOUGH_US:
        size *= 2
        run = product(size)
    return Peak(2.0 * size**3 / timer.best(run), f"{by}, {size} x {size}")


def _session(operator: str, size: int, weights: np.ndarray[Any, Any], options: OrtSettings) -> Any:
    float32 = (TensorProto.FLOAT, TensorProto.FLOAT)
    integer = (TensorProto.UINT8, TensorProto.INT32)
    input_type, output_type = integer if operator == "MatMulInteger" else float32
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(operator, ["a", "b"], ["y"], "product")],
        "product",
        [value("a", input_type, [size, size])],
        [value("y", output_type, [size, size])],
        [numpy_helper.from_array(weights, "b")],  # an initializer, which the runtime may prepack
    )
    # An opset that every supported onnxruntime reads.
    opset = [helper.make_opsetid("", 13)]
    model = loading.from_proto(helper.make_model(graph, opset_imports=opset, ir_version=7))
    return sessions.Factory(model, encoded(model.proto, model.name), options).open()
