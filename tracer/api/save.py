"""Write a result to a file."""

from pathlib import Path

from tracer.analyzers.options import ViewOptions
from tracer.records.result import Result
from tracer.support.arguments import check_arguments, instance, maybe

_RULES = {"options": maybe(instance("tracer.records.result.ViewOptions"))}


def save(
    result: Result, path: str | Path, options: ViewOptions | None = None, force: bool = False
) -> Path:
    """Writes `result` to `path`, in the format of its extension, and returns the path.

    `options` set what the file shows. Raises UsageError for an unknown format, InputError where
    the file exists (unless `force`) or cannot be written.
    """
    check_arguments(locals(), _RULES)
    return result.save(path, options, force)
