"""Translates what a model raises in its first run into errors of `tracer.errors`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tracer.errors import InputError, LimitError, TracerError
from tracer.executors.eager.calls import described

_OUT_OF_MEMORY = ("can't allocate memory", "out of memory")


@contextmanager
def failing_clearly(model: object, inputs: Sequence[Any]) -> Iterator[None]:
    """Translates errors of the block: LimitError when out of memory, else InputError."""
    shapes = ", ".join(map(described, inputs))
    try:
        yield
    except TracerError:  # the code of the model may raise our errors
        raise
    except SystemExit as error:
        raise InputError(
            f"{type(model).__name__} ends the program (sys.exit) when it is run on {shapes}",
            "Take that out of its code.",
        ) from error
    except Exception as error:  # any exception of the model's own code
        if isinstance(error, MemoryError) or any(t in str(error) for t in _OUT_OF_MEMORY):
            what = f"not enough memory to run {type(model).__name__} on {shapes}"
            raise LimitError(what, "Use a smaller batch.") from error
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = "; ".join(lines[:3]).rstrip(".:") or type(error).__name__
        raise InputError(
            f"{type(model).__name__} does not run on {shapes}: {reason}",
            "Check --input-shape and --batch first; --debug shows where.",
        ) from error
