"""Measures the overhead of the function hook on a call, on this machine."""

import statistics
import time
from functools import cache
from typing import Any

import numpy as np

from tracer.executors.chainer.hooks import CallRecorder, Functions
from tracer.executors.eager.profile import Overhead

_CALLS = 2000


@cache
def measure() -> Overhead:
    """Returns the interval that the hook records for an empty call, and the time outside it."""
    recorder = CallRecorder({}, {})
    hook = Functions(recorder)
    function: Any = object()
    data = (np.ones(1, np.float32), np.ones(1, np.float32))
    calls = []
    for _ in range(_CALLS):
        start = time.perf_counter_ns()
        hook.forward_preprocess(function, data)
        hook.forward_postprocess(function, data)
        calls.append(time.perf_counter_ns() - start)
    inside = statistics.median(span.end - span.start for span in recorder.take())
    outside = max(0.0, statistics.median(calls) - inside)
    return Overhead(inside / 1e3, outside / 1e3)
