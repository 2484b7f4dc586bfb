"""Torch's exporter without its chatter."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back warnings, log lines and the graphs that a failing trace prints.

    Torch sets levels and handlers on loggers of its own, so the one switch over all of them is
    used; what goes wrong comes as an exception.
    """
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        silence = io.StringIO()
        with warnings.catch_warnings(), redirect_stdout(silence), redirect_stderr(silence):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
