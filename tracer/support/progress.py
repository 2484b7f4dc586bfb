"""The callback for the progress of long work."""

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with the completed steps, the total steps, and the current work."""


def silent(done: int, total: int, what: str) -> None:
    """Reports nothing."""
