"""Read a result that another call saved as a .trace file."""

from pathlib import Path

from tracer.executors import foreign
from tracer.records.trace import Trace
from tracer.records.whatif import WhatIf
from tracer.storage import trace_file, whatif_file
from tracer.support.arguments import check_arguments


def load(path: str | Path) -> Trace:
    """Returns the trace at `path`. Raises InputError where the file holds none."""
    check_arguments(locals())
    return trace_file.load(path)


def load_result(path: str | Path, model: Path | None = None) -> Trace | WhatIf:
    """Returns the trace or the what-if at `path`, or a trace of another program's profile there.

    `model` is the file of the model that a profile of onnxruntime is of. Raises InputError where
    the file holds none of these.
    """
    check_arguments({"path": path})
    if is_profile(path):
        return load_profile(path, model)
    if whatif_file.holds_what_if(Path(path)):
        return whatif_file.load(Path(path))
    return load(path)


def is_profile(path: str | Path) -> bool:
    """Returns whether a file is JSON, as profilers of other programs write it."""
    return foreign.kind_of(Path(path)) is not None


def load_profile(path: str | Path, model: Path | None = None) -> Trace:
    """Returns the trace of a profile of another program. Raises the errors of `load_result`."""
    from tracer.api._foreign import foreign_trace

    return foreign_trace(Path(path), model)
