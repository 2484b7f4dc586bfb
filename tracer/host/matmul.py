"""Measures peak arithmetic rates by products of square matrices that fit in the caches."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from tracer.executors.onnxruntime import sessions
from tracer.executors.onnxruntime.settings import OrtSettings, SessionSettings
from tracer.graph import loading
from tracer.graph.encoding import encoded
from tracer.host.peak_timer import best
from tracer.host.processors import places, staying_on
from tracer.records.environment import Peak
from tracer.support.timing import times_us

_SIZES = (128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
_LEAST_US, _MOST_US = 200, 2000
"""A shorter product has too little work per core; a longer one is interrupted on a busy machine."""
_TRIES, _SECONDS = 5, 1.0
"""Tries that tell about how long a product takes, and how long after the first to begin others."""
_AFFINITIES = "session.intra_op_thread_affinities"
"""Processors of onnxruntime's own threads, counted from 1."""


def peak(operator: str, threads: int) -> tuple[Peak, float]:
    """Returns the rate, operations/s, of float32 `MatMul` or uint8 x int8 `MatMulInteger`.

    It is that of the fastest of all sizes that take a fraction of a ms to some ms here, with the
    share of CPU time that this one got.
    """
    cpus = places(threads)
    found: dict[int, tuple[float, float]] = {}
    deadline = time.perf_counter() + _SECONDS
    with staying_on(cpus[:1]):
        for size in _SIZES:
            run = _product(operator, size, threads, cpus[1:])
            shortest = min(times_us(run, _TRIES, warmup=1))
            if found and (shortest > _MOST_US or time.perf_counter() > deadline):
                break
            if shortest >= _LEAST_US or size == _SIZES[-1]:
                seconds, cpu_share = best(run, threads)
                found[size] = 2.0 * size**3 / seconds, cpu_share
            del run  # ends its threads, which would wait for work on the processors
    size, (rate, cpu_share) = max(found.items(), key=lambda item: item[1])
    return Peak(rate, f"onnxruntime {ort.__version__} {operator}, {size} x {size}"), cpu_share


def _product(operator: str, size: int, threads: int, cpus: Sequence[int]) -> Callable[[], object]:
    """Returns a run of a product; `cpus` are those of onnxruntime's threads but the caller's."""
    integer = operator == "MatMulInteger"
    types = (np.uint8, np.int8) if integer else (np.float32, np.float32)
    entries = {_AFFINITIES: ";".join(str(cpu + 1) for cpu in cpus)} if cpus else {}
    options = OrtSettings(threads=threads, session=SessionSettings(entries=entries))
    session = _session(operator, size, np.ones((size, size), types[1]), options)
    return partial(session.run, None, {"a": np.ones((size, size), types[0])})


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
