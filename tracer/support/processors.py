"""Counts the processors that this process may use."""

import os


def available() -> int:
    """Returns the number of processors that the system lets this process run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
