"""Read a result that another call saved as a .trace file."""

from pathlib import Path

from tracer.records.trace import Trace
from tracer.records.whatif import WhatIf
from tracer.storage import trace_file, whatif_file
from tracer.support.arguments import check_arguments


def load(path: str | Path) -> Trace:
    """Returns the trace at `path`. Raises InputError where the file holds none."""
    check_arguments(locals())
    return trace_file.load(path)


def load_result(path: str | Path) -> Trace | WhatIf:
    """Returns the trace or the what-if at `path`. Raises InputError where the file holds none."""
    check_arguments(locals())
    if whatif_file.holds_what_if(Path(path)):
        return whatif_file.load(Path(path))
    return load(path)
