"""`tracer.merge`: one trace from several of the same model."""

from pathlib import Path

from tracer.analyzers.merging import Source, merged
from tracer.api.load import load
from tracer.errors import UsageError
from tracer.records.trace import Trace
from tracer.support.arguments import check_arguments


def merge(*traces: Trace | str | Path) -> Trace:
    """Returns one trace with the times, work, overflow and energy of all `traces` in its rows.

    A trace is an object or the path of a .trace file. All are of the same model, by its content.
    The rows are those of the base: the first trace with times of the model itself, else the first.
    Times under another executor are in columns marked with its name, such as
    `time_us@reference`; columns that the base lacks come from the other traces. Raises UsageError
    without traces, InputError for a file that is no trace, and for traces that contradict each
    other (see `tracer.analyzers.merging`).
    """
    if not traces:
        raise UsageError("there is no trace to merge", "Name one or more.")
    check_arguments({"traces": traces})
    return merged([_source(position, trace) for position, trace in enumerate(traces, 1)])


def _source(position: int, trace: Trace | str | Path) -> Source:
    if isinstance(trace, Trace):
        return Source(f"trace {position}", trace)
    return Source(str(trace), load(trace))
