"""Lets a signal or a time limit end a run: no signal handler of Python runs while one computes."""

from functools import cache

import onnxruntime as ort

from tracer.containment import signals


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

    def terminate() -> None:
        made.terminate = True

    signals.on_arrival(terminate)
    return made
