"""What our hook adds to a call of a function, measured on this machine.

This module imports Chainer, and is imported only by functions that are about to use it.
"""

from __future__ import annotations

import statistics
import time
from functools import cache
from typing import Any

import numpy as np

from tracer.executors.chainer.hooks import Functions, Recorder
from tracer.executors.eager.profile import Cost

_CALLS = 2000


@cache
def measure() -> Cost:
    """The interval that the hook sees of a call that does nothing, and what a call takes beyond."""
    recorder = Recorder({}, {})
    hook = Functions(recorder)
    function: Any = object()
    data = (np.ones(1, np.float32), np.ones(1, np.float32))
    whole = []
    for _ in range(_CALLS):
        start = time.perf_counter_ns()
        hook.forward_preprocess(function, data)
        hook.forward_postprocess(function, data)
        whole.append(time.perf_counter_ns() - start)
    seen = statistics.median(span.end - span.start for span in recorder.take())
    return Cost(inside=seen / 1e3, outside=max(0.0, statistics.median(whole) - seen) / 1e3)
