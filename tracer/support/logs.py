"""Silences what tools of onnxruntime log: errors are exceptions, and the rest is advice on them."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_logs() -> Iterator[None]:
    """Drops what is logged inside of the block, warnings included."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
