"""Sides at several numbers of threads."""

from collections.abc import Sequence
from dataclasses import replace

from tracer.analyzers.views.text import plural
from tracer.api.compare.sides import NamedSide, OnnxSide
from tracer.errors import UsageError


def at_each(sides: Sequence[NamedSide], threads: Sequence[int]) -> list[NamedSide]:
    """Returns each side at each number of threads, which its label names.

    Raises UsageError for sides that are not run now, and for models of a framework, whose threads
    belong to the whole process: they cannot differ between sides that take turns.
    """
    other = next((side for side in sides if not isinstance(side, OnnxSide)), None)
    if other is not None:
        raise UsageError(
            f"{other.label}: {other.kind} are not compared at several numbers of threads",
            "Name ONNX models, or one number of threads.",
        )
    return [
        replace(side, label=f"{side.label} ({plural(count, 'thread')})", threads=count)
        for side in sides
        if isinstance(side, OnnxSide)
        for count in dict.fromkeys(threads)
    ]
