"""Arguments with several values: a run for each combination."""

from collections.abc import Sequence
from typing import Any


def as_list(value: Any) -> Sequence[Any]:
    """Returns the values of an argument, each once: a single one, or those of a sequence."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return [value]
    return list(dict.fromkeys(value))  # the rows of a value that is named twice could not differ
