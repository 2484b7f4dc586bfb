"""The callback that long work reports its progress to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with the steps that are done, the steps in total, and what is being done."""


def silent(done: int, total: int, what: str) -> None:
    """Report nothing: the progress of callers that want none."""
