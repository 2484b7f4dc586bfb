"""Programs that keep every core busy."""

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def load(busy: bool) -> Iterator[None]:
    """Computes on every core inside the block if `busy`."""
    programs = [
        multiprocessing.Process(target=_compute, daemon=True)
        for _ in os.sched_getaffinity(0)
        if busy
    ]
    for program in programs:
        program.start()
    try:
        yield
    finally:
        for program in programs:
            program.kill()


def _compute() -> None:
    value = 0
    while True:
        value = (value * 1_103_515_245 + 12_345) % 2**31
