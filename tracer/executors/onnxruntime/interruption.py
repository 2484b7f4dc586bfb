"""Lets a signal or a time limit end a run: no signal handler of Python runs while one computes."""

from functools import cache

import onnxruntime as ort

from tracer.containment import signals

_NO_CAPTURE = ("gpu_graph_id", "-1")
"""Records no graph of a GPU, which nobody asked for.

A run with bound values looks the entry up, and without one onnxruntime 1.31 raises and catches an
exception in each run: 29 µs, as much as all of a small model.
"""


def options() -> ort.RunOptions:
    """Returns the options of all runs; a signal sets their `terminate`, and runs in progress end.

    The run then fails, and the exception of the signal replaces the failure.
    """
    shared = _shared()
    shared.terminate = False
    return shared


@cache
def _shared() -> ort.RunOptions:
    made = ort.RunOptions()
    made.add_run_config_entry(*_NO_CAPTURE)

    def terminate() -> None:
        made.terminate = True

    signals.on_arrival(terminate)
    return made
