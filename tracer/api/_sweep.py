"""Arguments with several values: a run for each combination."""

from collections.abc import Sequence
from typing import Any

from tracer.errors import UsageError


def each(name: str, value: Any) -> Sequence[Any]:
    """Returns the values of the argument `name`, each once: a single one, or those of a sequence.

    Raises UsageError for an empty sequence.
    """
    if isinstance(value, str) or not isinstance(value, Sequence):
        return [value]
    if not value:
        raise UsageError(f"{name} is an empty list", "Name one value or more.")
    return list(dict.fromkeys(value))  # the rows of a value that is named twice could not differ
