"""Silence torch's exporter."""

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout


@contextmanager
def quiet() -> Iterator[None]:
    """Suppresses warnings, log lines and the graphs that a failing trace prints.

    Torch sets levels and handlers on its own loggers, so logging is disabled globally. Errors come
    as exceptions.
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
