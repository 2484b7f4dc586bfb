"""Keeps signals or logs out of a block of code."""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ENDING = (
    signal.SIGINT,
    signal.SIGTERM,
    *([signal.SIGALRM] if hasattr(signal, "SIGALRM") else []),  # the end of a time limit
)


@contextmanager
def without_signals() -> Iterator[None]:
    """Lets signals that end a command wait for the end of the block, which must not stop half way.

    Compilers call back into Python, and an exception in there is lost. Outside the main thread this
    does nothing: handlers of signals run in the main thread alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    handlers = {number: signal.getsignal(number) for number in _ENDING}
    # None is a handler that Python did not install, and could not install again.
    replaced = {number: handler for number, handler in handlers.items() if handler is not None}
    for number in replaced:
        signal.signal(number, lambda one, frame: arrived.append(one))
    try:
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)
        for one in arrived:
            signal.raise_signal(one)


@contextmanager
def without_logs() -> Iterator[None]:
    """Drops what tools of onnxruntime log, warnings included: it is advice on these tools.

    Their errors are exceptions.
    """
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
